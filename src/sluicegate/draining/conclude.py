"""The end of a drain: the reports of its partitions become a summary, or an error that carries it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from sluicegate.draining.arguments import OnFailures
from sluicegate.draining.summary import DrainSummary, PartitionSummary
from sluicegate.errors import DrainFailedError, RedisMessageQueueError
from sluicegate.log_lines import log_line

__all__ = ["conclude"]

_log = logging.getLogger("sluicegate")


def conclude(
    queue_name: str,
    run_id: str,
    reports: Iterable[PartitionSummary],
    seconds: float,
    count_ready: Callable[[], int] | None,
    on_failures: OnFailures,
    other_driver: str | None = None,
) -> DrainSummary:
    """Make the summary of a drain.

    Args:
        queue_name: of the queue.
        run_id: of the drain.
        reports: one per partition.
        seconds: how long the drain took.
        count_ready: counts the ready messages, for a drain whose run id may be that of an earlier one; None otherwise.
        on_failures: `return` leaves messages that the handler failed on to the caller, in the summary.
        other_driver: another driver that was seen, as the summary names it.

    Raises:
        DrainFailedError: the handler failed on a message at least and `on_failures` is `raise`, or a worker was lost.
    """
    parts = sorted(reports, key=lambda part: part.partition)
    summary = DrainSummary(
        run_id=run_id,
        queue=queue_name,
        partitions=tuple(parts),
        seconds=round(seconds, 3),
        skipped_ready=0 if count_ready is None else _skipped(queue_name, run_id, parts, count_ready),
        other_driver=other_driver,
    )
    found = [summary.describe_failures()] if summary.failures and on_failures == "raise" else []
    lost = [str(part.partition) for part in parts if part.ended == "lost"]
    if lost:
        found.append(
            f"worker processes were killed again and again, the last time in partition {', '.join(lost)}; what they "
            "held returns to the queue when its lease expires, at once for a drain with the same run_id"
        )
    if found:
        raise DrainFailedError(f"drain {run_id!r} of queue {queue_name!r}: {'; '.join(found)}", summary=summary)
    return summary


def _skipped(queue_name: str, run_id: str, parts: Sequence[PartitionSummary], count_ready: Callable[[], int]) -> int:
    """Return how many ready messages this call did not claim because of a remembered answer."""
    skipping = sum(part.remembered_empty for part in parts)
    if not skipping:
        return 0
    try:
        ready = count_ready()
    except RedisMessageQueueError as error:  # the work is done, and its result must not be lost
        _log.warning("drain %r of queue %r could not count what it left: %s", run_id, queue_name, error)
        return 0
    if ready:
        log_line(
            logging.WARNING,
            f"drain {run_id!r} of queue {queue_name!r} left {ready} ready messages: {skipping} of {len(parts)} "
            "partitions found the queue empty in an earlier call with this run_id, and a repeated call takes that "
            "answer as its own for ten minutes. Give each scheduled run a run_id of its own, which only its retries "
            "share, or leave run_id out",
        )
    return ready
