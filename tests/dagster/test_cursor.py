"""The cursor of a gate says what the last tick saw, and no decision depends on it."""

from __future__ import annotations

import dagster as dg
import pytest

from dagster_sluicegate import (
    QueueGate,
    RedisQueueResource,
    build_queue_depth_sensor,
    build_queue_gates_sensor,
)
from sluicegate import RedisMessageQueue
from tests.dagster.helpers import submit

pytestmark = pytest.mark.dagster


@dg.asset
def drained() -> None: ...


GATE = build_queue_depth_sensor(name="gate", target=drained, min_ready=3)
GATES = build_queue_gates_sensor(name="gates", queues=[QueueGate(target=drained, min_ready=3)])
ASSETS = dg.Definitions(assets=[drained])


def tick(
    sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance, cursor: str | None = None
) -> tuple[object, str]:
    """Evaluate one tick; return its run keys and its cursor."""
    context = dg.build_sensor_context(
        instance=instance,
        resources={"queue": resource},
        cursor=cursor,
        repository_def=ASSETS.get_repository_def(),
    )
    data = sensor.evaluate_tick(context)
    assert data.cursor
    return [request.run_key for request in data.run_requests or ()], data.cursor


def test_it_says_what_was_seen(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    assert tick(GATE, resource, instance)[1] == "0 ready, 0 runs in flight"
    queue.publish_many({"n": number} for number in range(500))
    request = GATE.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"queue": resource}))
    assert request.cursor == "500 ready, 0 runs in flight, 1 run requested"
    submit(instance, (request.run_requests or [])[0])
    assert tick(GATE, resource, instance)[1] == "500 ready, 1 run in flight"
    queue.pause()
    assert tick(GATE, resource, instance)[1] == "paused, 500 ready, 1 run in flight"


def test_that_of_many_gates_begins_with_the_queues(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    queue.publish("x")
    _, cursor = tick(GATES, resource, instance)
    assert cursor.startswith(f'{{"queues": {{"{queue.name}": "1 ready, 0 runs in flight"')


@pytest.mark.parametrize("cursor", ["{", "500 ready, 1 run in flight"])
def test_that_of_one_gate_is_never_read(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    capsys: pytest.CaptureFixture[str],
    cursor: str,
) -> None:
    queue.publish_many({"n": number} for number in range(3))
    assert tick(GATE, resource, instance, cursor)[0] == [f"{queue.name}:0:0"]
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "cursor", ["{", "5", "null", '{"queues": {}}', '{"version": 2, "queues": {}}', '{"version": 1, "queues": 7}']
)
def test_one_that_cannot_be_read_is_a_warning_and_changes_no_decision(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    capsys: pytest.CaptureFixture[str],
    cursor: str,
) -> None:
    queue.publish_many({"n": number} for number in range(3))
    keys, follows = tick(GATES, resource, instance, cursor)
    assert keys == [f"{queue.name}:0:0"]
    assert "The cursor of this sensor cannot be read" in capsys.readouterr().err
    assert tick(GATES, resource, instance, follows)[0] == keys
    assert not capsys.readouterr().err
