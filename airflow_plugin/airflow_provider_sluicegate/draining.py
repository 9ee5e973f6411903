"""What drain operators have in common: progress in the task's log, and the summary as an XCom without payloads."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluicegate import DrainProgress, DrainSummary, RedisMessageQueue

__all__ = ["Log", "ProgressLines", "log_end", "log_failures", "push_report", "report_of", "why_nothing"]

_MAX_FAILURES = 20


class Log(Protocol):
    """Declares the part of an operator's logger that a drain uses."""

    def info(self, event: str, *args: Any) -> Any: ...
    def warning(self, event: str, *args: Any) -> Any: ...
    def error(self, event: str, *args: Any) -> Any: ...


class ProgressLines:
    """
    Writes the progress of a drain to the task's log, for the argument ``progress`` of ``drain``.

    :param log: of the operator.
    :param interval_seconds: the time between two lines.
    """

    def __init__(self, log: Log, interval_seconds: float) -> None:
        self._log = log
        self._interval_seconds = interval_seconds
        self._next = interval_seconds

    def __call__(self, progress: DrainProgress) -> None:
        if progress.seconds < self._next:
            return
        self._next = progress.seconds + self._interval_seconds
        self._log.info(
            "queue %r: %d messages acked in %.0f s (%.0f/s), %d failed, %d ready, %d in flight",
            *(progress.queue, progress.acked, progress.seconds, progress.per_second, progress.failed),
            *(progress.ready, progress.in_flight),
        )


def report_of(summary: DrainSummary) -> dict[str, Any]:
    """
    Return a summary as an XCom holds it: counts, ids, and where the handler failed.

    The texts of the handler's errors are left out, because they may quote a payload. At most twenty failures are listed
    under ``failures``; ``failed`` counts all of them.
    """
    report = summary.to_dict()
    report["failures"] = report["failures"][:_MAX_FAILURES]
    for failure in report["failures"]:
        del failure["error"]
    return report


def push_report(context: Mapping[str, Any], operator: Any, summary: DrainSummary) -> None:
    """Store the report of a drain that is about to fail or skip its task; Airflow stores only what a task returns."""
    if operator.do_xcom_push:
        context["ti"].xcom_push(key="return_value", value=report_of(summary))


def log_failures(log: Log, summary: DrainSummary) -> None:
    """Log where the handler failed, and on which messages."""
    failures = summary.failures
    for failure in failures[:_MAX_FAILURES]:
        log.error(
            "queue %r: %s in %s, on %d messages of partition %d, chunk %d%s: %s",
            *(summary.queue, failure.error_type, failure.where, failure.messages, failure.partition, failure.chunk),
            ", now dead letters" if failure.buried else "",
            ", ".join(failure.message_ids) or "ids unknown",
        )
    if len(failures) > _MAX_FAILURES:
        log.error("queue %r: %d more failures are not listed", summary.queue, len(failures) - _MAX_FAILURES)


def log_end(log: Log, queue: RedisMessageQueue, summary: DrainSummary) -> None:
    """Log what a drain did, and if that was nothing, why."""
    log.info(
        "queue %r: %d messages acked, %d returned, %d buried, in %.1f s",
        *(summary.queue, summary.acked, summary.returned, summary.buried, summary.seconds),
    )
    if any(partition.ended == "paused" for partition in summary.partitions):
        log.warning("queue %r is paused; resume it, and run the task again for what is left", summary.queue)
    elif summary.claimed == 0:
        log.info("queue %r: there was nothing to drain: %s", summary.queue, why_nothing(queue))


def why_nothing(queue: RedisMessageQueue) -> str:
    """Return why a claim got nothing, such as ``3 in flight until 12:04:10``."""
    from sluicegate.gates import why_not_ready

    depth = queue.depth()
    if depth.published_total == 0:
        return "nobody has published to this queue yet; if that is wrong, check queue_name and redis_conn_id"
    return why_not_ready(depth, datetime.now().astimezone()) or "messages have arrived since"
