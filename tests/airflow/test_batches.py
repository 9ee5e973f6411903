"""A task publishes a batch as a unit, any consumer drains it, and a sensor waits for its end. Real Redis."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowFailException, TaskDeferred
from airflow.sdk.module_loading import import_string

from airflow_provider_sluicegate.compat import AirflowException
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.batch import RedisQueueBatchSensor
from airflow_provider_sluicegate.triggers.batch import RedisQueueBatchTrigger
from sluicegate import RedisMessageQueue
from sluicegate.bulk.publisher import PublishStoppedError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.airflow.servers import PasswordServer
from tests.airflow.test_triggers import event_of, readings, run, started  # noqa: F401  (a fixture)
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.airflow


def publish(queue: RedisMessageQueue, instance: Instance, count: int = 5, **arguments: Any) -> dict[str, Any]:
    given = {"messages": [{"n": number, "note": "CANARY"} for number in range(count)], "batch_id": "b/1"}
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, **(given | arguments))
    report: dict[str, Any] = operator.execute({"ti": instance})  # type: ignore[typeddict-item]
    return report


def drain_all(queue: RedisMessageQueue) -> None:
    """Ack what waits; what was delivered before comes in smaller leases."""
    while lease := queue.claim(100):
        lease.ack()


def sensor(queue: RedisMessageQueue, **arguments: Any) -> RedisQueueBatchSensor:
    given = {"batch_id": "b/1", "poke_interval": 0.01}
    return RedisQueueBatchSensor(task_id="drained", queue_name=queue.name, **(given | arguments))


def poke(queue: RedisMessageQueue, **arguments: Any) -> Any:
    return sensor(queue, **arguments).poke({}).xcom_value  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------- publish


def test_a_publish_is_a_batch_that_other_tasks_know_by_its_id(queue: RedisMessageQueue, instance: Instance) -> None:
    report = publish(queue, instance, batch_size=2)

    status = queue.get_batch("b/1").status()
    assert (report["batch_id"], report["published"], report["batches"]) == ("b/1", 5, 3)
    assert instance.pushed == {"batch_id": "b/1"}
    assert (status.total, status.waiting, status.sealed) == (5, 5, True)


def test_a_retry_rejoins_its_batch_and_publishes_what_is_missing(queue: RedisMessageQueue, instance: Instance) -> None:
    def broken() -> Any:
        yield from ({"n": number} for number in range(3))
        raise OSError("the source is away")

    def whole() -> Any:
        return ({"n": number} for number in range(5))

    with pytest.raises(PublishStoppedError, match=r"a retry is safe: it rejoins batch 'b/1' and publishes what is mis"):
        publish(queue, instance, messages=broken, batch_size=2)
    assert poke(queue) is None
    assert queue.get_batch("b/1").status().sealed is False, "nobody may take half a batch for a whole one"
    queue.claim(2).ack()
    report = publish(queue, instance, messages=whole, batch_size=2)
    cleared = publish(queue, instance, messages=whole, batch_size=2)

    assert report["published"] == cleared["published"] == 5
    assert queue.stats().published == 5
    with queue.claim(10) as lease:
        assert [message.json()["n"] for message in lease.messages] == [2, 3, 4]
    assert poke(queue)["done"] == 5


def test_other_messages_under_the_same_id_fail_the_task(queue: RedisMessageQueue, instance: Instance) -> None:
    publish(queue, instance)

    with pytest.raises((AirflowFailException, PublishStoppedError), match="batch"):
        publish(queue, instance, 7)
    assert queue.get_batch("b/1").status().total == 5


def test_a_full_queue_defers_a_batch_without_a_key(queue: RedisMessageQueue, instance: Instance) -> None:
    arguments: dict[str, Any] = {
        "messages": [{"n": number} for number in range(5)],
        "batch_id": "b/1",
        "batch_size": 2,
        "deferrable": True,
        "queue_options": {"max_pending_length": 3},
    }
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, **arguments)
    with pytest.raises(TaskDeferred) as full:
        operator.execute({"ti": instance})  # type: ignore[typeddict-item]
    queue.claim(3).ack()

    report = operator.execute_complete(
        {"ti": instance},  # type: ignore[typeddict-item]
        {"status": "room", "waiting": 0},
        **(full.value.kwargs or {}),
    )

    assert (report["published"], queue.stats().published) == (5, 5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch_id": "None"}, "batch_id is 'None'; if it is a template, it rendered to nothing"),
        ({"batch_id": "x" * 2000}, "batch_id has 2000 characters"),
    ],
)
def test_an_id_that_cannot_work_fails_the_publish_at_once(
    queue: RedisMessageQueue, instance: Instance, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(AirflowFailException, match=says):
        publish(queue, instance, **arguments)
    assert queue.stats().published == 0


def test_a_stream_has_no_batches(queue: RedisMessageQueue, instance: Instance) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", stream="orders", messages=[{"n": 1}], batch_id="b")
    with pytest.raises(AirflowFailException, match="has no batches, because each of its groups"):
        operator.execute({"ti": instance})  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------- the sensor


def test_it_waits_until_everything_has_been_drained_by_whomever(queue: RedisMessageQueue, instance: Instance) -> None:
    assert poke(queue) is None, "no such batch yet"
    publish(queue, instance)
    queue.publish({"n": "of no batch"})
    lease = queue.claim(2)
    assert poke(queue) is None
    lease.nack()
    assert poke(queue) is None
    drain_all(queue)

    value = poke(queue)

    assert value.pop("completed_at").endswith("+00:00")
    assert value == {"queue": queue.name, "batch_id": "b/1", "total": 5, "done": 5, "dead": 0, "gone": 0}


def test_dead_letters_fail_it_or_are_counted_and_a_redrive_reopens_the_batch(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    publish(queue, instance, 3)
    queue.claim(1).bury(error="CANARY")
    queue.claim(2).ack()

    with pytest.raises(
        AirflowFailException, match=r"1 of its 3 messages are dead letters; redrive them and cl"
    ) as dead:
        sensor(queue).execute({"ti": instance})  # type: ignore[typeddict-item]
    ignored = sensor(queue, on_dead="ignore").execute({"ti": instance})  # type: ignore[typeddict-item]
    queue.redrive()
    assert poke(queue) is None
    drain_all(queue)

    assert (ignored["done"], ignored["dead"]) == (2, 1)
    assert (poke(queue)["done"], poke(queue)["dead"]) == (3, 0)
    assert "CANARY" not in str(dead.value)


def test_purged_messages_are_gone_and_an_empty_batch_is_complete(queue: RedisMessageQueue, instance: Instance) -> None:
    publish(queue, instance, 3)
    queue.purge("pending")
    publish(queue, instance, 0, batch_id="empty")

    assert poke(queue)["gone"] == 3
    assert poke(queue, batch_id="empty")["total"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch_id": ""}, 'give the batch_id of the publish, or its output: batch_id=publish.output\\["batch_id"\\]'),
        ({"batch_id": None}, "batch_id is None"),
        ({"batch_id": "x" * 2000}, "batch_id has 2000 characters"),
        ({"on_dead": "retry"}, "on_dead"),
        ({"queue_name": " "}, "queue name is blank"),
        ({"redis_conn_id": "nowhere"}, "there is no connection 'nowhere'"),
    ],
)
@pytest.mark.parametrize("deferrable", [True, False])
def test_what_cannot_work_fails_at_once(
    queue: RedisMessageQueue, instance: Instance, arguments: dict[str, Any], says: str, deferrable: bool
) -> None:
    given = {"queue_name": queue.name, "batch_id": "b/1", "deferrable": deferrable, "poke_interval": 0.01}
    with pytest.raises(AirflowException, match=says):
        RedisQueueBatchSensor(task_id="drained", **(given | arguments)).execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


# ---------------------------------------------------------------------- in the triggerer


def test_it_waits_in_the_triggerer(queue: RedisMessageQueue, instance: Instance, readings: Any) -> None:  # noqa: F811
    publish(queue, instance)
    gate = sensor(queue, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        gate.execute({"ti": instance})  # type: ignore[typeddict-item]
    trigger: Any = deferred.value.trigger
    assert trigger.initial_delay_seconds > 0, "not before Airflow knows of the deferral"
    trigger.initial_delay_seconds = 0

    async def work() -> dict[str, Any]:
        async with started(trigger) as (waiting,):
            await readings(2)
            assert not waiting.done()
            await asyncio.to_thread(queue.claim(5).ack)
            return await waiting

    event = run(work)
    assert event["status"] == "complete"
    assert gate.execute_complete({"ti": instance}, event)["done"] == 5  # type: ignore[typeddict-item]


def test_sensors_of_batches_and_of_depths_share_one_poller(
    password_server: PasswordServer,
    connect: Connect,
    readings: Any,  # noqa: F811
) -> None:
    from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger

    connect(host="127.0.0.1", port=password_server.port, password=PASSWORD)
    triggers: list[Any] = [
        RedisQueueBatchTrigger(queue_name="batches", batch_id=f"b{number}", poll_interval_seconds=0.2)
        for number in range(100)
    ]
    triggers.append(RedisQueueTrigger(queue_name="batches", min_ready=1000, poll_interval_seconds=0.2))

    async def work() -> None:
        with password_server.client() as client:
            others = {one["id"] for one in client.client_list()}
            async with started(*triggers) as tasks:
                await readings(2)
                client.config_resetstat()
                await readings(3)
                assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 303
                assert len({one["id"] for one in client.client_list()} - others) <= 2
                assert not any(task.done() for task in tasks)
            assert {one["id"] for one in client.client_list()} <= others, "the poller closed its connections"

    run(work)


def test_its_trigger_is_rebuilt_from_plain_values() -> None:
    trigger = RedisQueueBatchTrigger(queue_name="orders", batch_id="b/1", poll_interval_seconds=2.5)

    path, arguments = trigger.serialize()

    assert import_string(path)(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)
    assert "queue" not in arguments


def test_an_id_that_cannot_work_ends_the_trigger(queue: RedisMessageQueue) -> None:
    event = run(lambda: event_of(RedisQueueBatchTrigger(queue_name=queue.name, batch_id="x" * 2000)))

    assert (event["status"], event["is_permanent"]) == ("error", True)
    with pytest.raises(AirflowFailException, match="batch_id has 2000 characters"):
        sensor(queue).execute_complete({}, event)  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------- a DAG


def test_the_documentations_dag_waits_for_its_batch(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "close_the_day.py"
    file.write_text(snippet("airflow-batch"))

    with RedisMessageQueue("day-orders", url=embedded_url) as queue, airflow_deployment.dags([file]) as dags:

        def work() -> None:
            wait_until(lambda: queue.depth().ready == 3, "the messages wait", 30)
            queue.claim(2).nack()
            drain_all(queue)

        worker = threading.Thread(target=work)
        worker.start()
        done = dags["close_the_day"].test()
        worker.join()

    assert states(done) == {"publish": "success", "drained": "success", "close_the_day": "success"}
    assert xcoms(done)["close_the_day"] == "3 of 3 orders are done"
    assert airflow_deployment.rendered(done, "drained")["batch_id"] == f"orders/{done.run_id}"
