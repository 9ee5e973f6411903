"""What a `process` function asks of Dagster besides its batch: a config, and resources by their annotation."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_sluicegate.compat import is_resource_annotation
from sluicegate.draining.handler import Handler
from sluicegate.errors import ConfigurationError

__all__ = ["StepProcess"]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_CONFIG = "config"


@dataclass(frozen=True, slots=True)
class StepProcess:
    """A `process` function, and the parameters that Dagster fills in when a step runs.

    Attributes:
        handler: the function as the drain engine sees it: a batch, and perhaps a context.
        process: the function as it was given.
        asked: its parameters for a config and for resources.
        keys: resources that it reads from the context instead.
    """

    handler: Handler
    process: Callable[..., Any]
    asked: tuple[inspect.Parameter, ...]
    keys: tuple[str, ...]

    @classmethod
    def of(cls, label: str, process: Callable[..., Any], required_resource_keys: Iterable[str]) -> StepProcess:
        """Read the signature of a function.

        Args:
            label: names the definition in errors.
            process: the function.
            required_resource_keys: resources that it reads from its context.

        Raises:
            ConfigurationError: the function cannot be called as a drain calls it.
        """
        asked = tuple(_asked(label, process))
        nothing = dict.fromkeys((parameter.name for parameter in asked), None)
        try:
            handler = Handler.of(functools.partial(process, **nothing) if nothing else process)
        except (ConfigurationError, TypeError) as error:
            raise ConfigurationError(
                f"{label}: {error}. Further parameters may be a config ({_CONFIG}: a subclass of dagster.Config) and "
                "resources, by their annotations"
            ) from error
        named = {parameter.name for parameter in asked}
        return cls(handler, process, asked, tuple(key for key in required_resource_keys if key not in named))

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters by which Dagster gives the step what the function needs; one with a default is last."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        anything = dg.ResourceParam[Any]
        keyed = [inspect.Parameter(key, kind, annotation=anything) for key in self.keys]
        asked = [parameter.replace(kind=kind) for parameter in self.asked]
        return sorted([*asked, *keyed], key=lambda parameter: parameter.name == _CONFIG)

    def bound(self, given: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function with the config and the resources of a step."""
        if not self.asked:
            return self.process
        return functools.partial(self.process, **{parameter.name: given[parameter.name] for parameter in self.asked})


def _asked(label: str, process: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(process).parameters.values()) if callable(process) else []
    except ValueError:  # a builtin without a signature
        return
    found = ""
    for parameter in parameters[1:]:
        annotation = _evaluated(parameter.annotation, process)
        is_config = isinstance(annotation, type) and issubclass(annotation, dg.Config)
        is_resource = is_resource_annotation(annotation)
        if parameter.name == _CONFIG and not is_config:
            raise ConfigurationError(
                f"{label}: the parameter {_CONFIG!r} of process must be annotated with a subclass of dagster.Config"
            )
        if is_config and not is_resource and parameter.name != _CONFIG:
            raise ConfigurationError(
                f"{label}: the parameter {parameter.name!r} of process takes a config, so it must be named {_CONFIG!r}"
            )
        if is_config or is_resource:
            found = parameter.name
            default = parameter.default if parameter.name == _CONFIG else inspect.Parameter.empty
            yield parameter.replace(annotation=annotation, default=default)
        elif found and parameter.kind is not _KEYWORD and parameter.default is inspect.Parameter.empty:
            raise ConfigurationError(
                f"{label}: process takes {parameter.name!r} after {found!r}; write the batch first, the context next, "
                "and then config and resources"
            )


def _evaluated(annotation: Any, process: Callable[..., Any]) -> Any:
    """Return an annotation that a module with postponed annotations keeps as text; None when it cannot be read."""
    if not isinstance(annotation, str):
        return annotation
    while isinstance(process, functools.partial):
        process = process.func
    function = inspect.unwrap(process)
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    names = {**vars(module)} if module is not None else {}
    names |= getattr(function, "__globals__", {})
    try:
        closure = inspect.getclosurevars(function).nonlocals
    except TypeError:
        closure = {}
    try:
        return eval(annotation, names, dict(closure))  # noqa: S307  (the user's own annotation, as typing evaluates it)
    except Exception:  # noqa: BLE001  (a name that exists for type checkers only)
        return None
