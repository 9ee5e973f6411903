"""The names of a step's leases and messages: a retry of the step and a re-execution of its run have the same ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from sluicegate import Depth

__all__ = ["has_work", "lease_run_id", "retry_number", "root_run_id", "work_name"]


StepContext = dg.AssetExecutionContext | dg.OpExecutionContext


def lease_run_id(context: StepContext, name: dg.AssetKey | str) -> str:
    """Return the id under which a step drains: of the root run, the asset (or the op in its graph) and the partition.

    Each alias and each mapped copy of an op has an id of its own.
    """
    parts = [root_run_id(context), name.to_user_string() if isinstance(name, dg.AssetKey) else name]
    if isinstance(context, dg.OpExecutionContext):
        with suppress(dg.DagsterError):  # the context of a direct call in a test has neither
            parts[1] = str(context.node_handle)
            copy = context.get_mapping_key()
            parts += [] if copy is None else [copy]
    if context.has_partition_key:
        parts.append(context.partition_key)
    return ":".join(parts)


def retry_number(context: StepContext) -> int:
    """Return how often Dagster has retried this step in this run."""
    number: int = getattr(context, "retry_number", 0)  # the context of a direct call has none
    return number


def has_work(context: dg.AssetExecutionContext, depth: Depth) -> bool:
    """Return whether a drain is worth the start of a session or a process.

    A later try of the step always is: it takes over, and counts, what the earlier ones did.
    """
    return bool(depth.ready and not depth.paused) or not _is_first_try(context)


def _is_first_try(context: dg.AssetExecutionContext) -> bool:
    try:
        run = context.run
    except dg.DagsterError:
        return True
    return retry_number(context) == 0 and run.root_run_id in (None, run.run_id)


def root_run_id(context: Any) -> str:
    """Return the id that re-executions share; a direct call in a test has no run, and an id of its own."""
    try:
        # The context of an output knows its run by its step only.
        run = context.step_context.dagster_run if isinstance(context, dg.OutputContext) else context.run
    except dg.DagsterError:
        return f"direct-{uuid.uuid4().hex}"
    root: str = run.root_run_id or run.run_id
    return root


def work_name(root_run_id: str, output: Sequence[str], partitions: Sequence[str] = (), mapping_key: str = "") -> str:
    """Return the name of what one step publishes; two steps never share one, and the tries of a step do.

    Args:
        root_run_id: of the run.
        output: path of the asset, or step and name of the output.
        partitions: the keys of the partitions that the step is about.
        mapping_key: of a dynamic output.
    """
    return json.dumps([root_run_id, list(output), sorted(partitions), mapping_key], separators=(",", ":"))
