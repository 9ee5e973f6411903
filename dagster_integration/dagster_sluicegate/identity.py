"""The names of a step's leases: a retry of the step and a re-execution of its run get the same ones."""

from __future__ import annotations

import uuid

import dagster as dg

__all__ = ["is_first_try", "lease_run_id", "retry_number"]


def lease_run_id(context: dg.AssetExecutionContext, key: dg.AssetKey) -> str:
    """Return the id under which a step drains: of the root run, the asset and the partition."""
    parts = [_root_run_id(context), key.to_user_string()]
    if context.has_partition_key:
        parts.append(context.partition_key)
    return ":".join(parts)


def retry_number(context: dg.AssetExecutionContext) -> int:
    """Return how often Dagster has retried this step in this run."""
    number: int = getattr(context, "retry_number", 0)  # the context of a direct call has none
    return number


def is_first_try(context: dg.AssetExecutionContext) -> bool:
    """Return whether no earlier try of this step can have claimed anything."""
    try:
        run = context.run
    except dg.DagsterError:
        return True
    return retry_number(context) == 0 and run.root_run_id in (None, run.run_id)


def _root_run_id(context: dg.AssetExecutionContext) -> str:
    """Return the id that re-executions share; a direct call in a test has no run, and leases of its own."""
    try:
        run = context.run
    except dg.DagsterError:
        return f"direct-{uuid.uuid4().hex}"
    return run.root_run_id or run.run_id
