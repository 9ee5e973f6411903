"""An asset that drains a queue in the executors of a Spark session."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

from dagster_sluicegate.drains.asset import Spec
from dagster_sluicegate.drains.outcome import AssetEvents, OnEmpty, Outcome
from dagster_sluicegate.drains.partitions import RUN_PER_PARTITION, QueuePartitions, partitioned
from dagster_sluicegate.drains.reports import failure_rows, figures_of, log_failures, partition_rows
from dagster_sluicegate.identity import has_work, lease_run_id
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import in_title, names_of, place_of
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import Depth, DrainSummary, checks
from sluicegate.consumer import QueueConsumer
from sluicegate.draining import arguments
from sluicegate.draining.arguments import OnFailures, Until
from sluicegate.draining.handler import BatchFormat, Handler
from sluicegate.draining.progress import ProgressLines
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.spark.jobs import SparkJob
from sluicegate.tables.misfits import check_mode

if TYPE_CHECKING:
    from sluicegate.tables.columns import Schema

__all__ = ["build_spark_queue_drain_asset"]

_CHECKED = ("batch_size", "lease_seconds", "until", "deadline_seconds", "on_failures")


def build_spark_queue_drain_asset(
    *,
    spec: Spec,
    process: Callable[..., Any],
    partitions: int | None = None,
    batch_size: int = 1000,
    lease_seconds: float = 60,
    batch_format: BatchFormat | None = None,
    schema: "str | Schema | None" = None,
    mode: str = "FAILFAST",
    column_name_of_corrupt_record: str | None = None,
    until: Until = "empty",
    deadline_seconds: float | None = None,
    on_failures: OnFailures = "raise",
    on_empty: OnEmpty = "skip",
    queue_asset: dg.AssetKey | str | Sequence[str] | None = None,
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    queue_partitions: QueuePartitions | None = None,
    progress_interval_seconds: float = 10,
    resource_key: str = "queue",
    spark_resource_key: str = "pyspark",
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> dg.AssetsDefinition:
    """Build an asset whose messages are claimed, worked on and acked by the executors of a Spark session.

    Delivery is at-least-once. Each Spark task claims batch after batch, one lease each, calls `process`, and acks the
    batch when it returns, so `process` must have written it durably by then (`ctx.output_file` does). Nothing goes
    through an IO manager. When `process` raises, the batch is split in halves until the failing messages are alone.
    They return to the queue with the error, all others are acked, and the step fails when all partitions have ended,
    with the counts in the failure's metadata.

    The leases are named by the **root** run and the asset: a retry of the step (`RetryPolicy`) and a re-execution of
    the run take over at once what a killed try held, repeat nothing that it finished, and work on what failed. A step
    that Dagster stops cancels its own Spark jobs; what they held returns when the leases expire, or at once to a
    re-execution. For new messages launch a new run.

    Without a ready message the step succeeds, a `LazyPySparkResource` starts no session, and `on_empty` decides what
    is recorded: by default nothing. The materialization carries the counts of `build_queue_drain_asset`, a table of
    Spark's partitions, and never a payload. Its counts include what earlier tries of the run did.

    Args:
        spec: the asset: a full `AssetSpec`, or just its key. It is made skippable. It gets its partitions from
            `queue_partitions`.
        process: a plain function of a batch and optionally a `sluicegate.DrainContext`, as `sluicegate.spark.drain`
            takes it. It is serialized for the executors, so it can use neither Dagster's context nor a resource.
        partitions: how many work at the same time, each with its own leases; None for one per core. Give a number if
            the cores differ between tries, so that a retry finds every lease.
        batch_size: most messages of a batch, from 1 to 10,000; default 1000.
        lease_seconds: how long a lease outlives its worker; default 60.
        batch_format: `"messages"`, `"arrow"` or `"pandas"`; the annotation of the first parameter of `process` selects
            it too.
        schema: the fields of the JSON payloads: a DDL text, a `StructType` or an Arrow schema.
        mode: for payloads that do not fit the schema, in any case. `"FAILFAST"` (the default): their messages fail.
            `"PERMISSIVE"`: the fields that do not fit are null, and a declared string column `_corrupt_record` holds
            the payload. `"BURY"`: they become dead letters, which fail no step, and `process` gets the others.
        column_name_of_corrupt_record: another name for that column.
        until: `"empty"` (the default), `"deadline"` (waits for messages until `deadline_seconds` have passed), or a
            number of messages at most.
        deadline_seconds: how long batches are claimed; the current ones are finished.
        on_failures: `"raise"` (the default): messages that `process` failed on fail the step at its end; `"return"`:
            the step succeeds, and its log and the metadata of its materialization list them.
        on_empty: what a run becomes that finds nothing to claim: `skip` (the default), `observe` or `materialize`, as
            for `build_queue_drain_asset`.
        queue_asset: key of the asset that stands for the queue; the drain then depends on it in the graph.
        queue_name: of another queue on the resource's server; default: the resource's own.
        stream_name: of a stream on that server, instead of a queue.
        group: of the stream, which consumes its messages; default: the resource's own.
        queue_partitions: the partitions of the asset, each with a queue of its own, which replaces these three. They
            are Dagster's; `partitions` are Spark's.
        progress_interval_seconds: the time between two lines of progress in the step's log; default 10.
        resource_key: key of the `RedisQueueResource`. Executors get its URL, so the URL names the variable of its
            password (`?password_env=NAME`), which the executors need too.
        spark_resource_key: key of the session: a `PySparkResource` or `LazyPySparkResource` of `dagster-pyspark`, a
            `SparkSession`, classic or Connect, or any object with a `spark_session`. Workers of a local session run
            the interpreter of the step, unless `PYSPARK_PYTHON` names another one.
        retry_policy: of the step.
        pool: concurrency pool of the step.
        op_tags: of the step.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_pyspark import LazyPySparkResource
            from dagster_sluicegate import RedisQueueResource, build_spark_queue_drain_asset

            folder = "build/orders"


            def write(orders, ctx):
                import pyarrow.parquet as pq

                pq.write_table(orders, ctx.output_file(folder, ".parquet"))  # a retry overwrites its own file


            defs = dg.Definitions(
                assets=[
                    build_spark_queue_drain_asset(
                        spec="orders", process=write, schema="order_id string, amount double"
                    )
                ],
                resources={
                    "queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders"),
                    "pyspark": LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
                },
            )
    """
    asset = spec if isinstance(spec, dg.AssetSpec) else dg.AssetSpec(spec, kinds={"redis", "spark"})
    drain = _SparkDrain(
        name=asset.key.to_user_string(),
        process=process,
        options={
            "partitions": partitions,
            "batch_size": batch_size,
            "lease_seconds": lease_seconds,
            "batch_format": batch_format,
            "schema": schema,
            "mode": mode,
            "column_name_of_corrupt_record": column_name_of_corrupt_record,
            "until": until,
            "deadline_seconds": deadline_seconds,
            "on_failures": on_failures,
        },
        on_empty=on_empty,
        names=(queue_name, stream_name, group),
        queue_partitions=queue_partitions,
        progress_interval_seconds=progress_interval_seconds,
        resource_key=resource_key,
        spark_resource_key=spark_resource_key,
    )
    asset = drain.check(asset).replace_attributes(skippable=True)
    ref = QueueRef.checked(f"drain asset {drain.name!r}", resource_key, queue_name, stream_name, group)
    place = f"{ref.described} in the executors of `{spark_resource_key}`"
    if asset.description is None:
        asset = asset.replace_attributes(description=f"What was drained from {place}.")
    if queue_asset is not None:
        asset = asset.replace_attributes(deps=[*asset.deps, dg.AssetKey.from_coercible(queue_asset)])
    declare = dg.multi_asset(
        specs=[asset],
        name=asset.key.to_python_identifier(),
        description=f"Drains {place}, in batches of {batch_size:,}.",
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        backfill_policy=RUN_PER_PARTITION if queue_partitions is not None else None,
    )
    return declare(takes_resource(resource_key, drain.run, dg.AssetExecutionContext, spark_resource_key))


@dataclass(frozen=True, kw_only=True, slots=True)
class _SparkDrain:
    """The options of a drain asset with Spark, and one execution of it."""

    name: str
    process: Callable[..., Any]
    options: dict[str, Any]
    on_empty: OnEmpty
    names: tuple[str | None, str | None, str | None]
    queue_partitions: QueuePartitions | None
    progress_interval_seconds: float
    resource_key: str
    spark_resource_key: str

    def check(self, asset: dg.AssetSpec) -> dg.AssetSpec:
        """Refuse at build time what no step could work with, and return the asset with its partitions.

        Raises:
            ConfigurationError: names the asset, the option and its value.
        """
        options = self.options
        try:
            if not self.spark_resource_key.isidentifier():
                raise ConfigurationError(
                    f"spark_resource_key must be a Python identifier, not {self.spark_resource_key!r}"
                )
            self._check_handler()
            partitions = options["partitions"]
            if partitions is not None and not arguments.is_count(partitions, arguments.MAX_PARTITIONS):
                raise ConfigurationError(
                    f"partitions must be an int from 1 to {arguments.MAX_PARTITIONS}, or None, not {partitions!r}"
                )
            checked = {name: options[name] for name in _CHECKED}
            arguments.check(**checked, run_id=None, progress=None)
            checks.positive("progress_interval_seconds", self.progress_interval_seconds)
            checks.one_of("on_empty", self.on_empty, get_args(OnEmpty))
            return partitioned(asset, self.queue_partitions, Names(*self.names))
        except (ConfigurationError, TypeError) as error:
            raise ConfigurationError(f"drain asset {self.name!r}: {error}") from None

    def _check_handler(self) -> None:
        """Refuse a function, a schema and a mode that do not go together; only a session parses a DDL text."""
        options = self.options
        schema, mode = options["schema"], (options["mode"], options["column_name_of_corrupt_record"])
        if schema is None or isinstance(schema, str):
            Handler.of(self.process, options["batch_format"])
            check_mode(*mode, has_schema=schema is not None)
        else:
            Handler.of(self.process, options["batch_format"], schema, *mode)

    def run(self, context: dg.AssetExecutionContext, resource: RedisQueueResource, spark: object) -> Iterator[Any]:
        """Drain; yield one result, or what `on_empty` says when there was nothing to do."""
        partitions = self.queue_partitions
        names = Names(*self.names) if partitions is None else partitions.names_of_step(context)
        with QueueRef(self.resource_key, names).open(resource) as queue:
            place = place_of(queue)
            self._check_portable(queue)
            depth = queue.depth()
            if depth.paused:
                context.log.warning(f"{in_title(place)} is paused.")
            summary = self._drain(context, queue, spark) if self._has_work(context, depth) else None
            metadata = {"dagster/row_count": 0, **names_of(place), "sluicegate/ready_left": depth.ready}
            if summary is not None:
                metadata = _metadata(summary, queue)
            metadata |= resource.page_metadata(place)
            outcome = Outcome(value=None, metadata=metadata, check_results=[], paused=depth.paused)
            events = AssetEvents(context.asset_key, self.on_empty)  # the key may have got a prefix
            if summary is not None and summary.claimed:
                yield events.drained(outcome)
                return
            context.log.info(f"Nothing to drain from {place} for drain asset {self.name!r}.")
            yield from events.nothing(outcome)

    def _has_work(self, context: dg.AssetExecutionContext, depth: Depth) -> bool:
        return self.options["until"] == "deadline" or has_work(context, depth)

    def _drain(self, context: dg.AssetExecutionContext, queue: QueueConsumer, spark: object) -> DrainSummary:
        def work(session: Any) -> DrainSummary:
            from sluicegate.spark import drain

            return drain(
                session,
                queue,
                self.process,
                run_id=lease_run_id(context, self.name),
                remember_empty=False,  # a re-execution drains what has arrived since
                progress=ProgressLines(context.log.info, self.progress_interval_seconds),
                **self.options,
            )

        try:
            summary = SparkJob[DrainSummary]().run(self._session(spark), work)
        except DrainFailedError as failed:
            raise self._failure(context, queue, failed) from None
        if summary.failures:
            log_failures(context.log.error, summary, place_of(queue))
        context.log.info(
            f"{in_title(place_of(queue))}: {summary.acked} messages acked, {summary.returned} returned, "
            f"{summary.buried} buried, in {summary.seconds:.1f} s."
        )
        return summary

    def _failure(self, context: dg.AssetExecutionContext, queue: QueueConsumer, failed: DrainFailedError) -> Exception:
        """Return what fails the step, with the counts of what was done."""
        summary = failed.summary
        if not isinstance(summary, DrainSummary):
            return failed
        log_failures(context.log.error, summary, place_of(queue))
        return dg.Failure(description=f"drain asset {self.name!r}: {failed}", metadata=_metadata(summary, queue))

    @contextmanager
    def _session(self, spark: Any) -> Iterator[Any]:
        """Yield the session of the resource, which outlives the step: it is the resource's."""
        session = spark.spark_session if hasattr(type(spark), "spark_session") else spark
        where = f"drain asset {self.name!r}: the resource {self.spark_resource_key!r}"
        if session is None:
            raise ConfigurationError(
                f"{where} has no session, because Dagster has not set it up; in a test give it by "
                "dg.build_asset_context(resources=...), or give a session"
            )
        if not (callable(getattr(session, "range", None)) and hasattr(session, "conf")):
            raise ConfigurationError(
                f"{where} is a {type(spark).__name__}; put a PySparkResource, a LazyPySparkResource or a SparkSession "
                "there, or name another key with spark_resource_key"
            )
        yield session

    def _check_portable(self, queue: QueueConsumer) -> None:
        """Refuse a queue that executors cannot make.

        Raises:
            ConfigurationError: its URL carries a password.
        """
        try:
            queue.spec()
        except ConfigurationError as error:
            raise ConfigurationError(
                f"drain asset {self.name!r}, resource {self.resource_key!r}: {error}. For executors on other machines "
                "set spark.executorEnv.NAME"
            ) from None


def _metadata(summary: DrainSummary, queue: QueueConsumer) -> dict[str, Any]:
    metadata = {
        **figures_of(summary, place_of(queue), queue.depth().ready),
        "sluicegate/partitions": _table(partition_rows(summary)),
    }
    if summary.failures:
        metadata["sluicegate/failures"] = _table(failure_rows(summary))
    return metadata


def _table(rows: list[dict[str, Any]]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
