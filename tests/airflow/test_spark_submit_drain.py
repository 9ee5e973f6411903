"""Draining with the real `spark-submit` from a task: what it submits and reports, how it fails and is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_sluicegate.operators.spark_submit import SparkSubmitRedisQueueDrainOperator
from sluicegate import DrainFailedError, RedisMessageQueue
from sluicegate.spark import submit
from sluicegate.streams import RedisStreamQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.airflow.lines import Lines
from tests.airflow.servers import PasswordServer
from tests.support.project import ROOT
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.usefixtures("jvm")]

DAG_FILE = Path(__file__).parent / "dags" / "spark_submits.py"
START_SECONDS = 120.0  # for two JVMs and Python workers on a busy machine
STORE = "tests.airflow.handlers:store"

MakeOperator = Callable[..., SparkSubmitRedisQueueDrainOperator]


@pytest.fixture(autouse=True)
def local_spark(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the default connection be a local master, and the driver find spark-submit and write into a folder."""
    connect("spark_default", conn_type="spark", host="local[2]")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))


@pytest.fixture
def make_operator(queue: RedisMessageQueue) -> MakeOperator:
    """Return a function that makes the operator for the test's queue."""

    def make(process: Any = STORE, *, queue_name: str | None = None, **arguments: Any) -> Any:
        name = queue.name if queue_name is None else queue_name
        return SparkSubmitRedisQueueDrainOperator(task_id="work", queue_name=name, process=process, **arguments)

    return make


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Return the lines of the task's log."""
    kept = Lines()
    monkeypatch.setattr(SparkSubmitRedisQueueDrainOperator, "log", kept)
    return kept


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the arguments of applications, which end at once instead of being submitted."""
    seen: list[list[str]] = []

    def end(operator: Any, context: Any) -> None:
        seen.append([operator.application, *operator.application_args])

    monkeypatch.setattr(SparkSubmitOperator, "execute", end)
    return seen


def execute(operator: SparkSubmitRedisQueueDrainOperator, instance: Instance) -> Any:
    return operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


def publish(queue: RedisMessageQueue, count: int, *, bad: int | None = None) -> None:
    queue.publish_many({"n": n, "fails": n == bad, "note": "CANARY"} for n in range(count))


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


# ---------------------------------------------------------------------- with spark-submit


@pytest.mark.full
def test_a_submitted_drain_reports_what_failed_before_its_task_fails(
    queue: RedisMessageQueue, make_operator: MakeOperator, instance: Instance, lines: Lines, tmp_path: Path
) -> None:
    publish(queue, 25, bad=17)

    with pytest.raises(DrainFailedError, match="failed on 1 of 25 messages") as failed:
        execute(make_operator(partitions=2, batch_size=10), instance)

    report = instance.pushed["return_value"]
    assert (report["run_id"], report["acked"], report["returned"], report["failed"]) == ("dag/task/run/-1", 24, 1, 1)
    assert len(report["partitions"]) == 2
    (failure,) = report["failures"]
    assert failure["error_type"] == "ValueError"
    assert failure["message_ids"][0] in lines.text
    assert "TEXT" not in json.dumps(report) + lines.text + str(failed.value)
    assert numbers_in(tmp_path) == [n for n in range(25) if n != 17]
    assert (queue.stats().acked, queue.depth().in_flight) == (24, 0)


@pytest.mark.full  # the Spark operator's test takes a group too, without a process of its own
def test_a_submitted_drain_takes_a_group_of_a_stream(
    embedded_url: str, connect: Connect, queue_name: str, instance: Instance, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    with RedisStreamQueue(queue_name, url=embedded_url) as stream:
        for name in ("billing", "audit"):
            stream.group(name).create("beginning")
        stream.publish_many({"n": number, "fails": False} for number in range(5))

        operator = SparkSubmitRedisQueueDrainOperator(
            task_id="work", stream=stream.name, group="billing", process=STORE, partitions=1
        )
        report: Any = execute(operator, instance)

        assert report["acked"] == 5
        assert numbers_in(tmp_path) == list(range(5))
        assert {name: stream.group(name).lag() for name in stream.groups()} == {"billing": 0, "audit": 5}


@pytest.mark.full
def test_a_submitted_drain_buries_payloads_that_do_not_fit_and_its_task_succeeds(
    queue: RedisMessageQueue, make_operator: MakeOperator, instance: Instance, tmp_path: Path
) -> None:
    queue.publish_many([{"n": 0}, {"n": "x"}, {"n": 2}])

    operator = make_operator("tests.airflow.handlers:store_columns", partitions=1, schema="n bigint", mode="bury")
    report = execute(operator, instance)

    assert (report["acked"], report["buried"], report["failed"]) == (2, 1, 0)
    assert numbers_in(tmp_path) == [0, 2]
    assert [letter.reason for letter in queue.peek(9, state="dead")] == ["invalid_payload"]


@pytest.mark.full
@pytest.mark.slow
def test_a_dag_submits_and_its_retry_works_on_what_failed(
    airflow_deployment: Deployment,
    password_server: PasswordServer,
    connect: Connect,
    queue_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", PASSWORD)
    connect("orders_redis", host="localhost", port=password_server.port, extra={"auth_env": "ORDERS_PASSWORD"})
    url = f"redis://localhost:{password_server.port}/0?password_env=ORDERS_PASSWORD"
    queue = RedisMessageQueue(queue_name, url=url)
    publish(queue, 25, bad=17)

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["spark_submits"].test(run_conf={"queue": queue_name})

    assert states(run) == {"work": "success"}
    report = xcoms(run)["work"]
    assert report["run_id"] == "/".join(("spark_submits", "work", run.run_id, "-1"))
    # The second try counts what the first one did, too: it returned one message and acked the others.
    assert (report["acked"], report["returned"], report["failed"]) == (25, 1, 0)
    assert numbers_in(tmp_path) == list(range(25))
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)
    queue.close()
    shown = airflow_deployment.stored() + "".join(capfd.readouterr()).encode() + json.dumps(report).encode()
    assert b"the handler failed on 1 of 25 messages" in shown
    assert b"CANARY" not in shown
    assert PASSWORD.encode() not in shown
    assert "TEXT" not in json.dumps(report)


@pytest.mark.full
@pytest.mark.slow
def test_a_stopped_task_kills_spark_submit_and_its_retry_takes_over(
    queue: RedisMessageQueue, make_operator: MakeOperator, instance: Instance, tmp_path: Path
) -> None:
    publish(queue, 200)
    arguments: dict[str, Any] = {"partitions": 2, "batch_size": 10, "lease_seconds": 600}
    operator = make_operator("tests.airflow.handlers:store_and_hold_third", **arguments)
    before = signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())

    def stop() -> None:
        wait_until(lambda: len(list(tmp_path.glob("held-*"))) == 2, "the batches are held", START_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    try:
        with pytest.raises(AirflowException, match="Error code is") as stopped:
            execute(operator, instance)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not isinstance(stopped.value, AirflowFailException)
    assert queue.depth().in_flight == 20

    report = execute(make_operator(STORE, **arguments), instance)

    assert (report["acked"], report["taken_over"]) == (200, 2)
    assert numbers_in(tmp_path) == list(range(200))
    assert queue.stats().acked == 200


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "arguments", "words"),
    [
        ("no.such.module:f", {}, "cannot be imported (ModuleNotFoundError: No module named 'no')"),
        ("tests.airflow.handlers:coroutine", {}, "process is a coroutine function, of which a call does no work"),
        (STORE, {"batch_size": 10_001}, "batch_size must be an int from 1 to 10000"),
    ],
)
def test_what_the_driver_refuses_fails_at_once_with_its_words(
    queue: RedisMessageQueue,
    make_operator: MakeOperator,
    instance: Instance,
    process: str,
    arguments: dict[str, Any],
    words: str,
) -> None:
    publish(queue, 1)

    with pytest.raises(AirflowFailException) as failed:
        execute(make_operator(process, **arguments), instance)

    assert words in str(failed.value)
    assert queue.depth().pending == 1


# ---------------------------------------------------------------------- what is submitted, and what is returned


def test_the_driver_gets_the_queue_and_every_option(
    make_operator: MakeOperator, instance: Instance, submitted: list[list[str]], queue: RedisMessageQueue
) -> None:
    options: dict[str, Any] = {
        "partitions": 3,
        "batch_size": 50,
        "lease_seconds": 12.5,
        "batch_format": "arrow",
        "schema": "n bigint, t string",
        "mode": "PERMISSIVE",
        "column_name_of_corrupt_record": "t",
        "until": 700,
        "deadline_seconds": 60.0,
        "on_failures": "return",
    }

    execute(make_operator(queue_options={"max_delivery_count": 4}, **options), instance)

    (application, *arguments) = submitted[0]
    given = vars(submit._parser().parse_args(arguments))
    assert application == submit.application()
    assert {name: given[name] for name in options} == options
    assert (given["run_id"], given["remember_empty"], given["process"]) == ("dag/task/run/-1", False, STORE)
    assert not given["summary_file"].parent.exists(), "the folder for the summary is removed"
    spec = json.loads(given["spec"])
    assert (spec["name"], spec["options"]["max_delivery_count"]) == (queue.name, 4)


def test_a_copy_of_the_driver_can_be_given(
    make_operator: MakeOperator, instance: Instance, submitted: list[list[str]]
) -> None:
    execute(make_operator(application="hdfs:///jobs/submit.py"), instance)

    assert submitted[0][0] == "hdfs:///jobs/submit.py"


def test_without_a_summary_the_task_succeeds_and_says_where_it_is(
    make_operator: MakeOperator, instance: Instance, submitted: list[list[str]], lines: Lines
) -> None:
    """The driver ran on another machine: its exit code is known, and what it did is not."""
    assert execute(make_operator(skip_if_empty=True), instance) is None

    assert instance.pushed == {}
    assert "its summary is in the output of its driver, which ran elsewhere" in lines.text


def test_an_empty_queue_skips_the_task_if_asked_to(
    make_operator: MakeOperator, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drain_nothing(operator: Any, context: Any) -> None:
        file = Path(operator.application_args[-1].partition("=")[2])
        summary = {"run_id": "r", "queue": operator.queue_name, "partitions": [], "seconds": 0.1, "skipped_ready": 0}
        file.write_text(json.dumps({"summary": summary, "refused": None}))

    monkeypatch.setattr(SparkSubmitOperator, "execute", drain_nothing)

    assert execute(make_operator(), instance)["claimed"] == 0
    with pytest.raises(AirflowSkipException, match="had no message"):
        execute(make_operator(skip_if_empty=True), instance)
    assert instance.pushed["return_value"]["claimed"] == 0


# ---------------------------------------------------------------------- what cannot work


def function(batch: list[Any]) -> None:
    """Work on nothing."""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue_name": ""}, "queue name is blank"),
        ({"process": function}, "process must be the name of a function, 'package.module:function', because the"),
        ({"process": "json.loads"}, "'module:function', not 'json.loads'"),
        ({"schema": object()}, "schema must be a DDL text such as"),
        ({"partitions": "many"}, "partitions"),
        ({"mode": "DROP"}, "mode must be one of FAILFAST, PERMISSIVE, BURY, not 'DROP'"),
        ({"mode": "BURY"}, "mode BURY is for payloads that do not fit a schema, and there is none; give a schema"),
        (
            {"schema": "n bigint", "mode": "BURY", "column_name_of_corrupt_record": "t"},
            "column_name_of_corrupt_record names the column that the mode PERMISSIVE fills, and the mode is BURY",
        ),
        ({"until": "sometime"}, "must be empty, deadline or a number, not 'sometime'"),
        ({"queue_options": {"url": "redis://other"}}, "url is not an option here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_work_is_refused_before_it_is_submitted(
    make_operator: MakeOperator,
    instance: Instance,
    submitted: list[list[str]],
    arguments: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(AirflowFailException) as failed:
        execute(make_operator(**arguments), instance)

    assert words in str(failed.value)
    assert submitted == []


def test_a_password_of_the_connection_is_not_submitted(
    password_server: PasswordServer,
    connect: Connect,
    make_operator: MakeOperator,
    instance: Instance,
    submitted: list[list[str]],
) -> None:
    connect("with_password", host="localhost", port=password_server.port, password=PASSWORD)

    with pytest.raises(AirflowFailException, match="set auth_env in the extra") as failed:
        execute(make_operator(redis_conn_id="with_password"), instance)

    assert PASSWORD not in str(failed.value)
    assert submitted == []


def test_a_missing_connection_is_named(make_operator: MakeOperator, instance: Instance) -> None:
    with pytest.raises(AirflowException, match="no_such_connection"):
        execute(make_operator(redis_conn_id="no_such_connection"), instance)


def test_the_module_says_what_it_needs_where_the_spark_provider_is_missing() -> None:
    program = """
import sys
sys.modules["airflow.providers.apache.spark.operators"] = None
try:
    import airflow_provider_sluicegate.operators.spark_submit
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT)

    assert said.splitlines()[-1].startswith("AirflowOptionalProviderFeatureException ")
    assert "install apache-airflow-providers-apache-spark, or use SparkRedisQueueDrainOperator" in said


# ---------------------------------------------------------------------- the documentation


def test_the_dag_of_the_documentation_submits(
    airflow_deployment: Deployment, queue: RedisMessageQueue, submitted: list[list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "documented_spark_submit.py"
    file.write_text(snippet("airflow-spark-submit"))

    with airflow_deployment.dags([file]) as dags:
        run = dags["store_orders_with_spark_submit"].test()

    assert states(run) == {"store": "success"}
    given = vars(submit._parser().parse_args(submitted[0][1:]))
    assert given["run_id"] == "/".join(("store_orders_with_spark_submit", "store", run.run_id, "-1"))
    assert (json.loads(given["spec"])["name"], given["process"]) == ("orders", "orders_jobs:store")
