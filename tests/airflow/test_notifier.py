"""A notifier as a callback of tasks and runs, run by Airflow itself, and of deadlines."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_sluicegate.compat import AirflowException
from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier
from sluicegate import Message, RedisMessageQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

NOTIFIER = "airflow_provider_sluicegate.notifications.redis_queue.RedisQueueNotifier"
MISSED = {
    "dag_run": {"dag_id": "orders", "dag_run_id": "r1", "state": "running", "conf": {"token": "CANARY"}},
    "deadline": {"id": "1", "deadline_time": "2026-01-01T00:00:00+00:00"},
}


def taken(queue: RedisMessageQueue) -> list[Message]:
    lease = queue.claim(100)
    lease.ack()
    return list(lease.messages)


def payloads(queue: RedisMessageQueue) -> list[Any]:
    return [message.json() for message in taken(queue)]


def test_tasks_and_their_run_notify_of_their_end(
    airflow_deployment: Deployment, queue: RedisMessageQueue, capfd: pytest.CaptureFixture[str]
) -> None:
    with airflow_deployment.dags([Path(__file__).parent / "dags" / "notifies.py"]) as dags:
        run = dags["notifies"].test(run_conf={"queue": queue.name})

    assert states(run) == {"works": "success", "is_not_heard": "success", "fails": "failed"}
    works, *of_tasks = taken(queue)
    assert works.json() == {"task": "works", "of": [run.run_id]}
    instance = {"dag_id": "notifies", "run_id": run.run_id, "task_id": "fails", "map_index": -1}
    assert [message.json() for message in of_tasks] == [
        {**instance, "try_number": 1, "state": "up_for_retry"},
        {**instance, "try_number": 2, "state": "failed"},
    ]
    assert b"NIGHTINGALE" not in b"".join(message.payload for message in of_tasks)
    printed = "".join(capfd.readouterr())
    assert "could not be published to queue 'unheard' on connection 'no_such_connection'" in printed


def test_a_run_notifies_of_its_end_and_not_of_its_last_task(queue: RedisMessageQueue) -> None:
    # As the DAG processor calls the callbacks of a DAG.
    with DAG("orders", schedule=None) as dag:
        notifier = RedisQueueNotifier(queue.name, headers={"of": "{{ dag.dag_id }}"})
    run = SimpleNamespace(state="failed", conf={"token": "CANARY"})

    notifier({"dag": dag, "run_id": "r1", "reason": "timed_out"})
    notifier({"dag": dag, "run_id": "r1", "reason": "task_failure", "dag_run": run, "ti": SimpleNamespace(task_id="t")})

    minimal, full = taken(queue)
    assert minimal.json() == {"dag_id": "orders", "run_id": "r1", "reason": "timed_out"}
    assert full.json() == {"dag_id": "orders", "run_id": "r1", "state": "failed", "reason": "task_failure"}
    assert full.headers == {"of": "orders"}


def test_a_deadline_notifies_in_the_triggerer(queue: RedisMessageQueue) -> None:
    async def run() -> None:
        try:
            from airflow.triggers.callback import CallbackTrigger as Trigger
        except ImportError:  # Airflow 3.1
            from airflow.triggers.deadline import DeadlineCallbackTrigger as Trigger

        arguments = json.loads(json.dumps({"queue_name": queue.name, "context": MISSED}))
        events = [event async for event in Trigger(NOTIFIER, arguments).run()]
        assert "success" in str(events[-1].payload.values()).lower(), events[-1].payload

    asyncio.run(run())

    assert payloads(queue) == [
        {"dag_id": "orders", "run_id": "r1", "state": "running", "deadline": "2026-01-01T00:00:00+00:00"}
    ]


def test_a_deadline_notifies_on_a_worker(queue: RedisMessageQueue) -> None:
    arguments = {"queue_name": queue.name, "message": {"dag": "{{ dag_run.dag_id }}"}, "context": MISSED}
    if find_spec("airflow.sdk.execution_time.callback_supervisor") is None:  # from Airflow 3.2 on
        RedisQueueNotifier(queue.name, arguments["message"])(MISSED)
    else:
        run_on_worker(arguments)

    assert payloads(queue) == [{"dag": "orders"}]


def run_on_worker(arguments: dict[str, Any]) -> None:
    """Run a synchronous callback as an executor of Airflow does."""
    import inspect

    import structlog
    from airflow.sdk.execution_time.callback_supervisor import execute_callback

    where = {"dag_rel_path": "orders.py", "bundle_path": None}
    known = inspect.signature(execute_callback).parameters
    places = {name: where[name] for name in where if name in known}
    assert execute_callback(NOTIFIER, arguments, log=structlog.get_logger(), **places) == (True, None)


def test_every_field_is_rendered(queue: RedisMessageQueue, connect: Connect, embedded_url: str) -> None:
    connect("acme_redis", extra={"url": embedded_url})
    notifier = RedisQueueNotifier(
        "{{ params.queue }}",
        "{{ params.tenant }} is late",
        headers={"tenant": "{{ params.tenant }}"},
        redis_conn_id="{{ params.tenant }}_redis",
    )

    notifier({"params": {"tenant": "acme", "queue": queue.name}})

    (message,) = taken(queue)
    assert (message.payload, message.headers) == (b"acme is late", {"tenant": "acme"})


def test_a_repeated_notification_is_refused_with_a_key(queue: RedisMessageQueue) -> None:
    for _ in range(2):
        RedisQueueNotifier(queue.name, queue_options={"get_deduplication_key": "run_id"})(dict(MISSED))

    assert len(payloads(queue)) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_that_is_away_is_named_with_the_queue_and_the_connection(connect: Connect, asynchronous: bool) -> None:
    port = free_port()
    connect("cache", host="localhost", port=port, password=PASSWORD)
    notifier = RedisQueueNotifier("failures", redis_conn_id="cache", context=dict(MISSED))

    async def wait() -> None:
        await notifier

    with pytest.raises(AirflowException) as failed:
        asyncio.run(wait()) if asynchronous else notifier(dict(MISSED))

    text = str(failed.value)
    assert f"to queue 'failures' on connection 'cache': Redis at localhost:{port}" in text
    assert PASSWORD not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"queue_name": "{{ params.none }}"},
            "to queue '' on connection 'sluicegate_default': queue name is blank",
        ),
        ({"queue_name": "q", "message": {"price": object()}}, "on connection 'sluicegate_default': "),
        ({"queue_name": "q", "queue_options": {"url": "redis://x"}}, "url is not an option here"),
        ({"queue_name": "q", "redis_conn_id": "nowhere"}, "there is no connection 'nowhere'; add it"),
    ],
)
@pytest.mark.usefixtures("queue")
def test_what_cannot_work_says_what_to_do(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(AirflowException) as failed:
        RedisQueueNotifier(**arguments)({"params": {"none": ""}, **MISSED})

    assert words in str(failed.value)


def test_the_dag_of_the_documentation_notifies(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_notifier.py"
    file.write_text(snippet("airflow-notifier"))
    queue = RedisMessageQueue("failures", url=embedded_url)

    with airflow_deployment.dags([file]) as dags:
        run = dags["load_orders"].test()

    assert states(run) == {"load": "failed"}
    (found,) = payloads(queue)
    assert (found["dag_id"], found["task_id"], found["state"]) == ("load_orders", "load", "failed")
    queue.close()


def test_making_one_contacts_nothing() -> None:
    DAG("orders", schedule=None, on_failure_callback=RedisQueueNotifier("failures", redis_conn_id="no_such_connection"))
