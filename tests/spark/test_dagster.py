"""Draining with Spark from Dagster: what a step settles and reports, how it fails, is stopped and is tried again."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster_pyspark import LazyPySparkResource, PySparkResource

from dagster_sluicegate import QueuePartitions, RedisQueueResource, build_spark_queue_drain_asset
from sluicegate import DrainContext, DrainProgress, Message, RedisMessageQueue
from sluicegate.draining.progress import ProgressLines
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import asset_job, re_execute
from tests.draining.helpers import Numbers, Output, failing_on
from tests.spark.shipping import spark_defaults
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.support.snippets import snippet
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.timeout(300)]  # the first test starts the session

KEY = dg.AssetKey("stored")


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")


@pytest.fixture
def resource(queue: RedisMessageQueue, server: RedisServer) -> RedisQueueResource:
    """Return the queue of the test as Dagster's steps get it."""
    return RedisQueueResource(url=server.url, queue_name=queue.name)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Sessions:
    """A resource that counts how often its session is taken."""

    def __init__(self, session: object) -> None:
        self._session = session
        self.taken = 0

    @property
    def spark_session(self) -> object:
        self.taken += 1
        return self._session


def drain_asset(process: Any, **options: Any) -> dg.AssetsDefinition:
    return build_spark_queue_drain_asset(spec="stored", process=process, **{"partitions": 2, **options})


def run(
    asset: dg.AssetsDefinition,
    resource: RedisQueueResource,
    spark: object,
    instance: dg.DagsterInstance | None = None,
) -> dg.ExecuteInProcessResult:
    job = asset_job([asset], {"queue": resource, "pyspark": spark})
    return job.execute_in_process(raise_on_error=False, instance=instance)


def failure_of(result: dg.ExecuteInProcessResult) -> Any:
    assert not result.success
    return result.failure_data_for_node("stored")


def texts_of(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return everything that Dagster stored about a run."""
    return "\n".join(str(entry) for entry in instance.all_logs(run_id))


def values_of(metadata: Any) -> dict[str, Any]:
    return {name: value.value for name, value in metadata.items() if name != "sluicegate/seconds"}


def test_executors_drain_and_the_materialization_counts_what_each_partition_did(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    numbers: Numbers,
    output: Output,
    instance: dg.DagsterInstance,
) -> None:
    expected = numbers(25)
    folder = str(output.folder)

    def before(batch: list[int], ctx: DrainContext) -> None:
        """Wait until both partitions have a batch."""
        Path(folder, f"begun-{ctx.partition}").touch()
        wait_until(lambda: len(list(Path(folder).glob("begun-*"))) == 2, "both partitions have a batch")

    result = run(drain_asset(output.writer(before), batch_size=5), resource, spark, instance)

    (materialization,) = result.asset_materializations_for_node("stored")
    found = values_of(materialization.metadata)
    rows = [dict(record.data) for record in found.pop("sluicegate/partitions").records]
    size = found.pop("sluicegate/bytes")
    assert found == {
        "dagster/row_count": 25,
        "sluicegate/queue": queue.name,
        "sluicegate/batches": 5,
        "sluicegate/claimed": 25,
        "sluicegate/acked": 25,
        "sluicegate/returned": 0,
        "sluicegate/buried": 0,
        "sluicegate/failed": 0,
        "sluicegate/taken_over": 0,
        "sluicegate/ready_left": 0,
    }
    assert size > 25 * len('{"n": 1}')
    assert [(row["partition"], row["ended"]) for row in rows] == [(0, "empty"), (1, "empty")]
    assert all(row["acked"] >= 5 for row in rows)
    assert sum(row["acked"] for row in rows) == 25
    assert output.numbers() == expected
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)
    assert f"Queue {queue.name!r}: 25 messages acked, 0 returned, 0 buried" in texts_of(instance, result.run_id)


@pytest.mark.parametrize("kind", [PySparkResource, LazyPySparkResource])
def test_a_session_of_dagsters_own_resources_is_used(
    spark: SparkSession, resource: RedisQueueResource, numbers: Numbers, output: Output, kind: Any
) -> None:
    expected = numbers(3)

    assert run(drain_asset(output.writer()), resource, kind(spark_config={})).success

    assert output.numbers() == expected
    assert spark.range(3).count() == 3, "the resource keeps its session"


def test_workers_of_a_local_session_run_the_interpreter_of_the_step(
    spark: SparkSession,
    resource: RedisQueueResource,
    numbers: Numbers,
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = numbers(3)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/bin/false")  # an interpreter without this package

    assert run(drain_asset(output.writer()), resource, spark).success

    assert output.numbers() == expected


def test_without_a_ready_message_no_session_is_taken_and_nothing_is_materialized(
    queue: RedisMessageQueue, resource: RedisQueueResource, numbers: Numbers, instance: dg.DagsterInstance
) -> None:
    sessions = Sessions(object())

    empty = run(drain_asset(print), resource, sessions, instance)
    numbers(3)
    queue.pause()
    paused = run(drain_asset(print), resource, sessions, instance)

    for result in (empty, paused):
        assert result.success
        assert result.asset_materializations_for_node("stored") == []
        assert f"Nothing to drain from queue {queue.name!r} for drain asset" in texts_of(instance, result.run_id)
    assert f"Queue {queue.name!r} is paused." in texts_of(instance, paused.run_id)
    assert sessions.taken == 0


def test_an_empty_queue_is_observed_or_materialized_where_that_is_asked_for(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    sessions = Sessions(object())

    seen = run(drain_asset(print, on_empty="observe"), resource, sessions)
    stored = run(drain_asset(print, on_empty="materialize"), resource, sessions)

    (observation,) = seen.asset_observations_for_node("stored")
    assert values_of(observation.metadata)["sluicegate/queue"] == queue.name
    (materialization,) = stored.asset_materializations_for_node("stored")
    assert values_of(materialization.metadata) == {
        "dagster/row_count": 0,
        "sluicegate/queue": queue.name,
        "sluicegate/ready_left": 0,
    }
    assert sessions.taken == 0


def test_a_run_of_a_partition_drains_the_queue_of_that_partition(
    spark: SparkSession, resource: RedisQueueResource, output: Output
) -> None:
    regions = QueuePartitions("orders", ["eu", "us"])
    for region, number in (("eu", 1), ("us", 2)):
        with resource.get_queue(regions.queue_of(region)) as queue:
            queue.publish({"n": number})
    asset = drain_asset(output.writer(), queue_partitions=regions)

    (result,) = list(asset(dg.build_asset_context(partition_key="us"), queue=resource, pyspark=spark))

    assert result.metadata["sluicegate/queue"] == "orders:us"
    assert output.numbers() == [2]
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(1)
    assert resource.get_depth("orders:eu").ready == 1


def test_executors_drain_a_group_of_a_stream(
    spark: SparkSession, server: RedisServer, output: Output, instance: dg.DagsterInstance
) -> None:
    resource = RedisQueueResource(url=server.url, stream_name="orders", group="billing", start="beginning")
    with resource.get_stream() as stream:
        stream.publish_many({"n": number} for number in range(5))

    result = run(drain_asset(output.writer(), batch_size=2), resource, spark, instance)

    (materialization,) = result.asset_materializations_for_node("stored")
    found = values_of(materialization.metadata)
    assert found["sluicegate/queue"] == "stream:orders:billing"
    assert (found["sluicegate/stream"], found["sluicegate/group"], found["dagster/row_count"]) == (
        "orders",
        "billing",
        5,
    )
    assert output.numbers() == [0, 1, 2, 3, 4]
    with resource.get_group() as group:
        assert (group.depth().ready, group.depth().in_flight, group.stats().acked) == (0, 0, 5)
    assert "Group 'billing' of stream 'orders': 5 messages acked" in texts_of(instance, result.run_id)


def test_messages_that_fail_fail_the_step_and_a_re_execution_works_on_them_only(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    output: Output,
    instance: dg.DagsterInstance,
) -> None:
    queue.publish_many({"n": n, "note": "CANARY"} for n in range(25))

    first = run(drain_asset(output.writer(failing_on(3, 17)), lease_seconds=3), resource, spark, instance)

    failure = failure_of(first).user_failure_data
    assert "drain asset 'stored': drain " in failure.description
    assert "the handler failed on 2 of 25 messages" in failure.description
    found = values_of(failure.metadata)
    assert [found[f"sluicegate/{name}"] for name in ("acked", "returned", "failed")] == [23, 2, 2]
    failures = [dict(record.data) for record in found["sluicegate/failures"].records]
    assert [(row["messages"], row["error"], row["buried"]) for row in failures] == [(1, "ValueError", False)] * 2
    stored = texts_of(instance, first.run_id)
    assert all(row["message_ids"] in stored for row in failures)
    assert "CANARY" not in stored
    assert "cannot work on" not in stored, "the text of a handler's error may quote a payload"

    wait_until(lambda: queue.depth().ready == 2, "the messages are due")
    again = asset_job([drain_asset(output.writer(), lease_seconds=3)], {"queue": resource, "pyspark": spark})
    retried = re_execute(again, instance, first.run_id)

    (event,) = [entry for entry in instance.all_logs(retried.run_id) if entry.asset_materialization]
    assert event.asset_materialization.metadata["dagster/row_count"].value == 25
    assert output.numbers() == list(range(25))
    assert sum(len(call["numbers"]) for call in output.calls() if call["numbers"] not in ([3], [17])) >= 23
    assert queue.stats().acked == 25


def test_a_step_whose_failures_are_returned_succeeds_and_its_materialization_lists_them(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    output: Output,
    instance: dg.DagsterInstance,
) -> None:
    queue.publish_many({"n": n} for n in range(25))

    done = run(drain_asset(output.writer(failing_on(3)), on_failures="return"), resource, spark, instance)

    assert done.success
    (event,) = [entry for entry in instance.all_logs(done.run_id) if entry.asset_materialization]
    found = values_of(event.asset_materialization.metadata)
    assert [found[f"sluicegate/{name}"] for name in ("acked", "returned", "failed")] == [24, 1, 1]
    assert [record.data["error"] for record in found["sluicegate/failures"].records] == ["ValueError"]


def test_a_step_that_is_stopped_cancels_its_jobs_and_a_re_execution_takes_over_its_leases(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    numbers: Numbers,
    output: Output,
    instance: dg.DagsterInstance,
) -> None:
    expected = numbers(40)
    folder = str(output.folder)

    def hold(batch: list[Message], ctx: DrainContext) -> None:
        Path(folder, "held").touch()
        time.sleep(AT_ONCE_SECONDS * 3)

    def stop() -> None:
        wait_until(Path(folder, "held").exists, "a batch is held")
        os.kill(os.getpid(), signal.SIGINT)

    options: dict[str, Any] = {"partitions": 1, "batch_size": 10, "lease_seconds": 600}
    threading.Thread(target=stop, daemon=True).start()
    job = asset_job([drain_asset(hold, **options)], {"queue": resource, "pyspark": spark})
    with pytest.raises(DagsterExecutionInterruptedError):
        job.execute_in_process(instance=instance)

    (stopped,) = instance.get_runs()
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "the jobs of the drain have ended", AT_ONCE_SECONDS)
    assert queue.depth().in_flight == 10
    again = asset_job([drain_asset(output.writer(), **options)], {"queue": resource, "pyspark": spark})
    retried = re_execute(again, instance, stopped.run_id)

    (event,) = [entry for entry in instance.all_logs(retried.run_id) if entry.asset_materialization]
    assert event.asset_materialization.metadata["sluicegate/taken_over"].value == 1
    assert output.numbers() == expected
    assert queue.stats().acked == 40


def test_a_re_execution_drains_what_has_arrived_since(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    output: Output,
    instance: dg.DagsterInstance,
) -> None:
    job = asset_job([drain_asset(output.writer(), partitions=1)], {"queue": resource, "pyspark": spark})
    queue.publish_many({"n": number} for number in range(3))
    first = job.execute_in_process(instance=instance)
    queue.publish_many({"n": number} for number in range(3, 5))

    retried = re_execute(job, instance, first.run_id)

    (event,) = [entry for entry in instance.all_logs(retried.run_id) if entry.asset_materialization]
    assert event.asset_materialization.metadata["dagster/row_count"].value == 5, "3 of them by the first run"
    assert [call["numbers"] for call in output.calls()] == [[0, 1, 2], [3, 4]]
    assert (queue.depth().ready, queue.stats().acked) == (0, 5)


def test_the_log_of_the_step_shows_progress(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    numbers: Numbers,
    output: Output,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers(3)
    go = output.folder / "go"
    waits_for = str(go)

    class Lines(ProgressLines):
        """Let the handler end once a line has been written while it works."""

        def __call__(self, progress: DrainProgress) -> None:
            super().__call__(progress)
            if progress.in_flight == 3:
                go.touch()

    def process(batch: list[Message]) -> None:
        while not Path(waits_for).exists():
            time.sleep(0.01)

    monkeypatch.setattr("dagster_sluicegate.drains.spark.ProgressLines", Lines)
    asset = drain_asset(process, partitions=1, progress_interval_seconds=0.01)
    result = run(asset, resource, spark, instance)

    assert result.success
    stored = texts_of(instance, result.run_id)
    assert f"of queue {queue.name!r}: 0 messages acked in" in stored
    assert "0 ready, 3 in flight" in stored


def test_the_asset_of_the_documentation_stores_what_is_fine_and_buries_the_rest(
    spark: SparkSession, server: RedisServer, make_queue: MakeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    stored = str(tmp_path / "stored")
    names: dict[str, Any] = {"__name__": "orders"}
    code = snippet("dagster-spark-drain").replace("/data/orders", stored)
    exec(compile(code, "dagster.md", "exec", dont_inherit=True), names)  # noqa: S102
    queue = make_queue(url=server.url)
    queue.publish_many({"order_id": f"o{number}", "amount": number - 1.0} for number in range(5))

    assert names["defs"].resolve_implicit_global_asset_job_def().execute_in_process().success

    assert sorted(pq.read_table(stored)["order_id"].to_pylist()) == ["o1", "o2", "o3", "o4"]
    assert (queue.name, queue.depth().ready, queue.depth().in_flight, queue.depth().dead) == ("orders", 0, 0, 1)


@pytest.mark.full
@pytest.mark.slow
def test_spark_submit_drains_for_the_asset_of_the_documentation(
    server: RedisServer,
    make_queue: MakeQueue,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = str(tmp_path / "stored")
    (tmp_path / "store_orders.py").write_text(snippet("dagster-pipes-driver").replace("/data/orders", stored))
    for name, value in (
        ("REDIS_URL", server.url),
        ("SPARK_CONF_DIR", str(spark_defaults(tmp_path))),
        ("SPARK_LOCAL_IP", "127.0.0.1"),
        ("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"),
    ):
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {"__name__": "orders"}
    code = snippet("dagster-pipes").replace("jobs/store_orders.py", str(tmp_path / "store_orders.py"))
    exec(compile(code, "dagster.md", "exec", dont_inherit=True), names)  # noqa: S102
    queue = make_queue(url=server.url)
    queue.publish_many({"order_id": f"o{number}", "amount": number / 4} for number in range(25))

    job = names["defs"].resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance)

    (event,) = [entry for entry in instance.all_logs(result.run_id) if entry.asset_materialization]
    assert event.asset_materialization.metadata["dagster/row_count"].value == 25
    assert pq.read_table(stored).num_rows == 25
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)


@pytest.mark.parametrize(
    ("options", "expected", "counts"),
    [
        ({"schema": "n long", "mode": "BURY"}, [{"n": 0}, {"n": 2}], (2, 1)),
        (
            {"schema": "n long, bad string", "mode": "permissive", "column_name_of_corrupt_record": "bad"},
            [{"n": 0, "bad": None}, {"n": None, "bad": '{"n":"x"}'}, {"n": 2, "bad": None}],
            (3, 0),
        ),
    ],
    ids=["bury", "permissive"],
)
def test_payloads_that_do_not_fit_are_treated_as_the_mode_says(
    spark: SparkSession,
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    tmp_path: Path,
    options: dict[str, Any],
    expected: list[dict[str, Any]],
    counts: tuple[int, int],
) -> None:
    queue.publish_many([{"n": 0}, {"n": "x"}, {"n": 2}])
    folder = str(tmp_path / "stored")

    def write(table: Any, ctx: DrainContext) -> None:
        columns = [name for name in ("n", "bad") if name in table.column_names]
        pq.write_table(table.select(columns), ctx.output_file(folder, ".parquet"))

    result = run(drain_asset(write, partitions=1, **options), resource, spark)

    (materialization,) = result.asset_materializations_for_node("stored")
    found = values_of(materialization.metadata)
    assert (found["sluicegate/acked"], found["sluicegate/buried"], found["sluicegate/failed"]) == (*counts, 0)
    assert pq.read_table(folder).to_pylist() == expected
    assert [letter.reason for letter in queue.peek(9, state="dead")] == ["invalid_payload"] * counts[1]


def test_it_can_be_called_directly(
    spark: SparkSession, resource: RedisQueueResource, numbers: Numbers, output: Output
) -> None:
    expected = numbers(3)

    (result,) = list(drain_asset(output.writer())(dg.build_asset_context(), queue=resource, pyspark=spark))

    assert result.metadata["dagster/row_count"] == 3
    assert output.numbers() == expected


def test_what_is_no_session_is_refused(
    queue: RedisMessageQueue, resource: RedisQueueResource, numbers: Numbers
) -> None:
    numbers(1)

    for given, words in (
        ("local[2]", "the resource 'pyspark' is a str; put a PySparkResource, a LazyPySparkResource or a SparkSession"),
        (Sessions(None), "the resource 'pyspark' has no session, because Dagster has not set it up"),
    ):
        with pytest.raises(ConfigurationError, match="drain asset 'stored'") as refused:
            list(drain_asset(print)(dg.build_asset_context(), queue=resource, pyspark=given))
        assert words in str(refused.value)
    assert queue.depth().ready == 1


def test_a_password_in_the_url_is_refused_before_a_session_is_taken(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_URL", "redis://user:s3cret@localhost:1/0")
    sessions = Sessions(object())
    resource = RedisQueueResource(url=dg.EnvVar("ORDERS_URL"), queue_name="orders")

    result = run(drain_asset(print), resource, sessions, instance)

    message = failure_of(result).error.to_string()
    assert "drain asset 'stored', resource 'queue': the queue's url carries a password" in message
    assert "?password_env=NAME" in message
    assert "spark.executorEnv.NAME" in message
    assert "s3cret" not in texts_of(instance, result.run_id)
    assert sessions.taken == 0


def _ignored(batch: object) -> None:
    """Do nothing; the signature of a builtin such as `print` is parsed, which fails at times in Python 3.11."""


async def _coroutine(batch: list[Message]) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"process": _coroutine}, "process is a coroutine function"),
        ({"process": "store"}, "process must be a function of a batch, not a str"),
        ({"partitions": 0}, "partitions must be an int from 1 to 10000, or None, not 0"),
        ({"batch_size": 0}, "batch_size must be an int from 1 to 10000, not 0"),
        ({"lease_seconds": -1}, "lease_seconds must be a number above 0"),
        ({"until": "later"}, "until must be 'empty', 'deadline' or a number of messages"),
        ({"until": "deadline"}, "until='deadline' needs deadline_seconds"),
        ({"batch_format": "csv"}, "batch_format must be one of messages, arrow, pandas, not 'csv'"),
        ({"mode": "DROP"}, "mode must be one of FAILFAST, PERMISSIVE, BURY, not 'DROP'"),
        ({"mode": "BURY"}, "mode BURY is for payloads that do not fit a schema, and there is none"),
        (
            {"schema": "n long", "column_name_of_corrupt_record": "bad"},
            "column_name_of_corrupt_record names the column that the mode PERMISSIVE fills, and the mode is FAILFAST",
        ),
        (
            {"schema": pa.schema([("n", pa.int64())]), "mode": "PERMISSIVE", "column_name_of_corrupt_record": "bad"},
            "names 'bad'; declare that column as string",
        ),
        ({"on_failures": "ignore"}, "on_failures"),
        ({"progress_interval_seconds": 0}, "progress_interval_seconds"),
        ({"on_empty": "fail"}, "on_empty"),
        ({"resource_key": "my-queue"}, "resource_key must be a Python identifier, not 'my-queue'"),
        ({"spark_resource_key": "my-spark"}, "spark_resource_key must be a Python identifier, not 'my-spark'"),
        (
            {"spec": dg.AssetSpec("stored", partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))},
            "leave partitions_def out",
        ),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_the_asset_is_built(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build_spark_queue_drain_asset(**{"spec": "stored", "process": _ignored, **options})
    assert words in str(refused.value)
