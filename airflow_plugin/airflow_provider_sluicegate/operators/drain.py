"""Drain a queue inside a task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate import draining
from airflow_provider_sluicegate.compat import AirflowException
from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import ConsumerOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import DrainSummary
    from sluicegate.consumer import QueueConsumer
    from sluicegate.draining.arguments import OnFailures, Until
    from sluicegate.draining.handler import BatchFormat
    from sluicegate.draining.local import WorkerKind
    from sluicegate.tables.columns import Schema

__all__ = ["RedisQueueDrainOperator"]

_GRACE_SECONDS = 2.0  # for the current chunks of threads; Airflow kills the process after 5 s
_MODULES_OF_DAG_FILES = "unusual_prefix_"


class RedisQueueDrainOperator(ReportsLineage, ConsumerOperator):
    """
    Claim messages, call a function with them, and settle them, until the queue is empty or another end is reached.

    The function gets a batch and optionally a :class:`sluicegate.DrainContext`: ``process(batch)`` or
    ``process(batch, ctx)``. Messages are acked when it returns. When it raises, the batch is bisected until the failing
    messages are alone; they are nacked, or buried at their last delivery, and the others are acked. The summary in XCom
    holds counts and the ids of failed messages, and never a payload; it is there also when the task fails.

    **Delivery semantics.** Delivery is at least once. A heartbeat keeps each lease while the function works. The leases
    are named after the DAG, task, run and map index, without the try number: a retry takes over what a killed try held,
    repeats nothing that it finished, and works on what failed. When Airflow stops the task, the current batches are
    released at once, uncounted, and delivered again. If some messages failed, the task fails after all others are done,
    with their number and the first places; its retry gets the failed messages that are due by then. A task that is
    cleared counts what its run has finished and drains what has arrived since.

    .. code-block:: python

        RedisQueueDrainOperator(task_id="work", queue_name="orders", process="orders.jobs:store", workers=4)

    :param process: a function, or its name as ``"package.module:function"``, which is imported when the task runs.
        Worker processes import the function too, so it cannot be in the DAG file then.
    :param workers: how many work at the same time, each with its own leases; one works in the task's own thread.
    :param worker_kind: ``"process"`` or ``"thread"``, for several workers. Processes need a connection whose password
        is in an environment variable.
    :param batch_size: the most messages of a batch, from 1 to 10,000.
    :param lease_seconds: how long a lease outlives its worker.
    :param batch_format: ``"messages"``, ``"arrow"`` or ``"pandas"``.
    :param schema: the fields of the JSON payloads, for ``"arrow"`` and ``"pandas"``.
    :param mode: for payloads that do not fit the ``schema``, in any case. ``"FAILFAST"``: their messages fail.
        ``"PERMISSIVE"``: the fields that do not fit are null, and a declared string column ``_corrupt_record`` holds
        the payload. ``"BURY"``: they become dead letters, which fail no task, and the function gets the others.
    :param column_name_of_corrupt_record: another name for that column.
    :param until: ``"empty"``, ``"deadline"`` (waits for messages until ``deadline_seconds`` have passed), or a number
        of messages at most.
    :param deadline_seconds: how long batches are claimed; the current one is finished.
    :param on_failures: ``"raise"``: messages that the function failed on fail the task after all others are done;
        ``"return"``: the task succeeds, its log and its XCom list them, and they return to the queue or are buried.
    :param skip_if_empty: skip the task, and so what depends on it, when there was no message.
    :param progress_interval_seconds: the time between two lines of progress in the log.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`.
    """

    shallow_copy_attrs: Sequence[str] = ("process",)
    ui_color = "#cfe8d8"
    lineage_direction = "input"

    def __init__(
        self,
        *,
        process: Callable[..., object] | str,
        workers: int = 1,
        worker_kind: WorkerKind = "process",
        batch_size: int = 1000,
        lease_seconds: float = 60,
        batch_format: BatchFormat | None = None,
        schema: Schema | None = None,
        mode: str = "FAILFAST",
        column_name_of_corrupt_record: str | None = None,
        until: Until = "empty",
        deadline_seconds: float | None = None,
        on_failures: OnFailures = "raise",
        skip_if_empty: bool = False,
        progress_interval_seconds: float = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.process = process
        self.workers = workers
        self.worker_kind = worker_kind
        self.batch_size = batch_size
        self.lease_seconds = lease_seconds
        self.batch_format = batch_format
        self.schema = schema
        self.mode = mode
        self.column_name_of_corrupt_record = column_name_of_corrupt_record
        self.until = until
        self.deadline_seconds = deadline_seconds
        self.on_failures = on_failures
        self.skip_if_empty = skip_if_empty
        self.progress_interval_seconds = progress_interval_seconds
        self._draining: QueueConsumer | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """
        Drain the queue.

        :return: the summary.
        :raises AirflowFailException: an argument or the connection cannot work as given.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set.
        :raises DrainFailedError: the function failed on a message at least, and ``on_failures`` is ``"raise"``.
        """
        return draining.execute(self, context, self._drain)

    def on_kill(self) -> None:
        """Release the current batches and end the drain: Airflow stops this task."""
        queue = self._draining
        if queue is None:
            return
        self._draining = None
        self.log.warning("%s: the task is stopped; its current batches are released", self.place)
        queue.shutdown(_GRACE_SECONDS)
        raise _Stopped

    def handler(self, context: Context) -> Callable[..., object]:
        """Return the function, for worker processes only one that they can import."""
        from sluicegate.errors import ConfigurationError

        process = draining.handler_of(self.process)
        if isinstance(self.process, str):
            return process
        function: Any = process
        while isinstance(function, functools.partial):
            function = function.func
        module = getattr(function, "__module__", "")
        if self.workers != 1 and self.worker_kind == "process" and module.startswith(_MODULES_OF_DAG_FILES):
            raise ConfigurationError(
                "process is defined in the DAG file, which worker processes cannot import; move it to a module that "
                "they can import and give 'package.module:function', or use worker_kind='thread'"
            )
        return process

    def _drain(self, hook: RedisQueueHook, queue: QueueConsumer, context: Context) -> DrainSummary:
        from sluicegate import drain
        from sluicegate.draining.progress import ProgressLines

        process = self.handler(context)
        try:
            self._draining = queue
            return drain(
                queue,
                process,
                workers=self.workers,
                worker_kind=self.worker_kind,
                batch_size=self.batch_size,
                lease_seconds=self.lease_seconds,
                run_id=run_id_of(context),
                remember_empty=False,  # a task that is cleared drains what has arrived since
                batch_format=self.batch_format,
                schema=self.schema,
                mode=self.mode,
                column_name_of_corrupt_record=self.column_name_of_corrupt_record,
                until=self.until,
                deadline_seconds=self.deadline_seconds,
                on_failures=self.on_failures,
                progress=ProgressLines(self.log.info, self.progress_interval_seconds),
            )
        except _Stopped:
            hook.close()
            raise AirflowException(
                f"{self.place}: the task was stopped; what it acked is done, the rest was released, and trying "
                "again is safe"
            ) from None
        finally:
            self._draining = None


class _Stopped(BaseException):
    """Ends a drain from a signal handler; no handler of messages catches it."""
