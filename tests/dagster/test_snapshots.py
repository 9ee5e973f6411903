"""A snapshot gives a sensor of the user's own what the library's sensors decide by."""

from __future__ import annotations

import dataclasses

import dagster as dg
import pytest

from dagster_sluicegate import QueueSnapshot, RedisQueueResource, build_queue_depth_sensor, queue_snapshot
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import look, submit
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster


@dg.asset
def drained() -> None: ...


@dg.sensor(name="mine", target=drained)
def mine(context: dg.SensorEvaluationContext, queue: RedisQueueResource) -> dg.SkipReason | dg.RunRequest:
    seen = queue_snapshot(context, resource=queue)
    if reason := seen.why_not(min_ready=3):
        return dg.SkipReason(reason)
    return dg.RunRequest(run_key=seen.run_key, tags=seen.tags)


GATE = build_queue_depth_sensor(name="gate", target=drained, min_ready=3)


def snapshot(resource: RedisQueueResource, instance: dg.DagsterInstance, **options: str) -> QueueSnapshot:
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})
    return queue_snapshot(context, **options)  # type: ignore[arg-type]


def test_a_sensor_made_of_it_decides_as_the_gate_does_and_counts_its_runs(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    assert look(mine, resource, instance) == look(GATE, resource, instance)
    queue.publish_many({"n": number} for number in range(3))
    request = look(mine, resource, instance)[0]
    assert request is not None
    assert request.run_key == f"{queue.name}:0:0"
    run = submit(instance, request)
    for sensor in (mine, GATE):
        assert "1 of at most 1 runs in flight" in look(sensor, resource, instance)[1]
    instance.report_run_failed(run)
    for sensor in (mine, GATE):
        assert "without claiming, attempt 1 follows in" in look(sensor, resource, instance)[1]


def test_it_holds_what_was_seen(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    queue.publish_many({"n": number} for number in range(7))
    queue.claim(2)
    seen = snapshot(resource, instance)
    run = submit(instance, dg.RunRequest(run_key=seen.run_key, tags=dict(seen.tags)))
    seen = snapshot(resource, instance)
    assert (seen.queue, seen.depth.ready, seen.generation, seen.attempt) == (queue.name, 5, 2, 1)
    assert seen.run_key == f"{queue.name}:2:1"
    assert [(each.run_id, each.status) for each in seen.unfinished] == [(run.run_id, "QUEUED")]
    assert "_history" not in repr(seen)
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.attempt = 5  # type: ignore[misc]


def test_its_conditions_are_those_of_a_gate(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    queue.publish_many({"n": number} for number in range(7))
    seen = snapshot(resource, instance)
    assert seen.why_not(min_ready=7) == ""
    assert "the gate opens when 8 messages are ready or the oldest has been ready for 60 s" in seen.why_not(
        min_ready=8, max_age_seconds=60
    )
    submit(instance, dg.RunRequest(tags=dict(seen.tags)))
    seen = snapshot(resource, instance)
    assert "1 of at most 1 runs in flight" in seen.why_not(min_ready=1)
    assert seen.why_not(min_ready=1, max_in_flight=2, messages_per_run=6) == ""
    with pytest.raises(ConfigurationError, match="give min_ready"):
        seen.why_not()


def test_it_finds_the_resource_by_key_and_another_queue_by_name(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    queue.publish({"n": 1})
    nameless = RedisQueueResource(url=resource.url)
    context = dg.build_sensor_context(instance=instance, resources={"server": nameless})
    assert queue_snapshot(context, resource_key="server", queue_name=queue.name).depth.ready == 1
    with pytest.raises(ConfigurationError, match="names no queue"):
        queue_snapshot(context, resource_key="server")


def test_the_sensor_of_the_documentation_requests_one_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    names: dict[str, object] = {"__name__": "snippet"}
    exec(compile(snippet("dagster-snapshot"), "dagster-snapshot", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    sensor = defs.resolve_sensor_def("night_gate")
    queue.publish_many({"n": number} for number in range(100))
    request = look(sensor, resource, instance)[0]
    assert request is not None
    assert request.tags["shift"] == "night"
    submit(instance, request)
    assert look(sensor, resource, instance)[0] is None
