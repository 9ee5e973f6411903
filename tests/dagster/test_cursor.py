"""The cursor of a gate is for people: it says what the last tick saw, and no decision depends on it."""

from __future__ import annotations

import json

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor
from sluicegate import RedisMessageQueue
from tests.dagster.helpers import submit

pytestmark = pytest.mark.dagster


@dg.asset
def drained() -> None: ...


GATE = build_queue_depth_sensor(name="gate", target=drained, min_ready=3)


def tick(resource: RedisQueueResource, instance: dg.DagsterInstance, cursor: str | None = None) -> tuple[object, str]:
    """Evaluate one tick; return its run keys and its cursor."""
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource}, cursor=cursor)
    data = GATE.evaluate_tick(context)
    assert data.cursor
    return [request.run_key for request in data.run_requests or ()], data.cursor


def test_it_says_what_was_seen(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def seen(cursor: str) -> object:
        return json.loads(cursor)["queues"][queue.name]

    _, cursor = tick(resource, instance)
    assert json.loads(cursor) == {"version": 1, "queues": {queue.name: "0 ready, 0 runs in flight"}}
    queue.publish_many({"n": number} for number in range(500))
    request = GATE.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"queue": resource}))
    assert seen(request.cursor or "") == "500 ready, 0 runs in flight, 1 run requested"
    submit(instance, (request.run_requests or [])[0])
    assert seen(tick(resource, instance)[1]) == "500 ready, 1 run in flight"
    queue.pause()
    assert seen(tick(resource, instance)[1]) == "paused, 500 ready, 1 run in flight"


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
    keys, follows = tick(resource, instance, cursor)
    assert keys == [f"{queue.name}:0:0"]
    assert "The cursor of this sensor cannot be read" in capsys.readouterr().err
    assert tick(resource, instance, follows)[0] == keys
    assert not capsys.readouterr().err
