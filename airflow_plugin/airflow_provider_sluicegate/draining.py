"""What drain operators have in common: the end in the task's log, and the summary as an XCom without payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

from airflow_provider_sluicegate.compat import AirflowSkipException
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import DrainSummary
    from sluicegate.consumer import QueueConsumer
    from sluicegate.place import Place

__all__ = [
    "Log",
    "execute",
    "handler_of",
    "log_end",
    "log_failures",
    "nothing_yet",
    "push_report",
    "report_of",
    "why_nothing",
]

_MAX_FAILURES = 20


class Log(Protocol):
    """Declares the part of an operator's logger that a drain uses."""

    def info(self, event: str, *args: Any) -> Any: ...
    def warning(self, event: str, *args: Any) -> Any: ...
    def error(self, event: str, *args: Any) -> Any: ...


class DrainOperator(Protocol):
    """Declares what :func:`execute` uses of an operator."""

    redis_conn_id: str
    queue_options: Mapping[str, Any] | None
    skip_if_empty: bool
    do_xcom_push: bool
    lineage_count: int | None

    @property
    def place(self) -> Place: ...
    @property
    def log(self) -> Log: ...


def execute(
    operator: DrainOperator,
    context: Mapping[str, Any],
    drain: Callable[[RedisQueueHook, QueueConsumer, Any], DrainSummary | None],
) -> dict[str, Any] | None:
    """
    Drain an operator's queue, report in its log, and return its XCom.

    :param operator: of the task.
    :param context: of the task instance.
    :param drain: drains the queue; gets the hook, the queue and the context. It returns None if the summary is where
        the task cannot read it, and then so does this function.
    :raises AirflowFailException: an argument or the connection cannot work as given.
    :raises AirflowSkipException: there was no message, and the operator has ``skip_if_empty``.
    :raises DrainFailedError: the function failed on a message at least; the report is stored.
    """
    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from airflow_provider_sluicegate.stats import emit_drain
    from sluicegate.errors import DrainFailedError

    with fail_at_once():
        hook = RedisQueueHook(operator.redis_conn_id)
        place = operator.place
        queue = hook.open_place(place, **options_of(operator.queue_options))
        try:
            # Closing the hook releases leases. After any other error they stay, so that a retry takes them over.
            summary = drain(hook, queue, context)
        except DrainFailedError as failed:
            partial = cast("DrainSummary", failed.summary)
            operator.lineage_count = partial.acked
            log_failures(operator.log, place, partial)
            push_report(context, operator, partial)
            if not _may_be_retried(context):  # the summary of a retry has what this try did
                emit_drain(place, partial)
            hook.close()
            raise
        if summary is not None:
            operator.lineage_count = summary.acked
            log_failures(operator.log, place, summary)  # there are some with on_failures="return"
            log_end(operator.log, place, queue, summary)
            emit_drain(place, summary)
        hook.close()
    if summary is None:
        operator.log.warning(
            "%s: the drain has ended, and its summary is in the output of its driver, which ran elsewhere", place
        )
        return None
    if operator.skip_if_empty and summary.claimed == 0:
        push_report(context, operator, summary)
        raise AirflowSkipException(f"{place} had no message")
    return report_of(summary)


def _may_be_retried(context: Mapping[str, Any]) -> bool:
    instance = context["ti"]
    return bool(getattr(instance, "try_number", 1) <= getattr(instance, "max_tries", 0))


def handler_of(process: object) -> Callable[..., object]:
    """
    Return the function that an operator's ``process`` is or names.

    :raises ConfigurationError: it is neither a function nor the name of one that can be imported here.
    """
    from sluicegate.draining.handler import import_handler
    from sluicegate.errors import ConfigurationError

    if isinstance(process, str):
        return import_handler(process)
    if not callable(process):
        raise ConfigurationError(
            "process must be a function of a batch, or its name as 'package.module:function', not "
            f"{type(process).__name__}"
        )
    return cast("Callable[..., object]", process)


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


def log_failures(log: Log, place: Place, summary: DrainSummary) -> None:
    """Log where the handler failed, and on which messages."""
    failures = summary.failures
    for failure in failures[:_MAX_FAILURES]:
        log.error(
            "%s: %s in %s, on %d messages of partition %d, chunk %d%s: %s",
            *(place, failure.error_type, failure.where, failure.messages, failure.partition, failure.chunk),
            ", now dead letters" if failure.buried else "",
            ", ".join(failure.message_ids) or "ids unknown",
        )
    if len(failures) > _MAX_FAILURES:
        log.error("%s: %d more failures are not listed", place, len(failures) - _MAX_FAILURES)


def log_end(log: Log, place: Place, queue: QueueConsumer, summary: DrainSummary) -> None:
    """Log what a drain did, and if that was nothing, why."""
    log.info(
        "%s: %d messages acked, %d returned, %d buried, in %.1f s",
        *(place, summary.acked, summary.returned, summary.buried, summary.seconds),
    )
    if any(partition.ended == "paused" for partition in summary.partitions):
        log.warning("%s is paused; resume it, and run the task again for what is left", place)
    elif summary.claimed == 0:
        log.info("%s: there was nothing to drain: %s", place, why_nothing(queue))


def nothing_yet(queue: QueueConsumer) -> str:
    """Return what a queue without messages may mean."""
    kind, names = ("queue", "queue_name") if queue.group_name is None else ("stream", "stream, group")
    return f"nobody has published to this {kind} yet; if that is wrong, check {names} and redis_conn_id"


def why_nothing(queue: QueueConsumer) -> str:
    """Return why a claim got nothing, such as ``3 in flight until 12:04:10``."""
    from sluicegate.gates import why_not_ready

    depth = queue.depth()
    if depth.published_total == 0:
        return nothing_yet(queue)
    return why_not_ready(depth, datetime.now().astimezone()) or "messages have arrived since"
