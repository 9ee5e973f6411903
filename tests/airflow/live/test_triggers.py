"""Sensors and watchers in a real triggerer, which is killed, and whose Redis is stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.api import EVERY_SECONDS, RUN_SECONDS
from tests.airflow.live.dags.triggered import DELIVERED, WATCHED
from tests.airflow.live.deployment import LiveDeployment
from tests.airflow.live.held import Held, check_settled
from tests.support import handlers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]

OUTAGE_SECONDS = 30.0
SENSORS = 40


@pytest.fixture
def watched(deployment: LiveDeployment) -> Iterator[RedisMessageQueue]:
    """Yield the queue that the asset of `watches` watches, while that DAG is not paused."""
    yield from _active(deployment, "watches", WATCHED)


@pytest.fixture
def delivered(deployment: LiveDeployment) -> Iterator[RedisMessageQueue]:
    """Yield the queue whose messages become events of an asset, while its DAG is not paused."""
    yield from _active(deployment, "receives", DELIVERED)


def _active(deployment: LiveDeployment, dag_id: str, name: str) -> Iterator[RedisMessageQueue]:
    deployment.ready(dag_id)
    deployment.unpause(dag_id)
    with RedisMessageQueue(name, url=deployment.redis.url) as queue:
        yield queue
    deployment.wait_for_runs(dag_id, set(deployment.run_states(dag_id)))  # SQLite refuses a change while they write
    deployment.pause(dag_id)


def wait_for(condition: object, what: str, seconds: float = RUN_SECONDS) -> None:
    wait_until(condition, what, seconds, EVERY_SECONDS)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- sensors


def test_a_deferred_sensor_outlives_its_triggerer(deployment: LiveDeployment, held: Held) -> None:
    deployment.ready("defers")
    run_id = deployment.trigger("defers", queue=held.queue.name, folder=str(held.folder))
    deployment.wait_for_tasks("defers", run_id, "deferred", "gate")

    deployment.kill("triggerer")
    held.queue.publish_many(handlers.messages(held.folder, 5))
    deployment.start("triggerer")
    deployment.wait_for_run("defers", run_id)

    assert deployment.xcom("defers", run_id, "gate")["ready"] == 5
    assert handlers.numbers(held.folder) == list(range(5))
    check_settled(held.queue, 5)


def test_a_sensor_begins_in_the_triggerer_with_its_templates(deployment: LiveDeployment, held: Held) -> None:
    deployment.ready("starts")
    run_id = deployment.trigger("starts", queue=held.queue.name)
    deployment.wait_for_tasks("starts", run_id, "deferred", "gate")
    assert deployment.instance("starts", run_id, "gate")["pid"] is None, "no worker was used"

    held.queue.publish_many(handlers.messages(held.folder, 5))
    deployment.wait_for_run("starts", run_id)

    assert deployment.xcom("starts", run_id, "gate")["queue"] == held.queue.name


def test_runs_at_one_gate_share_its_messages(deployment: LiveDeployment, held: Held) -> None:
    deployment.ready("claims")
    runs = {deployment.trigger("claims", queue=held.queue.name) for _ in range(3)}
    for run_id in runs:
        deployment.wait_for_tasks("claims", run_id, "deferred", "gate")

    held.queue.publish_many(handlers.messages(held.folder, 10))  # all three gates open
    wait_for(lambda: held.queue.stats().acked == 10, "one run has worked")
    held.queue.publish_many(handlers.messages(held.folder, 20, start=10))
    deployment.wait_for_runs("claims", runs)

    assert sorted(len(batch) for batch in handlers.recorded(held.folder)) == [10, 10, 10]
    assert handlers.numbers(held.folder) == list(range(30))
    assert all(deployment.xcom("claims", run_id, "settle")["acked"] == 10 for run_id in runs)
    check_settled(held.queue, 30)


def test_a_redis_that_is_away_for_30_seconds_under_40_deferred_sensors(deployment: LiveDeployment, held: Held) -> None:
    deployment.ready("defers_many")
    names = [f"{held.queue.name}-{number}" for number in range(SENSORS)]
    run_id = deployment.trigger("defers_many", queues=names)
    deployment.wait_for_tasks("defers_many", run_id, "deferred", "gate", count=SENSORS, seconds=300)
    with deployment.redis.client() as client:
        pollers = [one for one in client.client_list() if one["id"] != client.client_id()]
    assert len(pollers) <= 2 + 2, "two for the sensors, two for the watchers of other DAGs"
    lines = deployment.home / "triggerer.log"
    before = lines.read_text().count("cannot be read, trying again")

    deployment.redis.stop()
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > OUTAGE_SECONDS, "the outage lasts")
    states = Counter(each["state"] for each in deployment.instances("defers_many", run_id) if each["task_id"] == "gate")
    deployment.redis.start()
    assert states == {"deferred": SENSORS}
    for name in names:
        with RedisMessageQueue(name, url=deployment.redis.url) as queue:
            queue.publish("a")
    deployment.wait_for_run("defers_many", run_id, seconds=300)

    assert 1 <= lines.read_text().count("cannot be read, trying again") - before <= 3, "one warning a minute and stream"
    assert (
        sum("Redis answers again" in deployment.log("defers_many", run_id, "gate", map_index=n) for n in (0, 39)) == 2
    )


def test_a_keeper_keeps_the_lease_while_its_task_works_for_longer_than_its_life(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 3))
    held.start("kept", "work")
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 35, "two lives of the lease pass")
    (held.folder / "go").touch()
    held.deployment.wait_for_run(held.dag_id, held.run_id)

    assert held.deployment.tasks(held.dag_id, held.run_id)["keep"] == "success"
    assert held.queue.stats().reaped == 0
    check_settled(held.queue, 3)


# ---------------------------------------------------------------------- watchers


def test_a_burst_wakes_runs_that_drain_it_and_none_that_is_empty(
    deployment: LiveDeployment, watched: RedisMessageQueue, tmp_path: Path, record_property: object
) -> None:
    before = watched.stats().acked
    runs_before = set(deployment.run_states("watches"))
    began = time.monotonic()
    for message in handlers.messages(tmp_path, 50):
        watched.publish(message)
    wait_for(lambda: watched.stats().acked == before + 50, "the burst is drained")
    seconds = time.monotonic() - began
    runs = set(deployment.run_states("watches")) - runs_before
    deployment.wait_for_runs("watches", runs)

    assert handlers.numbers(tmp_path) == list(range(50))
    assert all(deployment.xcom("watches", run_id, "drain")["acked"] > 0 for run_id in runs)
    record_property("publish_to_drained_seconds", round(seconds, 1))  # type: ignore[operator]


def test_a_watcher_of_a_paused_dag_loses_nothing(
    deployment: LiveDeployment, watched: RedisMessageQueue, tmp_path: Path
) -> None:
    before, runs = watched.stats().acked, len(deployment.run_states("watches"))
    deployment.pause("watches")
    watched.publish_many(handlers.messages(tmp_path, 5))
    deployment.unpause("watches")
    wait_for(lambda: watched.stats().acked == before + 5, "the messages of the pause are drained")

    assert handlers.numbers(tmp_path) == list(range(5))
    assert len(deployment.run_states("watches")) > runs


def test_every_message_is_in_one_asset_event(deployment: LiveDeployment, delivered: RedisMessageQueue) -> None:
    before, acked = len(messages_in(deployment)), delivered.stats().acked
    for number in range(30):
        delivered.publish({"n": number, "note": "CANARY"})
    wait_for(lambda: delivered.stats().acked == acked + 30, "the events are stored and the messages acked")

    found = messages_in(deployment)[before:]
    assert sorted(message["payload"]["n"] for message in found) == list(range(30))
    assert len({message["id"] for message in found}) == 30
    check_settled(delivered, acked + 30)
    lines = (deployment.home / "triggerer.log").read_text()
    assert "TriggerEvent<1 messages of queue" in lines
    assert "CANARY" not in lines


def test_a_triggerer_killed_between_claim_and_event_loses_no_message(
    deployment: LiveDeployment, delivered: RedisMessageQueue
) -> None:
    before, acked = len(messages_in(deployment)), delivered.stats().acked
    for number in range(100):
        delivered.publish({"n": number})
    wait_for(lambda: delivered.depth().in_flight > 0, "messages are claimed")
    deployment.kill("triggerer")
    stored, held = delivered.stats().acked - acked, delivered.depth().in_flight
    assert stored < 100
    deployment.start("triggerer")
    wait_for(lambda: delivered.depth().in_flight == delivered.depth().ready == 0, "all are stored", 300)

    copies = Counter(message["payload"]["n"] for message in messages_in(deployment)[before:])
    assert set(copies) == set(range(100))
    assert sum(copies.values()) - 100 <= held, "only messages that were claimed at the kill may be in two events"


def messages_in(deployment: LiveDeployment) -> list[dict[str, object]]:
    """Return the messages in all events of the asset."""
    return [
        message
        for event in deployment.asset_events()
        if "messages" in event["extra"].get("payload", {})
        for message in event["extra"]["payload"]["messages"]
    ]
