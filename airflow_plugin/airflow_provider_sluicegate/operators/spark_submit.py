"""Drain a queue with a driver that ``spark-submit`` starts; needs Airflow's Spark provider."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate import draining
from airflow_provider_sluicegate.compat import AirflowOptionalProviderFeatureException
from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import ConsumerOperator

try:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "SparkSubmitRedisQueueDrainOperator needs Airflow's Spark provider: install "
        "apache-airflow-providers-apache-spark, or use SparkRedisQueueDrainOperator, which needs pyspark only"
    ) from error

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import DrainSummary
    from sluicegate.consumer import QueueConsumer
    from sluicegate.draining.arguments import OnFailures, Until
    from sluicegate.draining.handler import BatchFormat

__all__ = ["SparkSubmitRedisQueueDrainOperator"]


class SparkSubmitRedisQueueDrainOperator(ReportsLineage, ConsumerOperator, SparkSubmitOperator):
    """
    Claim messages, call a function with them, and settle them, in a Spark application that ``spark-submit`` starts.

    The application is the driver program of this package, ``sluicegate/spark/submit.py``. It gets the queue, the
    options and the name of the function on its command line, which the machine and the cluster show to everybody, so
    a connection that holds its password is refused. The driver and the executors need the package and the function's
    module: installed, or by ``py_files``.

    Where the driver runs on the worker's machine (a local master, or ``deploy_mode="client"``), the XCom is the
    summary, as for :class:`~airflow_provider_sluicegate.operators.drain.RedisQueueDrainOperator`, also when the task
    fails. In cluster mode the driver prints it into its own log, the XCom is None, and ``skip_if_empty`` skips nothing.

    **Delivery semantics.** Delivery is at least once. The leases are named after the DAG, task, run and map index,
    without the try number: a retry takes over what a killed try held, repeats nothing that it finished, and works on
    what failed. When Airflow stops the task, ``spark-submit`` is killed as the parent does it; the batches that were
    held return when their leases expire, or at once to a retry. In cluster mode the driver of a killed task may
    continue: the parent's ``durable`` lets the retry wait for it instead of starting a second one under the same
    leases.

    .. code-block:: python

        SparkSubmitRedisQueueDrainOperator(
            task_id="work", queue_name="orders", process="orders.jobs:store", conn_id="spark_default"
        )

    :param process: the name of a function, ``"package.module:function"``, which the driver imports. (templated)
    :param partitions: how many work at the same time, each with its own leases; None for one per core.
    :param batch_size: the most messages of a batch, from 1 to 10,000.
    :param lease_seconds: how long a lease outlives its worker.
    :param batch_format: ``"messages"``, ``"arrow"`` or ``"pandas"``.
    :param schema: the fields of the JSON payloads as DDL, for ``"arrow"`` and ``"pandas"``.
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
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`. The password of the connection is in an
        environment variable of the driver and the executors. Callbacks among ``queue_options`` are not called there.
        Further arguments are those of ``SparkSubmitOperator``, such as ``conn_id``, ``conf``, ``py_files`` and
        ``env_vars``. ``application`` is a copy of the driver program, for a cluster that does not have it at the same
        path.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *ConsumerOperator.template_fields,
        "process",
    )
    ui_color = "#f5dcc4"
    lineage_direction = "input"

    def __init__(
        self,
        *,
        process: str,
        partitions: int | None = None,
        batch_size: int = 1000,
        lease_seconds: float = 60,
        batch_format: BatchFormat | None = None,
        schema: str | None = None,
        mode: str = "FAILFAST",
        column_name_of_corrupt_record: str | None = None,
        until: Until = "empty",
        deadline_seconds: float | None = None,
        on_failures: OnFailures = "raise",
        skip_if_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.process = process
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

    def execute(self, context: Context) -> dict[str, Any] | None:  # type: ignore[override]
        """
        Submit the application and wait for its end.

        :return: the summary; None if the driver ran on another machine.
        :raises AirflowFailException: an argument or the connection of the queue cannot work as given.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set.
        :raises DrainFailedError: the function failed on a message at least, and ``on_failures`` is ``"raise"``.
        """
        return draining.execute(self, context, self._drain)

    def _drain(self, hook: RedisQueueHook, queue: QueueConsumer, context: Context) -> DrainSummary | None:
        from sluicegate.errors import ConfigurationError, DrainFailedError
        from sluicegate.spark import submit

        hook.check_serializable(queue)
        with TemporaryDirectory(prefix="sluicegate-") as folder:
            file = Path(folder, "summary.json")  # its folder exists on this machine only
            self.application_args = self._arguments(queue, run_id_of(context), file)
            self.application = self.application or submit.application()
            try:
                super().execute(context)
            except Exception as error:
                outcome = submit.read_outcome(file)
                if outcome.refused is not None:
                    raise ConfigurationError(outcome.refused) from error
                if outcome.summary is None or not outcome.summary.failures:
                    raise
                raise DrainFailedError(
                    f"{self.place}: {outcome.summary.describe_failures()}", summary=outcome.summary
                ) from error
            return submit.read_outcome(file).summary

    def _arguments(self, queue: QueueConsumer, run_id: str, file: Path) -> list[str]:
        from sluicegate.errors import ConfigurationError
        from sluicegate.spark import submit

        if not isinstance(self.process, str):
            raise ConfigurationError(
                "process must be the name of a function, 'package.module:function', because the driver is another "
                f"process and imports it; it is a {type(self.process).__name__}"
            )
        if self.schema is not None and not isinstance(self.schema, str):
            raise ConfigurationError(
                "schema must be a DDL text such as 'order_id string, amount double', because it is part of a command "
                f"line; it is a {type(self.schema).__name__}"
            )
        return submit.arguments(
            queue,
            self.process,
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
            summary_file=str(file),
        )
