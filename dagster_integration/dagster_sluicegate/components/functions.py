"""Functions, and jobs, that YAML names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import dagster as dg

from dagster_sluicegate.sensors.targets import JOB_CLASSES
from sluicegate.draining.handler import import_handler, import_named
from sluicegate.errors import ConfigurationError

__all__ = ["Function", "Job"]


def _function(context: dg.ResolutionContext, name: str) -> Callable[..., Any]:
    return import_handler(_absolute(context, name), str(context.path[-1]))


def _job(context: dg.ResolutionContext, name: str) -> object:
    job = import_named(_absolute(context, name), "job")
    if job is None:
        raise ConfigurationError(f"job {name!r}: the module has no such name")
    if not isinstance(job, JOB_CLASSES):
        raise ConfigurationError(f"job {name!r} is a {type(job).__name__}; name a job, such as one of define_asset_job")
    return job


def _absolute(context: dg.ResolutionContext, name: str) -> str:
    """Return the name with a colon before the function and without a leading dot, which stands for the folder."""
    module, separator, function = name.rpartition(":" if ":" in name else ".")
    if not (separator and function):
        raise ConfigurationError(
            f"{context.path[-1]} must be 'module:name', or '.module:name' in the folder of this file, not {name!r}"
        )
    if module.startswith("."):
        load_context = dg.ComponentLoadContext.from_resolution_context(context)
        module = load_context.defs_relative_module_name(load_context.path) + module
    return f"{module}:{function}"


# What `module:function` names is what the component has. Dagster adds file, line and field to the errors.
Function: TypeAlias = Annotated[Callable[..., Any], dg.Resolver(_function, model_field_type=str)]
Job: TypeAlias = Annotated[Any, dg.Resolver(_job, model_field_type=str)]
