"""What differs between versions of Dagster, and what only its private modules offer, is in this module alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "backfill_policy_resolver",
    "check_history",
    "component_type_spec",
    "is_resource_annotation",
    "register_library",
    "resource_parameters",
    "show_markdown",
]


def register_library(name: str, version: str) -> None:
    """Name this library and its version to Dagster; without Dagster nothing happens."""
    try:
        from dagster_shared.libraries import DagsterLibraryRegistry
    except ImportError:
        return
    # Otherwise Dagster would expect its own version number here, and warn at every import.
    DagsterLibraryRegistry.register(name, version, is_dagster_package=False)


def component_type_spec(*, description: str, produces: Sequence[str]) -> Any:
    """Return the `ComponentTypeSpec` of a component; what it produces is left out before Dagster 1.13.

    It names no owner, because one that Dagster refuses would make `dg list components` fail as a whole.
    """
    import dagster as dg

    spec: dict[str, Any] = {"description": description, "tags": ["redis", "queue"]}
    if "produces" in inspect.signature(dg.ComponentTypeSpec).parameters:
        spec["produces"] = list(produces)
    return dg.ComponentTypeSpec(**spec)


def backfill_policy_resolver() -> Any:
    """Return the resolver of a backfill policy, as Dagster's own components describe it in YAML."""
    import dagster as dg
    from dagster.components.resolved import core_models

    described = core_models.SingleRunBackfillPolicyModel | core_models.MultiRunBackfillPolicyModel
    return dg.Resolver(core_models.resolve_backfill_policy, model_field_type=described)


def resource_parameters(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters that Dagster fills with resources, because their annotations say so."""
    from dagster._core.definitions.resource_annotation import get_resource_args

    return {parameter.name for parameter in get_resource_args(function)}


def is_resource_annotation(annotation: Any) -> bool:
    """Return whether Dagster takes a parameter with this annotation as a resource."""
    from dagster._core.definitions.resource_annotation import _is_resource_annotation

    return bool(_is_resource_annotation(annotation))


def check_history(instance: Any, key: Any, *, limit: int) -> Sequence[Any]:
    """Return the newest records of an asset check, which Dagster's public interface does not offer."""
    records: Sequence[Any] = instance.event_log_storage.get_asset_check_execution_history(key, limit=limit)
    return records


def show_markdown(resource: Any) -> None:
    """Give a resource the description that the UI shows, which Dagster takes from the docstring of the object.

    That of the class stands as in the source, and its indentation would be code in Markdown.
    """
    text = inspect.cleandoc(type(resource).__doc__ or "")
    object.__setattr__(resource, "__doc__", text.partition("\n\nExample:")[0])  # the object is frozen
