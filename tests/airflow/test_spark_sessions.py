"""Draining with Spark sessions that the operator makes and stops, by Airflow itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import timezone

from sluicegate import RedisMessageQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.servers import PasswordServer
from tests.support.servers import free_port
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.usefixtures("jvm")]

DAG_FILE = Path(__file__).parent / "dags" / "spark_drains.py"
DAY = timezone.parse("2013-01-01")
START_SECONDS = 120.0  # for a JVM and Python workers on a busy machine


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


def has_session() -> bool:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None or SparkContext._active_spark_context is not None


@pytest.mark.full  # the task of the documentation and the drain's retry stand for it in the quick lane
def test_a_dag_drains_on_its_connection_and_its_retry_works_on_what_failed(
    airflow_deployment: Deployment,
    password_server: PasswordServer,
    connect: Connect,
    queue_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    monkeypatch.setenv("ORDERS_PASSWORD", PASSWORD)
    connect("orders_redis", host="localhost", port=password_server.port, extra={"auth_env": "ORDERS_PASSWORD"})
    connect("orders_spark", conn_type="spark", host="local[2]", extra={"spark.executorEnv.ORDERS_PASSWORD": PASSWORD})
    url = f"redis://localhost:{password_server.port}/0?password_env=ORDERS_PASSWORD"
    queue = RedisMessageQueue(queue_name, url=url)
    queue.publish_many({"n": n, "fails": n == 17, "note": "CANARY"} for n in range(25))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["spark_drains"].test(run_conf={"queue": queue_name, "spark": "orders_spark"})

    assert states(run) == {"work": "success", "nothing_left": "skipped"}
    found = xcoms(run)
    assert found["work"]["run_id"] == "/".join(("spark_drains", "work", run.run_id, "-1"))
    # The second try counts what the first one did, too: it returned one message and acked the others.
    assert {name: found["work"][name] for name in ("acked", "returned", "failed")} == {
        "acked": 25,
        "returned": 1,
        "failed": 0,
    }
    assert found["nothing_left"]["claimed"] == 0
    assert numbers_in(tmp_path) == list(range(25))
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)
    queue.close()
    assert not has_session(), "the operator stops the sessions that it made"
    assert airflow_deployment.rendered(run, "work")["config_kwargs"] == {"spark.app.name": f"drain of {queue_name}"}
    shown = airflow_deployment.stored() + "".join(capfd.readouterr()).encode() + json.dumps(found).encode()
    assert b"the handler failed on 1 of 25 messages" in shown
    assert b"CANARY" not in shown
    assert PASSWORD.encode() not in shown
    assert "TEXT" not in json.dumps(found)


@pytest.mark.full
@pytest.mark.slow
def test_a_killed_task_loses_nothing_and_its_retry_acks_nothing_twice(
    airflow_deployment: Deployment, queue: RedisMessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    queue.publish_many({"n": n} for n in range(200))
    dag_file = DAG_FILE.with_name("spark_held.py")
    program = [sys.executable, "-m", "tests.airflow.running", str(airflow_deployment.home), str(dag_file)]
    # Each partition holds its third batch. The driver and its JVM are killed; the workers notice that and end.
    first = subprocess.Popen([*program, "spark_held", queue.name], start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("held-*"))) == 2, "the batches are held", START_SECONDS)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    workers = [int(file.read_text()) for file in tmp_path.glob("held-*")]
    wait_until(lambda: not any(map(psutil.pid_exists, workers)), "Spark's workers have ended with their driver")
    done = queue.stats().acked
    assert 0 < done < 200
    assert queue.depth().in_flight == 20
    (tmp_path / "go").touch()

    with airflow_deployment.dags([dag_file]) as dags:
        run = dags["spark_held"].test(logical_date=DAY, run_after=DAY, run_conf={"queue": queue.name})

    report = xcoms(run)["work"]
    assert (report["acked"], report["taken_over"]) == (200, 2)
    assert sum(part["replayed"] for part in report["partitions"]) == done / 10
    assert numbers_in(tmp_path) == list(range(200))
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, queue.stats().acked) == (0, 0, 200)


@pytest.mark.full
@pytest.mark.slow
def test_spark_connect_drains_and_a_stopped_task_cancels_there(
    airflow_deployment: Deployment,
    queue: RedisMessageQueue,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Client and server are processes of their own, because a process has sessions of one kind only."""
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    port = free_port()
    connect("connect", conn_type="spark_connect", host="localhost", port=port)
    queue.publish_many({"n": n} for n in range(60))
    ready = tmp_path / "ready"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.airflow.connect_server", str(port), str(ready)], stdin=subprocess.PIPE
    ) as server:
        try:
            wait_until(ready.exists, "the server listens", START_SECONDS)
            arguments = [str(airflow_deployment.home), queue.name, str(tmp_path)]
            done = subprocess.run(
                [sys.executable, "-m", "tests.airflow.on_connect", *arguments],
                text=True,
                capture_output=True,
                timeout=240,
                check=False,
            )
        finally:
            server.terminate()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["stopped"].endswith("trying again is safe")
    assert told["seconds"] < 5, "Airflow kills a task that does not end by then"
    assert told["in_flight"] == 10
    assert (told["report"]["acked"], told["report"]["taken_over"]) == (60, 1)
    assert numbers_in(tmp_path) == list(range(60))
    assert queue.stats().acked == 60


# ---------------------------------------------------------------------- the documentation


def documented(deployment: Deployment, file: Path, code: str) -> Any:
    """Run the DAG of a snippet."""
    file.write_text(code)
    with deployment.dags([file]) as dags:
        (dag,) = [dag for dag in dags.values() if dag.fileloc.endswith(file.name)]
        return dag.test()


@pytest.fixture
def orders_queue(queue: RedisMessageQueue, embedded_url: str) -> Any:
    """Yield the queue of the snippets with five orders, of which the first costs less than nothing."""
    orders = RedisMessageQueue("orders", url=embedded_url)
    orders.publish_many({"order_id": f"o{number}", "amount": number - 1.0} for number in range(5))
    yield orders
    for state in ("pending", "returned", "delayed", "dead"):
        orders.purge(state)
    orders.close()


@pytest.mark.full  # the task of the documentation stands for it in the quick lane
def test_the_dag_of_the_documentation_stores_what_is_fine_and_buries_the_rest(
    airflow_deployment: Deployment, orders_queue: RedisMessageQueue, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    stored = str(tmp_path / "stored")
    code = snippet("airflow-spark-drain").replace("/data/orders", stored)
    run = documented(airflow_deployment, tmp_path / "documented_spark_drain.py", code)

    assert states(run) == {"store": "success"}
    assert sorted(pq.read_table(stored)["order_id"].to_pylist()) == ["o1", "o2", "o3", "o4"]
    assert (orders_queue.depth().ready, orders_queue.depth().in_flight, orders_queue.depth().dead) == (0, 0, 1)
    assert not has_session()


def test_the_task_of_the_documentation_drains_and_reads_with_one_session(
    airflow_deployment: Deployment, orders_queue: RedisMessageQueue, tmp_path: Path
) -> None:
    code = snippet("airflow-pyspark").replace("/data/counted", str(tmp_path / "counted"))
    run = documented(airflow_deployment, tmp_path / "documented_pyspark.py", code)

    assert xcoms(run) == {"count": 5}
    assert (orders_queue.depth().ready, orders_queue.depth().in_flight) == (0, 0)
