"""The depth sensor, tick by tick: what opens the gate, what keeps it shut, and that it asks for one run only."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor
from dagster_sluicegate.depths import identify
from sluicegate import Depth, RedisMessageQueue
from sluicegate.embedded import EmbeddedServer
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from sluicegate.place import Place
from tests.dagster.helpers import look, retried, submit
from tests.support.servers import free_port, silent_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

FAILED = dg.DagsterRunStatus.FAILURE
SUCCEEDED = dg.DagsterRunStatus.SUCCESS
STARTED = dg.DagsterRunStatus.STARTED


@dg.asset
def drained() -> None: ...


def gate(**options: object) -> dg.SensorDefinition:
    defaults: dict[str, object] = {"name": "gate", "target": drained, "min_ready": 3}
    return build_queue_depth_sensor(**(defaults | options))  # type: ignore[arg-type]


def fill(queue: RedisMessageQueue, count: int) -> None:
    queue.publish_many({"n": number} for number in range(count))


def open_gate(sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance) -> dg.RunRequest:
    request, reason = look(sensor, resource, instance)
    assert request is not None, reason
    return request


# ---------------------------------------------------------------------------------------------------- what opens it


def test_opens_at_min_ready_with_small_facts_in_the_tags(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    request = open_gate(gate(run_tags={"team": "orders"}), resource, instance)
    assert request.run_key == f"{queue.name}:0:0"
    assert request.tags == {
        "dagster/sensor_name": "gate",
        "team": "orders",
        "sluicegate/queue": queue.name,
        "sluicegate/queue_id": identify(resource.url, Place(queue.name)),
        "sluicegate/sensor": "gate",
        "sluicegate/generation": "0",
        "sluicegate/attempt": "0",
        "sluicegate/ready": "3",
        "dagster/max_runtime": "86400",
    }
    assert request.run_config == {}


def test_below_min_ready_it_says_the_numbers(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 2)
    request, reason = look(gate(max_age_seconds=600), resource, instance)
    assert request is None
    assert f"2 messages ready in {queue.name!r}, the oldest for " in reason
    assert "opens when 3 messages are ready or the oldest has been ready for 600 s" in reason


def test_an_empty_queue_stays_shut_at_any_age(resource: RedisQueueResource, instance: dg.DagsterInstance) -> None:
    request, reason = look(gate(min_ready=None, max_age_seconds=0.001), resource, instance)
    assert request is None
    assert reason.startswith(f"0 messages ready in {resource.queue_name!r} (")


def test_opens_for_a_trickle_by_age(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 1)
    assert look(gate(min_ready=1000, max_age_seconds=600), resource, instance)[0] is None
    wait_until(lambda: (queue.depth().oldest_ready_age_seconds or 0) >= 0.1, "the message is old enough")
    by_age = gate(min_ready=1000, max_age_seconds=0.1)
    assert open_gate(by_age, resource, instance).run_key == f"{queue.name}:0:0"


def test_opens_for_messages_that_only_a_claim_would_bring_back(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    lease = queue.claim(3)
    assert look(gate(), resource, instance)[0] is None
    lease.extend(0.05)  # its worker dies
    wait_until(lambda: queue.depth().expired == 3, "the lease runs out")
    assert open_gate(gate(), resource, instance).run_key == f"{queue.name}:3:0"


def test_a_paused_queue_keeps_it_shut(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    fill(queue, 3)
    client.hset(queue.key.counters, "paused", "1")
    request, reason = look(gate(), resource, instance)
    assert request is None
    assert reason.startswith("The queue is paused: 3 messages ready")


def test_the_run_config_is_made_from_what_was_seen(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def run_config(context: dg.SensorEvaluationContext, depth: Depth) -> dg.RunConfig:
        return dg.RunConfig(ops={"drained": {"config": {"ready": depth.ready}}})

    fill(queue, 4)
    request = open_gate(gate(run_config_fn=run_config), resource, instance)
    assert request.run_config["ops"] == {"drained": {"config": {"ready": 4}}}


# ---------------------------------------------------------------------------------------------------- one run only


def test_every_tick_computes_the_same_key_until_a_run_claims(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    first = open_gate(gate(), resource, instance)
    fill(queue, 50)
    assert open_gate(gate(), resource, instance).run_key == first.run_key
    with queue.claim(3):
        pass
    assert open_gate(gate(), resource, instance).run_key == f"{queue.name}:3:0"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, STARTED])
def test_a_burst_while_a_run_is_unfinished_asks_for_no_second_run(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
) -> None:
    fill(queue, 3)
    submit(instance, open_gate(gate(), resource, instance), status)
    for _ in range(3):
        fill(queue, 100)
        request, reason = look(gate(), resource, instance)
        assert request is None
        assert "1 of at most 1 runs in flight" in reason


def requested(
    sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> list[dg.RunRequest]:
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})
    return list(sensor.evaluate_tick(context).run_requests or ())


def test_a_backlog_of_three_runs_gets_three_at_once_and_no_fourth(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    three = gate(max_in_flight=3)
    fill(queue, 100)
    requests = requested(three, resource, instance)
    assert [request.run_key for request in requests] == [f"{queue.name}:0:{attempt}" for attempt in range(3)]
    for request in requests:
        submit(instance, request)
    assert "3 of at most 3 runs in flight" in look(three, resource, instance)[1]
    queue.claim(10)
    assert "3 of at most 3 runs in flight" in look(three, resource, instance)[1]


def test_further_runs_are_requested_as_far_as_ready_messages_warrant_them(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    three = gate(max_in_flight=3, min_ready=1, messages_per_run=10)
    fill(queue, 2)
    (first,) = requested(three, resource, instance)
    submit(instance, first, STARTED)
    assert (
        "1 of at most 3 runs in flight, 1 yet to claim; a further one follows at 11 ready messages"
        in (look(three, resource, instance)[1])
    )
    fill(queue, 9)
    (second,) = requested(three, resource, instance)
    assert second.run_key == f"{queue.name}:0:1"
    submit(instance, second, STARTED)
    lease = queue.claim(11)
    fill(queue, 30)
    (third,) = requested(three, resource, instance)
    assert third.run_key == f"{queue.name}:11:0"
    lease.release()


def test_runs_that_have_claimed_leave_what_is_ready_to_further_ones(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    three = gate(max_in_flight=3, min_ready=10)
    fill(queue, 10)
    (first,) = requested(three, resource, instance)
    submit(instance, first, STARTED)
    lease = queue.claim(10)
    fill(queue, 10)
    (second,) = requested(three, resource, instance)
    assert second.run_key == f"{queue.name}:10:0"
    submit(instance, second)  # it waits in the run queue, and will take the ten
    assert (
        "2 of at most 3 runs in flight, 1 yet to claim; a further one follows at 11 ready messages"
        in (look(three, resource, instance)[1])
    )
    late = queue.claim(1)  # by another consumer: the run that waits has still claimed nothing
    fill(queue, 1)
    assert "1 yet to claim" in look(three, resource, instance)[1]
    late.release()
    lease.release()


def test_a_run_beside_others_that_ended_without_claiming_is_repeated_after_one_pause_and_under_a_new_key(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    three = gate(max_in_flight=3, failure_delay_seconds=0)
    fill(queue, 100)
    runs = [submit(instance, request) for request in requested(three, resource, instance)]
    instance.report_run_failed(runs[1])
    reason = look(three, resource, instance)[1]
    assert f"run {runs[1].run_id} ended as FAILURE without claiming, attempt 3 follows in" in reason
    assert 50 <= int(reason.rsplit(" in ", 1)[1].split()[0]) <= 60
    at_once = gate(max_in_flight=3, failure_delay_seconds=0, attempt_delay_seconds=0)
    assert [request.run_key for request in requested(at_once, resource, instance)] == [f"{queue.name}:0:3"]


def test_a_re_execution_of_an_early_attempt_does_not_bring_back_the_key_of_a_later_one(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    at_once = gate(attempt_delay_seconds=0, failure_delay_seconds=0)
    fill(queue, 3)
    first = open_gate(at_once, resource, instance)
    submit(instance, first, FAILED)
    submit(instance, open_gate(at_once, resource, instance), FAILED)
    submit(instance, first, FAILED)
    assert open_gate(at_once, resource, instance).run_key == f"{queue.name}:0:2"


def test_queues_of_one_name_on_two_servers_hold_nothing_back_from_each_other(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    with RedisQueueResource(url=f"embedded://{tmp_path}", queue_name=queue.name).get_queue() as theirs:
        fill(theirs, 3)
        elsewhere = RedisQueueResource(url=f"embedded://{tmp_path}", queue_name=queue.name)
        submit(instance, open_gate(gate(), elsewhere, instance), STARTED)
        assert look(gate(), elsewhere, instance)[0] is None
    fill(queue, 3)
    assert open_gate(gate(), resource, instance).run_key == f"{queue.name}:0:0"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("redis://user@redis.example:6379/0?password_env=PASSWORD&socket_timeout=1", True),
        ("redis://user:secret@redis.example:6379/0", True),
        ("redis://redis.example:6379/1", False),
        ("redis://redis.example:6380/0", False),
        ("redis://elsewhere.example:6379/0", False),
    ],
)
def test_the_id_of_a_queue_marks_its_server_and_shows_no_part_of_its_url(url: str, same: bool) -> None:
    plain, found = (identify(each, Place("orders")) for each in ("redis://redis.example:6379/0", url))
    assert (found == plain) is same
    assert re.fullmatch(r"orders@[0-9a-f]{8}", found)


def test_runs_of_other_queues_hold_nothing_back(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    request = open_gate(gate(), resource, instance)
    submit(instance, request, **{"sluicegate/queue_id": "another"})
    assert open_gate(gate(), resource, instance).run_key == request.run_key


def test_a_renamed_sensor_counts_the_runs_of_its_former_name_unless_told_otherwise(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    request = open_gate(gate(), resource, instance)
    submit(instance, request, STARTED)
    assert "1 of at most 1 runs in flight" in look(gate(name="renamed"), resource, instance)[1]
    alone = gate(name="renamed", count_runs_of="sensor")
    assert open_gate(alone, resource, instance).run_key == request.run_key


def test_two_sensors_on_one_queue_start_one_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    by_age = gate(name="by_age", min_ready=None, max_age_seconds=0.001)
    submit(instance, open_gate(gate(), resource, instance))
    assert "1 of at most 1 runs in flight" in look(by_age, resource, instance)[1]


def test_two_code_locations_with_the_same_names_do_not_shut_each_others_gate(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    request = open_gate(gate(), resource, instance)
    submit(instance, request, STARTED, location="theirs")
    assert look(gate(), resource, instance, location="theirs")[0] is None
    assert look(gate(), resource, instance, location="ours")[0] is not None


# ---------------------------------------------------------------------------------------------------- dead runs


def age(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so many seconds pass for the gate."""
    monkeypatch.setattr("dagster_sluicegate.sensors.runs.time", SimpleNamespace(time=lambda: time.time() + seconds))


@pytest.mark.parametrize(
    "status",
    [STARTED, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.CANCELING],
)
def test_a_run_whose_host_died_does_not_shut_the_gate_for_good(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    status: dg.DagsterRunStatus,
) -> None:
    fill(queue, 3)
    first = open_gate(gate(), resource, instance)
    run = submit(instance, first, status)
    age(monkeypatch, 3500)
    assert "1 of at most 1 runs in flight" in look(gate(), resource, instance)[1]
    age(monkeypatch, 2 * 3600)
    assert open_gate(gate(), resource, instance).run_key == f"{queue.name}:0:1"
    request, reason = look(gate(min_ready=100), resource, instance)
    assert request is None
    assert f"run {run.run_id} ({status.value}) has not ended for 2.0 h and no lease is alive" in reason


def test_an_old_run_that_still_holds_a_lease_is_counted(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(queue, 6)
    submit(instance, open_gate(gate(), resource, instance), STARTED)
    lease = queue.claim(3, lease_seconds=600)
    age(monkeypatch, 100_000)
    assert "1 of at most 1 runs in flight" in look(gate(), resource, instance)[1]
    lease.extend(0.05)
    wait_until(lambda: queue.depth().expired == 3, "the lease expires")
    assert open_gate(gate(), resource, instance).run_key == f"{queue.name}:3:0"


# ---------------------------------------------------------------------------------------------------- next attempts


@pytest.mark.parametrize("status", [FAILED, dg.DagsterRunStatus.CANCELED, SUCCEEDED])
def test_a_run_that_ended_without_claiming_gets_a_next_attempt(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
) -> None:
    at_once = gate(attempt_delay_seconds=0, failure_delay_seconds=0)
    fill(queue, 3)
    for attempt in range(3):
        request = open_gate(at_once, resource, instance)
        assert request.run_key == f"{queue.name}:0:{attempt}"
        submit(instance, request, status)


def test_next_attempts_come_after_a_growing_pause(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    request = open_gate(gate(), resource, instance)
    run = submit(instance, request)
    instance.report_run_failed(run)
    assert (
        f"run {run.run_id} ended as FAILURE without claiming, attempt 1 follows in"
        in look(gate(), resource, instance)[1]
    )
    for attempt, seconds in ((0, 60), (1, 120), (2, 240), (9, 3600), (2000, 3600)):
        submit(instance, request, FAILED, **{"sluicegate/attempt": str(attempt)})
        reason = look(gate(), resource, instance)[1]
        assert f"attempt {attempt + 1} follows in" in reason
        remaining = int(reason.rsplit(" in ", 1)[1].split()[0])
        assert seconds - 10 <= remaining <= seconds


def test_runs_that_fail_one_after_the_other_are_followed_after_a_growing_pause(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(queue, 300)
    passed = 0.0
    for failures, seconds in ((1, 60), (2, 120), (3, 240), (4, 480)):
        submit(instance, open_gate(gate(), resource, instance), FAILED)
        queue.claim(3).nack()  # each had claimed, so the next one is no further attempt
        reason = look(gate(), resource, instance)[1]
        runs = "the last run" if failures == 1 else f"the last {failures} runs"
        assert f"{runs} failed, the next follows in " in reason
        remaining = int(reason.rsplit(" in ", 1)[1].split()[0])
        assert seconds - passed - 10 <= remaining <= seconds - passed
        passed = seconds
        age(monkeypatch, seconds)
    submit(instance, open_gate(gate(), resource, instance), SUCCEEDED)
    queue.claim(3).nack()
    assert look(gate(), resource, instance)[0] is not None


def test_without_a_pause_a_failed_run_delays_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 6)
    submit(instance, open_gate(gate(), resource, instance), FAILED)
    queue.claim(3).nack()
    assert open_gate(gate(failure_delay_seconds=0), resource, instance).run_key == f"{queue.name}:3:0"


def test_a_failed_run_that_dagster_will_retry_is_waited_for(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    at_once = gate(attempt_delay_seconds=0, failure_delay_seconds=0)
    fill(queue, 6)
    run = submit(instance, open_gate(at_once, resource, instance), FAILED, **{"dagster/will_retry": "true"})
    assert "1 of at most 1 runs in flight" in look(at_once, resource, instance)[1]
    two = gate(attempt_delay_seconds=0, failure_delay_seconds=0, max_in_flight=2)
    assert open_gate(two, resource, instance).run_key == f"{queue.name}:0:1"
    lease = queue.claim(3)  # it failed only then
    assert "1 of at most 1 runs in flight" in look(at_once, resource, instance)[1]
    lease.release()
    child = retried(instance, run)
    assert "1 of at most 1 runs in flight" in look(at_once, resource, instance)[1]
    instance.report_run_canceled(child)
    assert open_gate(at_once, resource, instance).run_key == f"{queue.name}:3:0"


def test_a_retry_that_never_comes_is_not_waited_for_for_ever(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = gate(attempt_delay_seconds=0, failure_delay_seconds=0)
    fill(queue, 3)
    submit(instance, open_gate(at_once, resource, instance), FAILED, **{"dagster/will_retry": "true"})
    assert look(at_once, resource, instance)[0] is None
    monkeypatch.setattr("dagster_sluicegate.sensors.runs._RETRY_EXPECTED_SECONDS", 0.0)
    assert open_gate(at_once, resource, instance).run_key == f"{queue.name}:0:1"


def test_a_queue_whose_counters_start_anew_is_not_stuck_at_old_run_keys(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    at_once = gate(attempt_delay_seconds=0, failure_delay_seconds=0)
    fill(queue, 3)
    submit(instance, open_gate(at_once, resource, instance), SUCCEEDED)
    with queue.claim(3):
        pass
    for key in client.scan_iter(queue.key.pending.removesuffix("pending") + "*"):
        client.delete(key)
    fill(queue, 3)
    assert open_gate(at_once, resource, instance).run_key == f"{queue.name}:0:1"


# ---------------------------------------------------------------------------------------------------- read-only


def test_it_works_for_a_user_who_may_not_write(
    queue: RedisMessageQueue,
    server: EmbeddedServer,
    client: redis.Redis,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.execute_command("ACL", "SETUSER", "viewer", "on", ">look", "~*", "+@all", "-@write")
    monkeypatch.setenv("VIEWER_PASSWORD", "look")
    viewer = RedisQueueResource(
        url=f"unix://viewer@{server.socket_path}?password_env=VIEWER_PASSWORD", queue_name=queue.name
    )
    fill(queue, 3)
    queue.claim(1, lease_seconds=0.05)
    wait_until(lambda: queue.depth().expired == 1, "the lease runs out")
    with viewer.get_queue() as theirs, pytest.raises(redis.ResponseError, match=r"permission|can't run"):
        theirs.publish({"n": 1})
    request = open_gate(gate(), viewer, instance)
    assert request.tags["sluicegate/ready"] == "3"


def test_looking_leaves_every_key_as_it_was(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    def dump() -> dict[bytes, object]:
        keys = client.scan_iter(queue.key.pending.removesuffix("pending") + "*")
        return {key: (client.dump(key), client.ttl(key) >= 0) for key in keys}

    fill(queue, 3)
    queue.claim(1, lease_seconds=60)
    before = dump()
    assert len(before) >= 3
    open_gate(gate(min_ready=1), resource, instance)
    look(gate(min_ready=100), resource, instance)
    assert dump() == before


def test_redis_that_is_down_fails_the_tick_and_names_the_server(instance: dg.DagsterInstance) -> None:
    port = free_port()
    away = RedisQueueResource(url=f"redis://127.0.0.1:{port}/0", queue_name="orders")
    with pytest.raises(RedisUnavailableError, match=f"127.0.0.1:{port}"):
        look(gate(), away, instance)


def test_redis_that_never_answers_costs_a_tick_its_timeout_only(instance: dg.DagsterInstance) -> None:
    with silent_port() as port:
        mute = RedisQueueResource(url=f"redis://127.0.0.1:{port}/0?socket_timeout=0.2", queue_name="orders")
        with pytest.raises(RedisUnavailableError, match=f"127.0.0.1:{port}"):
            look(gate(), mute, instance)


# ---------------------------------------------------------------------------------------------------- definition


def test_it_is_a_sensor_on_its_target_and_resource() -> None:
    sensor = gate(minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING, tags={"team": "orders"})
    assert sensor.minimum_interval_seconds == 5
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.tags == {"team": "orders"}
    assert sensor.required_resource_keys == {"queue"}
    assert sensor.description == (
        "Requests a run when 3 messages are ready in the queue of the resource 'queue'. Only reads."
    )
    defs = dg.Definitions(
        assets=[drained], sensors=[sensor], resources={"queue": RedisQueueResource(url="redis://x", queue_name="q")}
    )
    assert defs.resolve_sensor_def("gate") is sensor


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"min_ready": None}, "give min_ready, max_age_seconds"),
        ({"min_ready": 0}, "min_ready must be None or an int of 1 or more, not 0"),
        ({"max_age_seconds": -1}, "max_age_seconds must be None or a finite number above 0, not -1"),
        ({"max_in_flight": 0}, "max_in_flight must be an int from 1 to .*, not 0"),
        ({"messages_per_run": 0}, "messages_per_run must be an int from 1 to .*, not 0"),
        ({"min_ready": None, "max_age_seconds": 9, "max_in_flight": 3}, "max_in_flight=3 .* needs messages_per_run"),
        ({"attempt_delay_seconds": -1}, "attempt_delay_seconds must be a number of 0 or more .*, not -1"),
        ({"failure_delay_seconds": -1}, "failure_delay_seconds must be a number of 0 or more .*, not -1"),
        ({"stale_run_seconds": 0}, "stale_run_seconds must be a number above 0 .*, not 0"),
        ({"max_runtime_seconds": 0}, "max_runtime_seconds must be an int from 1 to .*, not 0"),
        ({"count_runs_of": "location"}, "count_runs_of"),
        ({"run_tags": {"sluicegate/queue": "x"}}, "the run tags \\['sluicegate/queue'\\] are the sensor's own"),
    ],
)
def test_conditions_that_cannot_work_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'gate'.*{complaint}"):
        gate(**options)


def test_a_resource_of_another_kind_is_refused_by_name(instance: dg.DagsterInstance) -> None:
    context = dg.build_sensor_context(instance=instance, resources={"queue": "redis://localhost"})
    with pytest.raises(ConfigurationError, match="the resource 'queue' is a str; put a RedisQueueResource there"):
        gate().evaluate_tick(context)


def test_a_test_may_call_it_directly(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    sensor = gate()
    by_context = sensor(dg.build_sensor_context(instance=instance, resources={"queue": resource}))
    by_argument = sensor(dg.build_sensor_context(instance=instance), queue=resource)
    for result in (by_context, by_argument):
        assert isinstance(result, dg.SensorResult)
        assert [request.run_key for request in result.run_requests or ()] == [f"{queue.name}:0:0"]


def test_a_resource_key_is_the_name_of_a_parameter() -> None:
    with pytest.raises(ConfigurationError, match="resource_key must be a Python identifier, not 'my-queue'"):
        gate(resource_key="my-queue")
