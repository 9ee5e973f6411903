"""The example DAGs do what they say, by a schedule, by hand and by an asset; another file has the one of Spark.

A run by hand or by an asset event has no logical date.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import stop_server
from tests.airflow.answering import answered, answered_at_once, can_wait_for_a_person
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.examples import EXAMPLES, example
from tests.support.project import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.airflow

NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py"))
dated = pytest.mark.parametrize("has_date", [True, False], ids=["scheduled", "by hand or asset"])

Open = Callable[[str], RedisMessageQueue]


@pytest.fixture
def open_queue(tmp_path: Path, connect: Connect) -> Iterator[Open]:
    """Open queues on an embedded server of this test, which is the default connection too."""
    folder = tmp_path / "redis"
    url = f"embedded://{folder}"
    connect(extra={"url": url})
    queues: list[RedisMessageQueue] = []

    def open_one(name: str) -> RedisMessageQueue:
        queues.append(RedisMessageQueue(name, url=url))
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()
    stop_server(folder)


def run(dag: Any, has_date: bool) -> Any:
    """Run a DAG now, with or without a logical date."""
    now = datetime.now(UTC)
    return dag.test(run_after=now, logical_date=now if has_date else None)


def lines_in(folder: Path, suffix: str = ".jsonl") -> list[Any]:
    """Return the messages that a drain wrote."""
    return [
        json.loads(line) for file in sorted(folder.glob(f"[!.]*{suffix}")) for line in file.read_text().splitlines()
    ]


# ---------------------------------------------------------------------- all of them


def test_reading_the_examples_needs_no_redis_and_no_connection(tmp_path: Path) -> None:
    """Read them in a process in which nothing may be reached or looked up, as the DAG processor reads them."""
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow.reading_examples"],
        env={**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "errors": {},
        "dags": {
            "by_asset": ["by_asset_consumer", "by_asset_producer"],
            "lease_across_tasks": ["lease_across_tasks"],
            "mapped_tenants": ["mapped_tenants"],
            "publish_batch_wait": ["publish_batch_wait", "publish_batch_wait_drain"],
            "publish_gate_spark_drain": ["publish_gate_spark_drain"],
            "redrive_after_approval": ["redrive_after_approval"],
            "redrive_on_schedule": ["redrive_on_schedule"],
            "run_per_message": ["render_report", "run_per_message"],
        },
        "heavy": [],
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_when_to_use_it_and_what_happens_on_failure_and_needs_no_logical_date(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()

    assert "\nUse it when " in text or "\nUse it for " in text
    assert "\nWhat happens on failure:\n- " in text
    assert "\nIt needs the connection `sluicegate_default`" in text
    assert not {"{{ ds", "logical_date }}", "data_interval_"} & set(text.split())


# ---------------------------------------------------------------------- by asset


@dated
def test_what_one_dag_publishes_another_one_drains(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    queue = open_queue("example-by-asset")

    with example(airflow_deployment, "by_asset", tmp_path) as dags:
        published = xcoms(run(dags["by_asset_producer"], has_date))
        ready = queue.depth().ready
        drained = xcoms(run(dags["by_asset_consumer"], has_date))
        again = run(dags["by_asset_consumer"], has_date)

    assert (published["publish"]["published"], ready) == (2500, 2500)
    assert drained["drain"]["acked"] == 2500
    assert sorted(order["order_id"] for order in lines_in(tmp_path / "by_asset")) == list(range(2500))
    assert states(again) == {"drain": "skipped"}, "a gate that fires again for nothing harms nothing"


def test_the_gate_of_the_queue_schedules_the_consumer_and_the_publish_does_not(
    airflow_deployment: Deployment, tmp_path: Path
) -> None:
    with example(airflow_deployment, "by_asset", tmp_path) as dags:
        (asset,) = dags["by_asset_consumer"].schedule
        producer = dags["by_asset_producer"]

    (watcher,) = asset.watchers
    path, arguments = watcher.trigger.serialize()
    assert path == "airflow_provider_sluicegate.triggers.event.RedisQueueEventTrigger"
    assert json.loads(json.dumps(arguments)) == arguments
    assert (arguments["queue_name"], arguments["min_ready"], arguments["max_age_seconds"]) == (
        "example-by-asset",
        1000,
        60,
    )
    assert producer.get_task("publish").outlets == []
    assert producer.get_task("publish").queue_name == arguments["queue_name"]


# ---------------------------------------------------------------------- a batch


@dated
def test_a_dag_continues_when_its_batch_has_been_drained_by_another_one(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    queue = open_queue("example-batch")

    def drain() -> None:
        wait_until(lambda: queue.depth().ready == 2500, "the batch is published")
        queue.claim(1000).nack()  # tried again
        while lease := queue.claim(1000):
            lease.ack()

    with example(airflow_deployment, "publish_batch_wait", tmp_path) as dags:
        drainer = threading.Thread(target=drain)
        drainer.start()
        done = run(dags["publish_batch_wait"], has_date)
        drainer.join()

    assert states(done) == {"publish": "success", "drained": "success", "close_books": "success"}
    found = xcoms(done)
    assert (found["publish"]["batch_id"], found["drained"]["done"]) == (f"orders/{done.run_id}", 2500)
    assert found["close_books"].startswith("2500 of 2500 orders are stored, since 2")


def test_the_drain_of_the_batch_example_stores_its_orders(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue("example-batch")
    batch = queue.batch([{"order_id": number} for number in range(50)])

    with example(airflow_deployment, "publish_batch_wait", tmp_path) as dags:
        run(dags["publish_batch_wait_drain"], False)

    assert batch.status().done == 50
    assert sorted(order["order_id"] for order in lines_in(tmp_path / "batch")) == list(range(50))


# ---------------------------------------------------------------------- one lease


@dated
def test_several_tasks_work_on_one_batch_that_is_acked_after_the_last(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    queue = open_queue("example-invoices")
    queue.publish_many({"cents": cents, "customer": f"c{cents % 2}"} for cents in (500, -100, 701))

    with example(airflow_deployment, "lease_across_tasks", tmp_path) as dags:
        done = run(dags["lease_across_tasks"], has_date)

    found = xcoms(done)
    assert set(states(done).values()) == {"success"}
    assert (found["check"], found["book"], found["mail"]) == (3, 1201, ["c0", "c1"])
    assert found["settle"] == {"acked": 2, "returned": 0, "buried": 0}
    assert (queue.depth().ready, queue.depth().in_flight, queue.depth().dead) == (0, 0, 1)


def test_a_step_that_fails_returns_the_batch(airflow_deployment: Deployment, open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue("example-invoices")
    queue.publish({"cents": 1})  # nobody to write to

    with example(airflow_deployment, "lease_across_tasks", tmp_path) as dags:
        dags["lease_across_tasks"].get_task("mail").retries = 0
        done = run(dags["lease_across_tasks"], False)

    assert (done.state, states(done)["mail"], states(done)["settle"]) == ("failed", "failed", "failed")
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (1, 0, 0)


# ---------------------------------------------------------------------- one run per message


@dated
def test_each_message_starts_one_run_that_has_it_in_its_conf(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    queue = open_queue("example-reports")
    queue.publish_many({"report": f"r{number}"} for number in range(3))
    with queue.claim(3) as lease:
        ids = sorted(message.id for message in lease)
        lease.release()

    with example(airflow_deployment, "run_per_message", tmp_path) as dags:
        done = run(dags["run_per_message"], has_date)
        started = started_runs("render_report", ids)

    assert set(states(done).values()) == {"success"}
    assert len(states(done)) == 4
    assert {run_id: conf["payload"]["report"] for run_id, conf in started.items()} == {
        f"message-{message_id}": f"r{number}" for number, message_id in enumerate(ids)
    }
    assert (queue.depth().in_flight, queue.stats().acked) == (0, 3)


def test_a_message_that_is_delivered_again_starts_no_second_run(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue("example-reports")
    queue.publish({"report": "r"})
    with queue.claim(1) as lease:
        (message_id,) = [message.id for message in lease]
        lease.release()

    with example(airflow_deployment, "run_per_message", tmp_path) as dags:
        run(dags["run_per_message"], False)
        assert list(started_runs("render_report", [message_id])) == [f"message-{message_id}"]
        # The same message again, as if the ack of the first run had been lost.
        dispatcher = dags["run_per_message"]
        dispatcher.get_task("batch").execute = lambda context: [{"id": message_id, "payload": {"report": "r"}}]
        done = run(dispatcher, False)

    assert states(done) == {"batch": "success", "start[0]": "skipped"}


def test_the_run_of_a_message_works_on_its_conf(airflow_deployment: Deployment, tmp_path: Path) -> None:
    with example(airflow_deployment, "run_per_message", tmp_path) as dags:
        done = dags["render_report"].test(run_conf={"id": "m1", "payload": {"report": "r1"}})

    assert xcoms(done) == {"render": "report r1 of message m1"}


def started_runs(dag_id: str, message_ids: list[str]) -> dict[str, Any]:
    """Return the conf of the runs that were started for messages."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    wanted = [f"message-{message_id}" for message_id in message_ids]
    with create_session() as session:
        rows = session.execute(
            select(DagRun.run_id, DagRun.conf).where(DagRun.dag_id == dag_id, DagRun.run_id.in_(wanted))
        ).all()
    return dict(sorted(tuple(row) for row in rows))


# ---------------------------------------------------------------------- one queue per tenant


@dated
def test_each_tenant_has_a_queue_and_a_task(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    (tmp_path / "incoming").mkdir()
    for tenant, count in (("acme", 3), ("initech", 2), ("umbrella", 0)):
        text = "".join(json.dumps({"order_id": f"{tenant}{number}"}) + "\n" for number in range(count))
        (tmp_path / "incoming" / f"{tenant}.jsonl").write_text(text)

    with example(airflow_deployment, "mapped_tenants", tmp_path) as dags:
        done = run(dags["mapped_tenants"], has_date)

    found = states(done)
    assert {name: state for name, state in found.items() if state != "success"} == {"drain[2]": "skipped"}
    assert [order["order_id"] for order in lines_in(tmp_path / "tenants" / "acme")] == ["acme0", "acme1", "acme2"]
    assert [order["order_id"] for order in lines_in(tmp_path / "tenants" / "initech")] == ["initech0", "initech1"]
    assert open_queue("example-tenant-acme").stats().acked == 3


# ---------------------------------------------------------------------- dead letters


def bury(queue: RedisMessageQueue, count: int, reason: str = "handler_error") -> None:
    """Publish messages and bury them."""
    queue.publish_many({"n": number} for number in range(count))
    with queue.claim(count) as lease:
        lease.bury(reason=reason)


@dated
def test_dead_letters_are_redriven_and_the_alert_counts_them(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, has_date: bool
) -> None:
    queue, alerts = open_queue("example-to-redrive"), open_queue("example-alerts")
    bury(queue, 3)
    bury(queue, 1, reason="malformed")

    with example(airflow_deployment, "redrive_on_schedule", tmp_path) as dags:
        for name in ("count", "redrive"):
            dags["redrive_on_schedule"].get_task(name).older_than_seconds = 0
        done = run(dags["redrive_on_schedule"], has_date)

    assert set(states(done).values()) == {"success"}
    assert (queue.depth().ready, queue.depth().dead) == (3, 1)
    with alerts.claim(10) as lease:
        assert [message.json() for message in lease] == [{"queue": "example-to-redrive", "redriven": "3 of 3"}]


def test_without_old_dead_letters_nothing_is_redriven_and_nobody_is_alerted(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path
) -> None:
    queue, alerts = open_queue("example-to-redrive"), open_queue("example-alerts")
    bury(queue, 3)  # younger than an hour

    with example(airflow_deployment, "redrive_on_schedule", tmp_path) as dags:
        done = run(dags["redrive_on_schedule"], False)

    assert states(done) == {"count": "success", "is_any": "success", "redrive": "skipped"}
    assert (queue.depth().dead, alerts.depth().ready) == (3, 0)


@pytest.mark.parametrize(
    ("answer", "moved", "has_date"), [("Approve", 3, False), ("Approve", 3, True), ("Reject", 0, False)]
)
def test_a_person_approves_what_was_counted(
    airflow_deployment: Deployment, open_queue: Open, tmp_path: Path, answer: str, moved: int, has_date: bool
) -> None:
    queue = open_queue("example-payments")
    bury(queue, 3)

    def died_meanwhile() -> None:
        bury(queue, 2)

    with example(airflow_deployment, "redrive_after_approval", tmp_path) as dags:
        dag = dags["redrive_after_approval"]
        if can_wait_for_a_person():
            asking = answered(answer, before=died_meanwhile)
        else:
            asking = answered_at_once(dag.get_task("approve"), answer, before=died_meanwhile)
        with asking as request:
            done = run(dag, has_date)

    assert states(done)["redrive"] == ("success" if moved else "skipped")
    assert "3 dead letters would be delivered again, 0 are blocked" in request.body
    assert (queue.depth().ready, queue.depth().dead) == (moved, 5 - moved)


def test_nobody_is_asked_when_nothing_is_dead(airflow_deployment: Deployment, open_queue: Open, tmp_path: Path) -> None:
    open_queue("example-payments")

    with example(airflow_deployment, "redrive_after_approval", tmp_path) as dags:
        done = run(dags["redrive_after_approval"], False)

    assert states(done) == {"count": "success", "is_any": "success", "approve": "skipped", "redrive": "skipped"}
