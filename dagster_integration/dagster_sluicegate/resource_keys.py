"""How definitions take the queue resource: by its key, as a parameter that Dagster and tests fill."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from dagster_sluicegate.functions import with_parameters
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate.errors import ConfigurationError

__all__ = [
    "check_resource",
    "check_resource_key",
    "queue_resource",
    "takes_resource",
    "takes_resources",
]


def takes_resource(key: str, function: Callable[..., Any], context: type, *others: str) -> Callable[..., Any]:
    """Return a function whose signature names the queue resource, so that a test may call the definition with it.

    Args:
        key: of the resource, a Python identifier.
        function: takes the context, the resource, and the other resources in their order.
        context: the class of the context.
        others: keys of further resources, of any kind; Python identifiers.
    """
    names = (key, *others)
    return takes_resources(
        [key], lambda given, resources: function(given, *(resources[name] for name in names)), context, others
    )


def takes_resources(
    keys: Sequence[str],
    function: Callable[..., Any],
    context: type,
    others: Sequence[str] = (),
    more: Sequence[inspect.Parameter] = (),
) -> Callable[..., Any]:
    """Return a function whose signature names several queue resources; see `takes_resource`.

    Args:
        keys: of the resources.
        function: takes the context and a dict of the resources by key.
        context: the class of the context.
        others: keys of further resources, of any kind; Python identifiers.
        more: parameters by which Dagster gives further resources or a config; one that is named like a queue resource
            gets that one.
    """
    for key in keys:
        check_resource_key(key)

    def named(context: Any, **resources: Any) -> Any:
        return function(context, {**resources, **{key: check_resource(resources[key], key) for key in keys}})

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter("context", kind, annotation=context),
        *(inspect.Parameter(key, kind, annotation=RedisQueueResource) for key in keys),
        *(
            inspect.Parameter(other, kind, annotation=dg.ResourceParam[Any])  # type: ignore[misc]
            for other in others
        ),
        *(parameter for parameter in more if parameter.name not in keys),
    ]
    return with_parameters(named, parameters)


def check_resource_key(key: object) -> None:
    """Refuse a resource key that cannot be the name of a parameter."""
    if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
        raise ConfigurationError(f"resource_key must be a Python identifier, not {key!r}")


def queue_resource(resources: object, key: str) -> RedisQueueResource:
    """Return the queue resource of a context.

    Raises:
        ConfigurationError: something else is there under this key.
    """
    return check_resource(getattr(resources, key), key)


def check_resource(found: object, key: str) -> RedisQueueResource:
    """Return what is under a key, if it is a queue resource.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(found, RedisQueueResource):
        raise ConfigurationError(
            f"the resource {key!r} is a {type(found).__name__}; put a RedisQueueResource there, or name another key "
            "with resource_key"
        )
    return found
