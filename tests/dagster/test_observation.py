"""The observation sensor, tick by tick: what makes a new data version, and that nothing else writes an event."""

from __future__ import annotations

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_queue_observation_sensor, build_queue_source_asset
from dagster_sluicegate.queue_assets.observation import QueueVersion, VersionRule
from sluicegate import Depth, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from sluicegate.gates import Gate
from tests.dagster.observing import evaluate, fill, stored, tick, versions
from tests.support.servers import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

RULE = VersionRule(Gate(min_ready=3), 60)


def observed(**options: object) -> dg.SensorDefinition:
    defaults: dict[str, object] = {"name": "observed", "queue_asset": "orders_queue", "min_ready": 3}
    return build_queue_observation_sensor(**(defaults | options))  # type: ignore[arg-type]


def depth(ready: int = 3, claimed: int = 0, paused: bool = False) -> Depth:
    return Depth(
        ready=ready,
        pending=ready,
        returned=0,
        delayed=0,
        due=0,
        in_flight=0,
        leases=0,
        expired=0,
        dead=0,
        oldest_ready_age_seconds=1.0 if ready else None,
        paused=paused,
        published_total=ready,
        claimed_total=claimed,
    )


# --------------------------------------------------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("last", "seen", "expected"),
    [
        pytest.param(None, depth(2), None, id="shut, never observed"),
        pytest.param(None, depth(3), ("0:0", 1000), id="open, never observed"),
        pytest.param((0, 0, 950), depth(3), ("0:0", 950), id="open, before the delay"),
        pytest.param((0, 0, 940), depth(3), ("0:1", 1000), id="open, after the delay"),
        pytest.param((0, 7, 940), depth(3), ("0:8", 1000), id="open, after many delays"),
        pytest.param((0, 0, 2000), depth(3), ("0:1", 1000), id="the clock was set back"),
        pytest.param((0, 7, 999), depth(3, claimed=5), ("5:0", 1000), id="a consumer claimed"),
        pytest.param((9, 0, 999), depth(3, claimed=5), ("5:0", 1000), id="the counts begin anew"),
        pytest.param((0, 0, 100), depth(2, claimed=5), ("0:0", 100), id="shut, a consumer claimed"),
        pytest.param((0, 0, 100), depth(3, claimed=5, paused=True), ("0:0", 100), id="paused"),
    ],
)
def test_the_version_changes_only_while_messages_wait(
    last: tuple[int, int, float] | None, seen: Depth, expected: tuple[str, float] | None
) -> None:
    version = RULE.next(QueueVersion(*last) if last else None, seen, now=1000)
    assert ((version.text, version.since) if version else None) == expected


# ------------------------------------------------------------------------------------------------------- the ticks


def test_an_open_gate_is_observed_once(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 5)
    queue.publish({"n": 5}, delay_seconds=600)
    queue.claim(1)
    (event,) = tick(observed(), resource, instance)
    assert event.asset_key == dg.AssetKey("orders_queue")
    assert event.tags == {"dagster/data_version": "1:0"}
    values = {name: value.value for name, value in event.metadata.items()}
    assert values.pop("sluicegate/queue_id").startswith(f"{queue.name}@")
    assert values.pop("sluicegate/oldest_ready_age_seconds") >= 0
    assert values.pop("sluicegate/version_since") > 0
    assert values == {
        "sluicegate/ready": 4,
        "sluicegate/in_flight": 1,
        "sluicegate/dead": 0,
        "sluicegate/delayed": 1,
    }
    events, reason = evaluate(observed(), resource, instance)
    assert events == []
    assert reason.startswith(f"4 messages ready in {queue.name!r}, the oldest for ")
    assert "(1 in flight, 1 delayed), observed as version 1:0; the next version follows in " in reason
    assert reason.endswith(" s, or when a consumer claims.")


def test_messages_of_an_expired_lease_are_observed_as_ready_only(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 5)
    queue.claim(2, lease_seconds=0.1)
    queue.claim(1)
    wait_until(lambda: queue.depth().expired == 2, "the lease has expired")
    (event,) = tick(observed(), resource, instance)
    values = {name: value.value for name, value in event.metadata.items()}
    assert (values["sluicegate/ready"], values["sluicegate/in_flight"]) == (4, 1)


def test_a_closed_gate_is_not_observed(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 2)
    events, reason = evaluate(observed(), resource, instance)
    assert events == []
    assert reason.endswith("; the next version follows when 3 messages are ready.")


def test_an_old_message_opens_the_gate(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 1)
    sensor = observed(min_ready=None, max_age_seconds=0.05)
    wait_until(lambda: versions(tick(sensor, resource, instance)) == ["0:0"], "the message is old enough")


def test_a_paused_queue_is_not_observed(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    queue.pause()
    events, reason = evaluate(observed(), resource, instance)
    assert events == []
    assert reason.startswith("3 messages ready")
    assert reason.endswith("; the queue is paused.")


def test_the_attempt_grows_until_a_consumer_claims(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 9)
    sensor = observed(attempt_delay_seconds=0.05)
    found: list[str] = []

    def third_attempt() -> bool:
        found.extend(versions(tick(sensor, resource, instance)))
        return len(found) == 3

    wait_until(third_attempt, "the third attempt")
    assert found == ["0:0", "0:1", "0:2"]
    queue.claim(4)
    assert versions(tick(observed(), resource, instance)) == ["4:0"]
    queue.claim(5)
    assert tick(observed(), resource, instance) == []
    assert [event.tags["dagster/data_version"] for event in stored(instance, "orders_queue")] == [*found, "4:0"]


def test_a_crash_of_the_daemon_repeats_no_event(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    events, _ = evaluate(observed(), resource, instance)
    assert versions(events) == ["0:0"]  # and the daemon crashes before it stores anything
    assert versions(tick(observed(), resource, instance)) == ["0:0"]  # now it crashes before it stores a cursor
    assert tick(observed(name="renamed"), resource, instance) == []
    assert len(stored(instance, "orders_queue")) == 1


def test_observations_of_others_in_between_change_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    tick(observed(), resource, instance)
    instance.report_runless_asset_event(dg.AssetObservation("orders_queue", metadata={"note": "by hand"}))
    instance.report_runless_asset_event(
        dg.AssetObservation("orders_queue", tags={"dagster/data_version": "2026-01-01"})
    )
    assert tick(observed(), resource, instance) == []


def test_two_code_locations_that_observe_two_queues_under_one_key_repeat_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    other = RedisQueueResource(url=resource.url, queue_name=f"{queue.name} of another location")
    fill(queue, 3)
    with other.get_queue() as others:
        fill(others, 4)
        others.claim(1)
        assert versions(tick(observed(), resource, instance)) == ["0:0"]
        assert versions(tick(observed(), other, instance)) == ["1:0"]
        assert tick(observed(), resource, instance) == []
        assert tick(observed(), other, instance) == []


def test_a_version_without_its_time_counts_from_its_event(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    instance.report_runless_asset_event(dg.AssetObservation("orders_queue", tags={"dagster/data_version": "0:6"}))
    assert tick(observed(), resource, instance) == []
    sensor = observed(attempt_delay_seconds=0.01)
    wait_until(lambda: versions(tick(sensor, resource, instance)) == ["0:7"], "the attempt after it")


def test_a_look_changes_nothing_in_redis(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    fill(queue, 5)
    queue.claim(2).extend(0.05)
    wait_until(lambda: queue.depth().expired == 2, "the lease expires")
    before = {key: client.dump(key) for key in client.scan_iter()}
    assert versions(tick(observed(), resource, instance)) == ["2:0"]
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_redis_that_is_down_fails_the_tick(instance: dg.DagsterInstance) -> None:
    resource = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    with pytest.raises(RedisUnavailableError, match="Redis"):
        observed()(dg.build_sensor_context(instance=instance), queue=resource)
    assert stored(instance, "orders_queue") == []


def test_a_test_may_call_it_with_its_resource(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    result = observed()(dg.build_sensor_context(instance=instance), queue=resource)
    assert isinstance(result, dg.SensorResult)
    assert versions(result.asset_events) == ["0:0"]
    assert result.cursor == "3 ready, observed as version 0:0"


# ----------------------------------------------------------------------------------------------------- its options


def test_the_description_names_asset_and_conditions() -> None:
    sensor = observed(queue_asset=build_queue_source_asset(spec=["shop", "orders"]), max_age_seconds=60)
    assert sensor.description == (
        "Observes shop/orders when 3 messages are ready or the oldest has been ready for 60 s in the queue of the "
        "resource 'queue', again every 60 s until a consumer claims; reads only."
    )


def test_the_sensor_is_shown_at_the_asset_that_it_is_given() -> None:
    asset = build_queue_source_asset(spec="orders_queue")
    sensor = observed(queue_asset=asset)
    resources = {"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")}
    dg.Definitions.validate_loadable(dg.Definitions(assets=[asset], sensors=[sensor], resources=resources))
    (target,) = sensor.jobs
    assert target.selection == dg.AssetSelection.assets("orders_queue")
    by_key = observed(queue_asset="of_another_location")
    dg.Definitions.validate_loadable(dg.Definitions(sensors=[by_key], resources=resources))
    assert not by_key.has_jobs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_ready": None}, "sensor 'observed': give min_ready, max_age_seconds"),
        ({"min_ready": 0}, "sensor 'observed': min_ready must be"),
        ({"max_age_seconds": -1}, "sensor 'observed': max_age_seconds must be"),
        ({"attempt_delay_seconds": 0}, "sensor 'observed': attempt_delay_seconds must be a number above 0"),
        ({"queue_asset": 5}, "sensor 'observed': give an asset or the key of one, not 5"),
        ({"queue_asset": []}, r"sensor 'observed': give an asset or the key of one, not \[\]"),
        ({"checks": ["orders"]}, "sensor 'observed': checks must be asset checks such as build_queue_depth_check"),
        ({"queue_name": "\n"}, "sensor 'observed': queue_name: "),
        ({"resource_key": "the queue"}, "resource_key must be a Python identifier, not 'the queue'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        observed(**options)


def test_an_asset_with_several_keys_is_refused() -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("a"), dg.AssetSpec("b")])
    def several():  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(ConfigurationError, match=r"give one key, because the asset has several: \['a', 'b'\]"):
        observed(queue_asset=several)
