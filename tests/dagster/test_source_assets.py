"""The queue as an asset: its place in the graph, and observations by hand."""

from __future__ import annotations

import json
import warnings
from datetime import timedelta

import dagster as dg
import pytest

from dagster_sluicegate import (
    RedisQueueResource,
    build_queue_depth_check,
    build_queue_drain_asset,
    build_queue_observation_sensor,
    build_queue_source_asset,
)
from dagster_sluicegate.drains.outcome import OnEmpty
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import freshness
from tests.dagster.observing import fill, stored, tick, versions
from tests.support.servers import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster


@dg.asset
def published() -> None: ...


ORDERS = build_queue_source_asset(
    spec=dg.AssetSpec(
        "orders_queue",
        deps=[published],
        kinds={"redis"},
        group_name="orders",
        tags={"team": "shop"},
        metadata={"page": 1},
        owners=["team:shop"],
    ),
    min_ready=3,
)
DRAINED = build_queue_drain_asset(spec="drained", queue_asset=ORDERS, process=lambda messages: None)


def observation_run(
    resource: RedisQueueResource, instance: dg.DagsterInstance, asset: dg.AssetsDefinition = ORDERS
) -> dg.ExecuteInProcessResult:
    """Observe the queue by a run, as the button in the UI does."""
    defs = dg.Definitions(
        assets=[published, asset],
        jobs=[dg.define_asset_job("observation", selection=[asset.key])],
        resources={"queue": resource},
    )
    return defs.resolve_job_def("observation").execute_in_process(instance=instance, raise_on_error=False)


def observe(
    resource: RedisQueueResource, instance: dg.DagsterInstance, asset: dg.AssetsDefinition = ORDERS
) -> dg.AssetObservation:
    """Observe the queue by a run, and return the event."""
    assert observation_run(resource, instance, asset).success
    return stored(instance, "orders_queue")[-1]


def version_of(observation: dg.AssetObservation) -> str | None:
    return observation.tags.get("dagster/data_version")


def test_one_key_joins_publisher_queue_drain_and_checks() -> None:
    check = build_queue_depth_check(asset=ORDERS, max_ready=10)
    defs = dg.Definitions(
        assets=[published, ORDERS, DRAINED],
        asset_checks=[check],
        sensors=[build_queue_observation_sensor(name="observed", queue_asset=ORDERS, min_ready=3)],
        resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
    )
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    queue = graph.get(dg.AssetKey("orders_queue"))
    assert queue.parent_keys == {dg.AssetKey("published")}
    assert queue.child_keys == {dg.AssetKey("drained")}
    assert queue.check_keys == {dg.AssetCheckKey(queue.key, "queue_depth")}
    assert queue.is_observable
    assert not queue.is_materializable
    assert (queue.kinds, queue.group_name, queue.owners) == ({"redis"}, "orders", ["team:shop"])
    assert (queue.tags["team"], queue.metadata["page"]) == ("shop", 1)
    assert queue.description == (
        "Stands for the queue of the resource `queue`. Its data version changes when 3 messages are ready."
    )


def test_a_key_alone_is_enough() -> None:
    asset = build_queue_source_asset(spec=["shop", "orders"])
    (spec,) = asset.specs
    assert spec.key == dg.AssetKey(["shop", "orders"])
    assert spec.kinds == {"redis"}
    assert spec.description is not None
    assert "when 1 message is ready." in spec.description
    with_text = build_queue_source_asset(spec=dg.AssetSpec("orders", description="Of the **shop**."))
    assert next(iter(with_text.specs)).description == "Of the **shop**."


def test_an_observation_by_hand_follows_the_sensors_rule(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_observation_sensor(name="observed", queue_asset=ORDERS, min_ready=3)
    fill(queue, 2)
    closed = observe(resource, instance)
    assert version_of(closed) is None
    assert closed.metadata["sluicegate/ready"].value == 2

    fill(queue, 4)
    assert version_of(observe(resource, instance)) == "0:0"
    assert tick(sensor, resource, instance) == []  # it is observed already
    queue.claim(1)
    assert versions(tick(sensor, resource, instance)) == ["1:0"]
    by_hand = observe(resource, instance)
    assert version_of(by_hand) == "1:0"
    assert by_hand.metadata["sluicegate/ready"].value == 5
    queue.claim(5)
    assert version_of(observe(resource, instance)) == "1:0"  # closed again: the version stays


def test_observations_by_hand_delay_no_attempt(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_observation_sensor(name="observed", queue_asset=ORDERS, min_ready=3, attempt_delay_seconds=0.5)
    fill(queue, 3)
    (first,) = tick(sensor, resource, instance)
    since = first.metadata["sluicegate/version_since"].value
    found: list[str] = []

    def second_attempt() -> bool:
        if not found:
            assert observe(resource, instance).metadata["sluicegate/version_since"].value == since
        found.extend(versions(tick(sensor, resource, instance)))
        return bool(found)

    wait_until(second_attempt, "the second attempt")
    assert found == ["0:1"]


def test_an_attempt_by_hand_grows_after_its_delay(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    asset = build_queue_source_asset(spec="orders_queue", attempt_delay_seconds=0.001)
    fill(queue, 1)
    for expected in ("0:0", "0:1", "0:2"):
        assert version_of(observe(resource, instance, asset)) == expected


def test_a_test_may_call_it_with_its_resource(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    fill(queue, 3)
    with dg.DagsterInstance.ephemeral() as instance:
        result = ORDERS(dg.build_asset_context(instance=instance), queue=resource)
    assert isinstance(result, dg.ObserveResult)
    assert result.data_version == dg.DataVersion("0:0")
    assert result.metadata is not None
    assert result.metadata["sluicegate/ready"] == 3


def test_an_observation_tells_neither_url_nor_payload(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    queue.publish_many({"secret": "payload"} for _ in range(3))
    event = observe(resource, instance)
    text = json.dumps([dict(event.tags), {name: str(value) for name, value in event.metadata.items()}])
    assert "payload" not in text
    assert resource.url not in text


def test_another_queue_of_the_resource_s_server_is_named(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    asset = build_queue_source_asset(spec="orders_queue", queue_name=queue.name)
    without_name = RedisQueueResource(url=resource.url)
    assert observe(without_name, instance, asset).metadata["sluicegate/ready"].value == 3
    assert next(iter(asset.specs)).description == (
        f"Stands for the queue `{queue.name}`. Its data version changes when 1 message is ready."
    )


def test_redis_that_is_down_fails_the_run(instance: dg.DagsterInstance) -> None:
    down = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    assert not observation_run(down, instance).success
    assert stored(instance, "orders_queue") == []


def test_building_it_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_queue_source_asset(spec="orders_queue")


def test_partitions_are_refused() -> None:
    spec = dg.AssetSpec("orders", partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    with pytest.raises(ConfigurationError, match="queue asset 'orders' has partitions, which a queue does not have"):
        build_queue_source_asset(spec=spec)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_ready": 0}, "queue asset 'orders': min_ready must be"),
        ({"max_age_seconds": 0}, "queue asset 'orders': max_age_seconds must be"),
        ({"attempt_delay_seconds": -1}, "queue asset 'orders': attempt_delay_seconds must be a number above 0"),
        ({"queue_name": " "}, "queue asset 'orders': queue_name: "),
        ({"resource_key": "1st"}, "resource_key must be a Python identifier, not '1st'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        build_queue_source_asset(spec="orders", **options)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- freshness


def test_freshness_counts_materializations_of_the_drain_and_no_observations(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1))
    asset = build_queue_source_asset(spec=dg.AssetSpec("orders_queue", freshness_policy=policy))
    spec = dg.AssetSpec("drained", freshness_policy=policy)

    def drain(on_empty: OnEmpty) -> dg.AssetsDefinition:
        drained = build_queue_drain_asset(
            spec=spec, queue_asset=asset, process=lambda messages: None, on_empty=on_empty
        )
        assert dg.materialize([drained], resources={"queue": resource}, instance=instance).success
        return drained

    fill(queue, 3)
    observe(resource, instance, asset)
    queue.claim(3).ack()
    defs = dg.Definitions(assets=[asset, drain("observe")], resources={"queue": resource})
    assert len(stored(instance, "drained")) == 1
    assert freshness(defs, instance, "orders_queue") == "UNKNOWN"
    assert freshness(defs, instance, "drained") == "UNKNOWN"
    drain("materialize")
    assert freshness(defs, instance, "drained") == "PASS"
    assert freshness(defs, instance, "drained", seconds_later=3601) == "FAIL"
