"""Draining with Spark from a task: what it settles, what it reports, how it fails, is stopped and is tried again.

All tests of this file share a session that the operator did not make.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from tenacity import wait_fixed

from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator
from airflow_provider_sluicegate.spark_session import session_options
from sluicegate import DrainContext, DrainFailedError, Message, RedisMessageQueue
from sluicegate.errors import RedisUnavailableError
from sluicegate.streams import RedisStreamQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.handlers import accept
from tests.airflow.instance import Instance
from tests.airflow.lines import Lines
from tests.airflow.servers import PasswordServer
from tests.spark.session import local_session
from tests.support.servers import free_port
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

Drain = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def spark(jvm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session for all tests of this file."""
    with local_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def drain(queue: RedisMessageQueue, instance: Instance, spark: SparkSession) -> Drain:
    """Run the operator on the test's queue, with the session that is there."""

    def execute(process: Any = accept, *, queue_name: str | None = None, **arguments: Any) -> dict[str, Any]:
        name = queue.name if queue_name is None else queue_name
        operator = SparkRedisQueueDrainOperator(task_id="work", queue_name=name, process=process, **arguments)
        report: dict[str, Any] = operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]
        return report

    return execute


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Return the lines of the task's log."""
    kept = Lines()
    monkeypatch.setattr(SparkRedisQueueDrainOperator, "log", kept)
    return kept


def publish(queue: RedisMessageQueue, count: int) -> None:
    queue.publish_many({"n": number, "note": "CANARY"} for number in range(count))


def writing(folder: Path, *bad: int) -> Callable[..., None]:
    """Return a handler that writes the numbers of a batch into a file per lease, and fails on some numbers."""

    def process(batch: list[Message], ctx: DrainContext) -> None:
        numbers = [message.json()["n"] for message in batch]
        if set(numbers) & set(bad):
            raise ValueError("TEXT of the handler")
        ctx.output_file(folder, ".json").write_text(json.dumps(numbers))

    return process


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


# ---------------------------------------------------------------------- what it does and reports


def test_executors_drain_and_the_report_counts_and_holds_no_payload(
    queue: RedisMessageQueue, drain: Drain, spark: SparkSession, lines: Lines, tmp_path: Path
) -> None:
    publish(queue, 25)

    report = drain(writing(tmp_path), batch_size=10, partitions=2)

    assert numbers_in(tmp_path) == list(range(25))
    assert {name: report[name] for name in ("queue", "run_id", "claimed", "acked", "returned", "buried", "failed")} == {
        "queue": queue.name,
        "run_id": "dag/task/run/-1",
        "claimed": 25,
        "acked": 25,
        "returned": 0,
        "buried": 0,
        "failed": 0,
    }
    assert len(report["partitions"]) == 2
    assert json.loads(json.dumps(report)) == report
    assert "25 messages acked, 0 returned, 0 buried" in lines.text
    assert "CANARY" not in json.dumps(report) + lines.text
    assert queue.stats().acked == 25


def test_executors_drain_a_group_of_a_stream(
    embedded_url: str, connect: Connect, queue_name: str, instance: Instance, spark: SparkSession, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    with RedisStreamQueue(queue_name, url=embedded_url) as stream:
        for name in ("billing", "audit"):
            stream.group(name).create("beginning")
        stream.publish_many({"n": number, "note": "CANARY"} for number in range(25))

        operator = SparkRedisQueueDrainOperator(
            task_id="work", stream=stream.name, group="billing", process=writing(tmp_path), partitions=2, batch_size=10
        )
        report: Any = operator.execute({"ti": instance})  # type: ignore[typeddict-item]

        assert (report["acked"], report["failed"]) == (25, 0)
        assert {name: stream.group(name).lag() for name in stream.groups()} == {"billing": 0, "audit": 25}


def test_a_session_that_was_there_is_used_and_stays(
    queue: RedisMessageQueue, drain: Drain, spark: SparkSession, lines: Lines
) -> None:
    drain(conn_id=None, config_kwargs={"spark.app.name": "another"})

    assert "has a Spark session already: it is used as it is" in lines.text
    assert spark.sparkContext.appName == "sluicegate-tests"
    assert spark.range(3).count() == 3


def test_options_reach_the_drain(queue: RedisMessageQueue, drain: Drain, tmp_path: Path) -> None:
    publish(queue, 25)
    folder = str(tmp_path)

    def process(table: Any, ctx: DrainContext) -> None:
        ctx.output_file(folder, ".json").write_text(json.dumps(table.column("n").to_pylist()))

    options: dict[str, Any] = {"batch_format": "arrow", "schema": "n long", "batch_size": 4, "until": 10}
    report = drain(process, lease_seconds=7, partitions=1, **options)

    assert numbers_in(tmp_path) == list(range(10))
    assert sorted(len(json.loads(file.read_text())) for file in tmp_path.glob("*.json")) == [2, 4, 4]
    assert [part["ended"] for part in report["partitions"]] == ["limit"]
    ended = drain(until="deadline", deadline_seconds=0.2, partitions=1)["partitions"][0]["ended"]
    assert ended == "deadline"


@pytest.mark.parametrize(
    ("options", "expected", "counts"),
    [
        ({"schema": "n long", "mode": "BURY"}, [[0, None], [2, None]], (2, 1, 0)),
        (
            {"schema": "n long, bad string", "mode": "PERMISSIVE", "column_name_of_corrupt_record": "bad"},
            [[0, None], [None, '{"n":"x"}'], [2, None]],
            (3, 0, 0),
        ),
    ],
    ids=["bury", "permissive"],
)
def test_payloads_that_do_not_fit_are_treated_as_the_mode_says(
    queue: RedisMessageQueue,
    drain: Drain,
    tmp_path: Path,
    options: dict[str, Any],
    expected: list[list[Any]],
    counts: tuple[int, int, int],
) -> None:
    queue.publish_many([{"n": 0}, {"n": "x"}, {"n": 2}])
    folder = str(tmp_path)

    def process(table: Any, ctx: DrainContext) -> None:
        rows = [[row["n"], row.get("bad")] for row in table.to_pylist()]
        ctx.output_file(folder, ".json").write_text(json.dumps(rows))

    report = drain(process, partitions=1, **options)

    assert [json.loads(file.read_text()) for file in tmp_path.glob("[!.]*.json")] == [expected]
    assert (report["acked"], report["buried"], report["failed"]) == counts
    assert [letter.reason for letter in queue.peek(9, state="dead")] == ["invalid_payload"] * counts[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "DROP"}, "mode must be one of FAILFAST, PERMISSIVE, BURY, not 'DROP'"),
        ({"mode": "BURY"}, "mode BURY is for payloads that do not fit a schema, and there is none; give a schema"),
        (
            {"schema": "n long", "column_name_of_corrupt_record": "bad"},
            "column_name_of_corrupt_record names the column that the mode PERMISSIVE fills, and the mode is FAILFAST",
        ),
    ],
)
def test_a_mode_that_cannot_work_is_refused_before_there_is_a_session(
    queue: RedisMessageQueue,
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    words: str,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("airflow_provider_sluicegate.spark_session.session_options", lambda *given: asked.append(given))
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name=queue.name, process=accept, **arguments)

    with pytest.raises(AirflowFailException) as failed:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert words in str(failed.value)
    assert asked == []


def test_the_report_of_a_drain_that_failed_is_stored_and_its_retry_works_on_what_failed(
    queue: RedisMessageQueue, drain: Drain, instance: Instance, lines: Lines, tmp_path: Path
) -> None:
    publish(queue, 25)
    # A call that meets its own failed message puts it off for the time of its lease.
    options: dict[str, Any] = {
        "partitions": 2,
        "lease_seconds": 3,
        "queue_options": {"retry_backoff": wait_fixed(0.01)},
    }

    with pytest.raises(DrainFailedError, match="failed on 2 of 25 messages") as failed:
        drain(writing(tmp_path, 3, 17), **options)

    report = instance.pushed["return_value"]
    assert (report["acked"], report["returned"], report["failed"]) == (23, 2, 2)
    assert [failure["error_type"] for failure in report["failures"]] == ["ValueError"] * 2
    ids = [message_id for failure in report["failures"] for message_id in failure["message_ids"]]
    assert len(ids) == 2
    assert all(message_id in lines.text for message_id in ids)
    assert "CANARY" not in json.dumps(report) + lines.text + str(failed.value)
    assert "TEXT" not in json.dumps(report) + str(failed.value)

    wait_until(lambda: queue.depth().ready == 2, "the messages are due")
    again = drain(writing(tmp_path), **options)

    assert (again["acked"], again["failed"]) == (25, 0)
    assert numbers_in(tmp_path) == list(range(25))
    assert queue.stats().acked == 25


def test_the_task_log_shows_progress(queue: RedisMessageQueue, drain: Drain, lines: Lines, tmp_path: Path) -> None:
    publish(queue, 3)
    go = str(tmp_path / "go")

    def process(batch: list[Message]) -> None:
        while not os.path.exists(go):
            time.sleep(0.01)

    def let_go() -> None:
        try:
            wait_until(
                lambda: "0 messages acked in" in lines.text and "3 in flight" in lines.text, "a line of progress"
            )
        finally:
            Path(go).touch()

    thread = threading.Thread(target=let_go, daemon=True)
    thread.start()
    drain(process, progress_interval_seconds=0.01)
    thread.join()

    assert f"queue {queue.name!r}: 0 messages acked in" in lines.text


def test_an_empty_queue_skips_the_task_if_asked_to(
    queue: RedisMessageQueue, drain: Drain, instance: Instance, lines: Lines
) -> None:
    assert drain(partitions=1)["claimed"] == 0
    assert "nobody has published to this queue yet" in lines.text

    with pytest.raises(AirflowSkipException, match="had no message"):
        drain(skip_if_empty=True, partitions=1)
    assert instance.pushed["return_value"]["claimed"] == 0


# ---------------------------------------------------------------------- tries


def test_a_retry_takes_over_what_a_killed_try_held(
    queue: RedisMessageQueue, embedded_url: str, drain: Drain, instance: Instance, tmp_path: Path
) -> None:
    publish(queue, 25)
    run_id = run_id_of({"ti": instance})
    # What a killed try leaves: one batch finished, one held by nobody that lives.
    first = RedisMessageQueue(queue.name, url=embedded_url)
    first.claim(10, lease_id=f"{run_id}/0/0", retention_seconds=3600).ack()
    held = first.claim(10, lease_id=f"{run_id}/0/1", retention_seconds=3600)
    assert len(held) == 10
    del first, held
    gc.collect()

    report = drain(writing(tmp_path), batch_size=10, partitions=1)

    assert numbers_in(tmp_path) == list(range(10, 25))
    assert (report["acked"], report["taken_over"], report["partitions"][0]["replayed"]) == (25, 1, 1)
    assert queue.stats().acked == 25


def test_a_task_that_is_cleared_repeats_nothing_and_drains_what_has_arrived_since(
    queue: RedisMessageQueue, drain: Drain
) -> None:
    publish(queue, 5)
    assert drain(partitions=1)["acked"] == 5
    publish(queue, 2)

    again = drain(partitions=1)

    assert (again["acked"], again["partitions"][0]["replayed"], again["skipped_ready"]) == (7, 1, 0)
    assert queue.stats().acked == 7


# ---------------------------------------------------------------------- stopped


@pytest.fixture
def termination() -> Iterator[None]:
    """Undo the handler of the signal by which Airflow stops a task."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_stopped_task_cancels_its_own_jobs_and_its_retry_takes_over(
    queue: RedisMessageQueue,
    instance: Instance,
    drain: Drain,
    spark: SparkSession,
    lines: Lines,
    tmp_path: Path,
    termination: None,
) -> None:
    publish(queue, 40)
    folder = str(tmp_path)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        Path(folder, f"held-{ctx.partition}").touch()
        time.sleep(AT_ONCE_SECONDS * 3)

    operator = SparkRedisQueueDrainOperator(
        task_id="work", queue_name=queue.name, process=process, batch_size=10, partitions=1, lease_seconds=600
    )
    signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())
    stopped_at: list[float] = []

    def stop() -> None:
        wait_until((tmp_path / "held-0").exists, "a batch is held")
        stopped_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    other = threading.Thread(target=lambda: other_rows.extend(_slow_rows(spark, folder)), daemon=True)
    other_rows: list[Any] = []
    other.start()
    with pytest.raises(AirflowException, match="trying again is safe") as stopped:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]
    seconds = time.monotonic() - stopped_at[0]

    assert seconds < 5, "Airflow kills a task that does not end by then"
    assert not isinstance(stopped.value, AirflowFailException)
    assert "its Spark jobs are cancelled" in lines.text
    assert queue.depth().in_flight == 10
    wait_until(lambda: len(_active_jobs(spark)) == 1, "the drain's job has ended", AT_ONCE_SECONDS)
    (tmp_path / "go").touch()
    other.join(AT_ONCE_SECONDS)
    assert len(other_rows) == 1, "another job of this session goes on"

    report = drain(writing(tmp_path), batch_size=10, partitions=1, lease_seconds=600)

    assert (report["acked"], report["taken_over"]) == (40, 1)
    assert numbers_in(tmp_path) == list(range(40))


def _slow_rows(spark: SparkSession, folder: str) -> list[Any]:
    """Run another job until the test lets it go."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        while not os.path.exists(folder + "/go"):
            time.sleep(0.01)
        yield from batches

    return spark.range(0, 1, 1, 1).mapInArrow(wait, "id long").collect()


def _active_jobs(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_nothing_is_cancelled_when_nothing_drains() -> None:
    SparkRedisQueueDrainOperator(task_id="work", queue_name="orders", process=accept).on_kill()


# ---------------------------------------------------------------------- what cannot work


def test_a_constructor_checks_and_contacts_nothing() -> None:
    SparkRedisQueueDrainOperator(task_id="work", queue_name="{{ x }}", process="no.such:thing", batch_size=-1)


async def coroutine(batch: list[Message]) -> None: ...


def generator(batch: list[Message]) -> Iterator[None]:
    yield


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue_name": ""}, "queue name is blank"),
        ({"process": None}, "process must be a function of a batch, or its name as 'package.module:function'"),
        ({"process": "json.loads"}, "'module:function', not 'json.loads'"),
        ({"process": "no.such.module:f"}, "cannot be imported (ModuleNotFoundError: No module named 'no')"),
        ({"process": "tests.airflow.handlers:nothing"}, "has no function 'nothing'"),
        ({"process": coroutine}, "process is a coroutine function, of which a call does no work; write process(batch)"),
        ({"process": generator}, "process is a generator function, of which a call does no work; write process(batch)"),
        ({"process": lambda batch, lock=LOCK: None}, "process cannot be serialized for the executors"),
        ({"partitions": 0}, "partitions must be an int from 1"),
        ({"batch_size": 10_001}, "batch_size must be an int from 1 to 10000"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"until": "sometime"}, "until must be 'empty', 'deadline' or a number"),
        ({"until": "deadline"}, "needs deadline_seconds"),
        ({"config_kwargs": "spark.ui.enabled=false"}, "config_kwargs must be a dict"),
        ({"queue_options": {"url": "redis://other"}}, "url is not an option here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_work_fails_at_once_and_says_what_to_do(
    queue: RedisMessageQueue, drain: Drain, arguments: dict[str, Any], words: str
) -> None:
    publish(queue, 1)

    with pytest.raises(AirflowFailException) as failed:
        drain(**arguments)

    assert words in str(failed.value)
    assert queue.depth().pending == 1


def test_a_password_of_the_connection_is_refused_with_the_place_where_it_belongs(
    password_server: PasswordServer, connect: Connect, queue_name: str, instance: Instance
) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name=queue_name, process=accept)

    with pytest.raises(AirflowFailException, match="set auth_env in the extra") as failed:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert "'sluicegate_default' holds its password" in str(failed.value)
    assert PASSWORD not in str(failed.value)


def test_executors_take_the_password_from_their_environment(
    password_server: PasswordServer,
    connect: Connect,
    queue_name: str,
    instance: Instance,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_PASSWORD", PASSWORD)
    spark.sparkContext.environment["SLUICEGATE_TEST_PASSWORD"] = PASSWORD  # as spark.executorEnv does in a new session
    extra = {"auth_env": "SLUICEGATE_TEST_PASSWORD"}
    connect(host="localhost", port=password_server.port, extra=extra)
    url = f"redis://localhost:{password_server.port}/0?password_env=SLUICEGATE_TEST_PASSWORD"
    queue = RedisMessageQueue(queue_name, url=url)
    publish(queue, 7)
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name=queue_name, process=accept, partitions=1)

    report = operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert report["acked"] == 7
    queue.close()


def test_a_redis_that_is_away_fails_the_try_and_names_the_server(
    connect: Connect, instance: Instance, spark: SparkSession
) -> None:
    port = free_port()
    connect(host="localhost", port=port)
    operator = SparkRedisQueueDrainOperator(
        task_id="work", queue_name="orders", process=accept, queue_options={"retry_budget_seconds": 0}
    )

    with pytest.raises(RedisUnavailableError, match=f"localhost:{port}"):
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


@pytest.mark.parametrize("argument", ["redis_conn_id", "conn_id"])
def test_a_missing_connection_is_named(queue: RedisMessageQueue, instance: Instance, argument: str) -> None:
    arguments: dict[str, Any] = {argument: "no_such_connection"}
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name="orders", process=accept, **arguments)

    with pytest.raises(AirflowException, match="no_such_connection"):
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


@pytest.mark.parametrize(
    ("missing", "conn_id", "words"),
    [
        ("pyspark", None, "pyspark is not installed here; install 'sluicegate"),
        (
            "airflow.providers.apache.spark.hooks.spark_connect",
            "connect",
            "install apache-airflow-providers-apache-spark; without conn_id, the drain runs on a local master",
        ),
    ],
)
def test_what_is_not_installed_is_named(
    queue: RedisMessageQueue,
    connect: Connect,
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    conn_id: str | None,
    words: str,
) -> None:
    connect("connect", conn_type="spark_connect", host="localhost")
    monkeypatch.setitem(sys.modules, missing, None)
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name="orders", process=accept, conn_id=conn_id)

    with pytest.raises(AirflowFailException) as failed:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert words in str(failed.value)


def test_a_connection_of_type_spark_and_a_local_master_need_no_provider(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark", None)
    connect("cluster", conn_type="spark", host="spark://master", port=7077)

    assert session_options("cluster", None, "a")["spark.master"] == "spark://master:7077"
    assert session_options(None, None, "a")["spark.master"] == "local[*]"


def test_a_client_of_connect_alone_has_no_local_master(
    queue: RedisMessageQueue, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.util.is_remote_only", lambda: True)
    operator = SparkRedisQueueDrainOperator(task_id="work", queue_name="orders", process=accept)

    with pytest.raises(AirflowFailException, match="only pyspark-client is installed here; give a conn_id of type"):
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


# ---------------------------------------------------------------------- which session


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {"conn_type": "spark", "host": "spark://master", "port": 7077, "extra": {"spark.executor.memory": "1g"}},
        {"conn_type": "spark", "host": "local[2]"},
        {"conn_type": "spark", "extra": {"spark.master": "local[3]"}},
        {"conn_type": "spark_connect", "host": "connect.internal", "port": 15002, "login": "me", "password": "t/k"},
        {"conn_type": "spark_connect", "host": "sc://connect.internal", "extra": {"use_ssl": True}},
        {"conn_type": "generic", "host": "local[1]"},
    ],
)
@pytest.mark.parametrize("config", [None, {"spark.executor.memory": "2g"}, {"spark.submit.deployMode": "client"}])
def test_a_session_is_decided_as_the_spark_provider_decides(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any] | None, config: dict[str, Any] | None
) -> None:
    from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
    from pyspark.sql import SparkSession

    asked: list[dict[str, Any]] = []

    def remember(builder: Any) -> SimpleNamespace:
        asked.append({name: str(value).lower() for name, value in builder._options.items()})
        return SimpleNamespace(stop=lambda: None)

    conn_id = connect("where", **fields) if fields is not None else None
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", remember)
    monkeypatch.setattr(PySparkOperator.__mro__[1], "execute_callable", lambda operator: None)
    theirs = PySparkOperator(task_id="a", python_callable=lambda spark: None, conn_id=conn_id, config_kwargs=config)
    with monkeypatch.context() as patch:
        patch.setattr("pyspark.core.context.SparkContext._jvm", None)  # their options stay in Python
        theirs.execute_callable()
    ours = session_options(conn_id, config, f"{theirs.dag_id}-{theirs.task_id}")
    SparkSession.builder.config(map=ours).getOrCreate()

    assert asked[1] == asked[0]


def test_a_master_beside_spark_connect_is_refused(
    queue: RedisMessageQueue, connect: Connect, instance: Instance
) -> None:
    connect("connect", conn_type="spark_connect", host="localhost")
    operator = SparkRedisQueueDrainOperator(
        task_id="work", queue_name="orders", process=accept, conn_id="connect", config_kwargs={"spark.master": "local"}
    )

    with pytest.raises(AirflowFailException, match="has a master \\('local'\\) and is one of Spark Connect"):
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]
