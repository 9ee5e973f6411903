"""Drain a queue with Spark inside a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    from sluicegate.spark.jobs import SparkJob
    from sluicegate.tables.columns import Schema

__all__ = ["SparkRedisQueueDrainOperator"]


class SparkRedisQueueDrainOperator(ReportsLineage, ConsumerOperator):
    """
    Claim messages, call a function with them, and settle them, in the executors of a Spark session.

    The session is local, on the master of a Spark connection, or on Spark Connect, decided as
    :class:`~airflow.providers.apache.spark.operators.spark_pyspark.PySparkOperator` decides. The operator stops the
    session at the end if it made it. Only a ``conn_id`` of type ``spark_connect`` needs the Spark provider.

    The function gets a batch and optionally a :class:`sluicegate.DrainContext`, as for
    :class:`~airflow_provider_sluicegate.operators.drain.RedisQueueDrainOperator`, and may be defined in the DAG file.
    The summary in XCom holds counts and the ids of failed messages, and never a payload; it is there also when the task
    fails.

    **Delivery semantics.** Delivery is at least once. A heartbeat keeps each lease while the function works. The leases
    are named after the DAG, task, run and map index, without the try number: a retry takes over what a killed try held,
    repeats nothing that it finished, and works on what failed. When Airflow stops the task, its Spark jobs are
    cancelled, which kills their Python workers; the batches that they held return when their leases expire, or at once
    to a retry. If some messages failed, the task fails after all others are done. A task that is cleared counts what
    its run has finished and drains what has arrived since.

    .. code-block:: python

        SparkRedisQueueDrainOperator(task_id="work", queue_name="orders", process=store, conn_id="spark_default")

    :param process: a function, or its name as ``"package.module:function"``, which is imported when the task runs. It
        is serialized for the executors, and must not hold a session, a queue or a client.
    :param conn_id: a connection of type ``spark`` (its host is the master) or ``spark_connect``; None for a local
        master. The entries of its extra are configuration. (templated)
    :param config_kwargs: configuration of the session, such as ``{"spark.executor.memory": "2g"}``; it has precedence
        over the connection. (templated)
    :param partitions: how many work at the same time, each with its own leases; None for one per core. Give a number if
        the cores differ between tries, so that a retry finds every lease.
    :param batch_size: the most messages of a batch, from 1 to 10,000.
    :param lease_seconds: how long a lease outlives its worker.
    :param batch_format: ``"messages"``, ``"arrow"`` or ``"pandas"``.
    :param schema: the fields of the JSON payloads, for ``"arrow"`` and ``"pandas"``: a DDL text, a ``StructType`` or an
        Arrow schema.
    :param mode: for payloads that do not fit the ``schema``, in any case. ``"FAILFAST"``: their messages fail.
        ``"PERMISSIVE"``: the fields that do not fit are null, and a declared string column ``_corrupt_record`` holds
        the payload. ``"BURY"``: they become dead letters, which fail no task, and the function gets the others.
    :param column_name_of_corrupt_record: another name for that column.
    :param until: ``"empty"``, ``"deadline"`` (waits for messages until ``deadline_seconds`` have passed), or a number
        of messages at most.
    :param deadline_seconds: how long batches are claimed; the current ones are finished.
    :param on_failures: ``"raise"``: messages that the function failed on fail the task after all others are done;
        ``"return"``: the task succeeds, its log and its XCom list them, and they return to the queue or are buried.
    :param skip_if_empty: skip the task, and so what depends on it, when there was no message.
    :param progress_interval_seconds: the time between two lines of progress in the log.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`. The
        password of the connection is in an environment variable of the executors; callbacks among ``queue_options``
        are not called there.
    """

    template_fields: Sequence[str] = (*ConsumerOperator.template_fields, "conn_id", "config_kwargs")
    shallow_copy_attrs: Sequence[str] = ("process",)
    ui_color = "#f5dcc4"
    lineage_direction = "input"

    def __init__(
        self,
        *,
        process: Callable[..., object] | str,
        conn_id: str | None = None,
        config_kwargs: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        batch_size: int = 1000,
        lease_seconds: float = 60,
        batch_format: BatchFormat | None = None,
        schema: str | Schema | None = None,
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
        self.conn_id = conn_id
        self.config_kwargs = config_kwargs
        self.partitions = partitions
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
        self._job: SparkJob[DrainSummary] | None = None

    def execute(self, context: Context) -> dict[str, Any] | None:
        """
        Drain the queue.

        :return: the summary.
        :raises AirflowFailException: an argument, a connection or what is installed cannot work as given.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set.
        :raises DrainFailedError: the function failed on a message at least, and ``on_failures`` is ``"raise"``.
        """
        return draining.execute(self, context, self._drain)

    def on_kill(self) -> None:
        """Cancel the drain's Spark jobs and end the task: Airflow stops it."""
        if self._job is None:
            return
        self._job = None
        self.log.warning("%s: the task is stopped; its Spark jobs are cancelled", self.place)
        raise _Stopped

    def _drain(self, hook: RedisQueueHook, queue: QueueConsumer, context: Context) -> DrainSummary:
        from airflow_provider_sluicegate.spark_session import opened_session, session_options
        from sluicegate.spark.jobs import SparkJob
        from sluicegate.tables.misfits import check_mode

        check_mode(self.mode, self.column_name_of_corrupt_record, has_schema=self.schema is not None)
        process = draining.handler_of(self.process)
        hook.check_serializable(queue)
        options = session_options(self.conn_id, self.config_kwargs, f"{self.dag_id}-{self.task_id}")
        job: SparkJob[DrainSummary] = SparkJob()
        self._job = job
        try:
            return job.run(opened_session(options, self.log), self._work(queue, process, run_id_of(context)))
        except _Stopped:
            raise AirflowException(
                f"{self.place}: the task was stopped; what it acked is done, the rest returns to the queue "
                "when its leases expire, at once to a retry, and trying again is safe"
            ) from None
        finally:
            self._job = None

    def _work(self, queue: QueueConsumer, process: Callable[..., object], run_id: str) -> Callable[[Any], DrainSummary]:
        """Return what drains with a session."""

        def work(session: Any) -> DrainSummary:
            from sluicegate.draining.progress import ProgressLines
            from sluicegate.spark import drain

            return drain(
                session,
                queue,
                process,
                partitions=self.partitions,
                batch_size=self.batch_size,
                lease_seconds=self.lease_seconds,
                run_id=run_id,
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

        return work


class _Stopped(BaseException):
    """Ends the wait for a drain from a signal handler."""
