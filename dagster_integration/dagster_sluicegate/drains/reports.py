"""What a drain reports to Dagster, also out of another process, by Dagster Pipes.

Nothing here needs Dagster: a driver that another machine starts has `dagster-pipes` only, and gives the context that
`open_dagster_pipes()` returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dagster_sluicegate.places import names_of, place_of
from sluicegate.consumer import QueueConsumer
from sluicegate.draining.summary import DrainSummary
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.place import Place

__all__ = [
    "RUN_ID",
    "Pipes",
    "failure_rows",
    "figures_of",
    "log_failures",
    "partition_rows",
    "report_drain",
    "run_id_of",
]

RUN_ID = "sluicegate/run_id"
_MAX_FAILURES = 20
_TYPES = {int: "int", float: "float", str: "string"}  # as Dagster infers them for its own tables


class Pipes(Protocol):
    """The part of a `PipesContext` that a drain uses."""

    @property
    def extras(self) -> Mapping[str, Any]: ...
    @property
    def log(self) -> logging.Logger: ...
    def report_asset_materialization(self, metadata: Mapping[str, Any] | None = None) -> None: ...


def run_id_of(pipes: Pipes) -> str:
    """Return the id under which this process drains: a retry of the step and a re-execution of its run get it again.

    Args:
        pipes: the context of `open_dagster_pipes()`.

    Raises:
        ConfigurationError: the step did not send it.
    """
    run_id = pipes.extras.get(RUN_ID)
    if not isinstance(run_id, str) or not run_id:
        raise ConfigurationError(
            f"the extras of Dagster Pipes hold no {RUN_ID!r}; the asset that starts this process must pass "
            "extras=queue_pipes_extras(context)"
        )
    return run_id


def report_drain(pipes: Pipes, queue: QueueConsumer, drain: Callable[[str], DrainSummary]) -> DrainSummary:
    """Drain a queue in a process that Dagster started, and report the materialization of its asset with the counts.

    The drain acks, here, where the result was written; Dagster only shows it. Dagster demands a materialization of
    every process that ends well, so one that found no message any more reports one of 0 rows. When messages failed,
    the log has their ids and the places of the errors, and the error ends the process, so that the step fails.

    Args:
        pipes: the context of `open_dagster_pipes()`.
        queue: the queue or group that is drained, from which the number of messages that are still ready is read.
        drain: called with the id of the run; drains and returns the summary.

    Returns:
        The summary.

    Raises:
        ConfigurationError: the step did not send the id of the run.
        DrainFailedError: the handler failed on a message at least.

    Example:
        .. code-block:: python

            import os

            from dagster_pipes import open_dagster_pipes
            from dagster_sluicegate import report_drain
            from sluicegate import RedisMessageQueue, drain


            def store(messages, ctx):
                ctx.output_file("build/orders", ".json").write_text(repr([message.json() for message in messages]))


            if __name__ == "__main__":
                queue = RedisMessageQueue("orders", url=os.environ["REDIS_URL"])
                with open_dagster_pipes() as pipes:
                    report_drain(pipes, queue, lambda run_id: drain(queue, store, run_id=run_id, remember_empty=False))
    """
    place = place_of(queue)
    try:
        summary = drain(run_id_of(pipes))
    except DrainFailedError as failed:
        if isinstance(failed.summary, DrainSummary):
            log_failures(pipes.log.error, failed.summary, place)
        raise
    if summary.claimed == 0:
        pipes.log.info("There was nothing to drain from %s.", place)
    rows = partition_rows(summary)
    columns = [{"name": name, "type": _TYPES[type(value)]} for name, value in rows[0].items()]
    table = {"type": "table", "raw_value": {"records": rows, "schema": columns}}
    pipes.report_asset_materialization(
        {**figures_of(summary, place, queue.depth().ready), "sluicegate/partitions": table}
    )
    return summary


def figures_of(summary: DrainSummary, place: Place, ready_left: int) -> dict[str, Any]:
    """Return the counts of a drain under the names of Dagster's metadata; they include earlier tries of the run."""
    return {
        "dagster/row_count": summary.acked,
        **names_of(place),
        "sluicegate/batches": sum(partition.chunks for partition in summary.partitions),
        "sluicegate/claimed": summary.claimed,
        "sluicegate/acked": summary.acked,
        "sluicegate/returned": summary.returned,
        "sluicegate/buried": summary.buried,
        "sluicegate/failed": summary.failed,
        "sluicegate/taken_over": summary.taken_over,
        "sluicegate/bytes": summary.bytes,
        "sluicegate/seconds": summary.seconds,
        "sluicegate/ready_left": ready_left,
    }


def partition_rows(summary: DrainSummary) -> list[dict[str, str | int | float]]:
    """Return what each partition did, as the rows of a table."""
    return [
        {
            "partition": partition.partition,
            "batches": partition.chunks,
            "claimed": partition.claimed,
            "acked": partition.acked,
            "returned": partition.returned,
            "buried": partition.buried,
            "failed": partition.failed,
            "taken_over": partition.taken_over,
            "seconds": partition.seconds,
            "ended": partition.ended,
        }
        for partition in summary.partitions
    ]


def failure_rows(summary: DrainSummary) -> list[dict[str, str | int | bool]]:
    """Return where the handler failed, as the rows of a table, without the texts of its errors, which may quote data.

    At most twenty failures are listed; the count of failed messages covers all of them.
    """
    return [
        {
            "partition": failure.partition,
            "batch": failure.chunk,
            "messages": failure.messages,
            "message_ids": ", ".join(failure.message_ids),
            "error": failure.error_type,
            "where": failure.where,
            "buried": failure.buried,
        }
        for failure in summary.failures[:_MAX_FAILURES]
    ]


def log_failures(write: Callable[[str], object], summary: DrainSummary, place: Place) -> None:
    """Log where the handler failed, and on which messages, without the texts of its errors."""
    for row in failure_rows(summary):
        write(
            f"{place}: {row['error']} in {row['where']}, on {row['messages']} messages of partition "
            f"{row['partition']}, batch {row['batch']}{', now dead letters' if row['buried'] else ''}: "
            f"{row['message_ids'] or 'ids unknown'}"
        )
    if len(summary.failures) > _MAX_FAILURES:
        write(f"{place}: {len(summary.failures) - _MAX_FAILURES} more failures are not listed")
