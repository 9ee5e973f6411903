"""The dead letter sensor: one run for the dead letters that are there, another one only when more messages die."""

from __future__ import annotations

import time
from types import SimpleNamespace

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_dead_letter_sensor, build_queue_depth_sensor
from sluicegate import Depth, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from tests.dagster.helpers import look, retried, submit
from tests.support.servers import free_port

pytestmark = pytest.mark.dagster

FAILED = dg.DagsterRunStatus.FAILURE
SUCCEEDED = dg.DagsterRunStatus.SUCCESS
STARTED = dg.DagsterRunStatus.STARTED


@dg.asset
def alert() -> None: ...


def sensor_of(**options: object) -> dg.SensorDefinition:
    defaults: dict[str, object] = {"name": "dead", "target": alert}
    return build_dead_letter_sensor(**(defaults | options))  # type: ignore[arg-type]


def die(queue: RedisMessageQueue, count: int) -> None:
    """Let some messages of the queue become dead letters."""
    queue.publish_many({"n": number} for number in range(count))
    lease = queue.claim(count)
    lease.bury(lease.messages, error=ValueError("no order"))


def requested(sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance) -> dg.RunRequest:
    request, reason = look(sensor, resource, instance)
    assert request is not None, reason
    return request


def test_one_run_is_requested_for_the_dead_letters_that_are_there_and_one_when_more_die(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(min_dead=2)
    die(queue, 1)
    request, reason = look(sensor, resource, instance)
    assert request is None
    assert reason == f"1 dead letter in {queue.name!r}; a run is requested when 2 messages are dead."
    die(queue, 1)
    first = requested(sensor, resource, instance)
    assert first.run_key == f"{queue.name}:dead:2:0"
    assert requested(sensor, resource, instance).run_key == first.run_key
    run = submit(instance, first, STARTED)
    assert f"run {run.run_id} is unfinished" in look(sensor, resource, instance)[1]
    instance.report_engine_event("done", run)
    instance.delete_run(run.run_id)
    run = submit(instance, first, SUCCEEDED)
    assert look(sensor, resource, instance)[1] == (
        f"2 dead letters in {queue.name!r}; run {run.run_id} has seen them, and no further message has died since."
    )
    die(queue, 1)
    assert requested(sensor, resource, instance).run_key == f"{queue.name}:dead:3:0"


def test_a_redrive_of_some_and_a_purge_of_others_request_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of()
    die(queue, 5)
    submit(instance, requested(sensor, resource, instance), SUCCEEDED)
    queue.redrive(limit=2)
    assert queue.depth().dead == 3
    assert "has seen them" in look(sensor, resource, instance)[1]
    queue.purge("dead")
    assert "0 dead letters" in look(sensor, resource, instance)[1]


@pytest.mark.parametrize("status", [FAILED, dg.DagsterRunStatus.CANCELED])
def test_a_run_that_did_not_succeed_is_repeated_after_a_pause(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    sensor = sensor_of()
    die(queue, 1)
    run = submit(instance, requested(sensor, resource, instance), status)
    assert f"run {run.run_id} ended as {status.value}, attempt 1 follows in" in look(sensor, resource, instance)[1]
    at_once = sensor_of(attempt_delay_seconds=0, failure_delay_seconds=0)
    second = requested(at_once, resource, instance)
    assert second.run_key == f"{queue.name}:dead:1:1"
    submit(instance, second, SUCCEEDED)
    assert "has seen them" in look(at_once, resource, instance)[1]


def test_a_run_that_failed_delays_the_run_for_the_next_dead_letter_too(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    die(queue, 1)
    submit(instance, requested(sensor_of(), resource, instance), FAILED)
    die(queue, 1)
    assert "the last run failed, the next follows in" in look(sensor_of(), resource, instance)[1]


def test_a_run_that_dagster_will_retry_is_waited_for(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    at_once = sensor_of(attempt_delay_seconds=0, failure_delay_seconds=0)
    die(queue, 1)
    run = submit(instance, requested(at_once, resource, instance), FAILED, **{"dagster/will_retry": "true"})
    assert f"run {run.run_id} is unfinished" in look(at_once, resource, instance)[1]
    instance.report_run_canceled(retried(instance, run))
    assert requested(at_once, resource, instance).run_key == f"{queue.name}:dead:1:1"


def test_a_run_whose_host_died_does_not_silence_it_for_ever(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    die(queue, 1)
    submit(instance, requested(sensor_of(), resource, instance), STARTED)
    monkeypatch.setattr("dagster_sluicegate.sensors.runs.time", SimpleNamespace(time=lambda: time.time() + 2 * 3600))
    assert requested(sensor_of(), resource, instance).run_key == f"{queue.name}:dead:1:1"


def test_a_queue_that_was_deleted_and_has_as_many_dead_letters_again_gets_a_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    queue.publish_many({"n": number} for number in range(10))
    queue.purge("pending")
    die(queue, 1)
    submit(instance, requested(sensor_of(), resource, instance), SUCCEEDED)
    client.delete(*client.scan_iter(queue.key.pending.removesuffix("pending") + "*"))
    die(queue, 1)
    assert "attempt 1 follows in" in look(sensor_of(), resource, instance)[1]
    assert requested(sensor_of(attempt_delay_seconds=0), resource, instance).run_key == f"{queue.name}:dead:1:1"


def test_its_runs_and_those_of_the_gate_do_not_hold_each_other_back(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    gate = build_queue_depth_sensor(name="gate", target=alert, min_ready=1)
    die(queue, 1)
    submit(instance, requested(sensor_of(), resource, instance), STARTED)
    queue.publish({"n": 1})
    submit(instance, requested(gate, resource, instance), STARTED)
    die(queue, 1)
    assert "is unfinished" in look(sensor_of(), resource, instance)[1]
    assert "1 of at most 1 runs in flight" in look(gate, resource, instance)[1]


def test_looking_leaves_every_key_as_it_was_and_says_what_was_seen(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    def dump() -> dict[bytes, object]:
        return {key: client.dump(key) for key in client.scan_iter(queue.key.pending.removesuffix("pending") + "*")}

    die(queue, 3)
    before = dump()
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})
    data = sensor_of().evaluate_tick(context)
    assert dump() == before
    assert data.cursor == "3 dead, 3 ever"


def test_the_run_has_small_facts_in_its_tags_and_the_config_that_a_function_makes(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def run_config(context: dg.SensorEvaluationContext, depth: Depth) -> dict[str, object]:
        return {"ops": {"alert": {"config": {"dead": depth.dead}}}}

    die(queue, 2)
    request = requested(sensor_of(run_config_fn=run_config, run_tags={"team": "orders"}), resource, instance)
    assert request.run_config == {"ops": {"alert": {"config": {"dead": 2}}}}
    assert request.tags["sluicegate/queue"] == queue.name
    assert request.tags["sluicegate/queue_id"].endswith("/dead")
    assert request.tags["sluicegate/generation"] == "2"
    assert request.tags["team"] == "orders"


def test_redis_that_is_down_fails_the_tick_and_names_the_server(instance: dg.DagsterInstance) -> None:
    port = free_port()
    away = RedisQueueResource(url=f"redis://127.0.0.1:{port}/0", queue_name="orders")
    with pytest.raises(RedisUnavailableError, match=f"127.0.0.1:{port}"):
        look(sensor_of(), away, instance)


def test_its_description_names_queue_and_threshold() -> None:
    assert sensor_of(min_dead=5, queue_name="orders").description == (
        "Requests a run when 5 messages are dead in the queue 'orders', and again when more have died. Only reads."
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"min_dead": 0}, "min_dead must be None or an int of 1 or more, not 0"),
        ({"min_dead": None}, "give min_ready, max_age_seconds or min_dead"),
        ({"queue_name": " "}, "queue name is blank"),
        ({"attempt_delay_seconds": -1}, "attempt_delay_seconds must be a number of 0 or more"),
        ({"stale_run_seconds": 0}, "stale_run_seconds must be a number above 0"),
        ({"max_runtime_seconds": 0}, "max_runtime_seconds must be an int from 1"),
        ({"run_tags": {"sluicegate/queue": "x"}}, "use other names"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"sensor 'dead': .*{complaint}"):
        sensor_of(**options)
