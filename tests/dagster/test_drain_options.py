"""The drain asset's definition, and the options that are refused."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource, build_queue_drain_asset
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError

pytestmark = pytest.mark.dagster


def test_a_full_spec_is_kept() -> None:
    spec = dg.AssetSpec(
        ["raw", "orders"],
        deps=["source"],
        description="Our own.",
        group_name="raw",
        kinds={"json"},
        owners=["team:orders"],
    ).with_io_manager_key("warehouse")
    asset = build_queue_drain_asset(
        spec=spec,
        process=len,
        resource_key="orders_queue",
        required_resource_keys={"catalogue"},
        retry_policy=dg.RetryPolicy(max_retries=2),
        pool="orders",
        op_tags={"size": "small"},
    )
    (kept,) = asset.specs
    assert kept == spec.replace_attributes(skippable=True)
    assert asset.op.name == "raw__orders"
    assert asset.required_resource_keys == {"orders_queue", "catalogue", "warehouse"}
    assert asset.op.retry_policy == dg.RetryPolicy(max_retries=2)
    assert asset.op.pool == "orders"
    assert asset.op.tags == {"size": "small"}


def test_a_key_alone_makes_a_redis_asset_with_the_usual_io_manager() -> None:
    asset = build_queue_drain_asset(spec="orders", process=len)
    (spec,) = asset.specs
    assert (spec.key, spec.kinds, spec.skippable) == (dg.AssetKey("orders"), {"redis"}, True)
    assert asset.required_resource_keys == {"queue", "io_manager"}
    assert build_queue_drain_asset(
        spec=dg.AssetKey(["raw", "orders"]), process=len, io_manager_key="lake"
    ).required_resource_keys == {"queue", "lake"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch_size": 0}, "batch_size must be an int from 1 to 10000, not 0"),
        ({"batch_size": 10_001}, "batch_size must be an int from 1 to 10000, not 10001"),
        ({"batch_size": True}, "batch_size must be an int from 1 to 10000, not True"),
        ({"max_messages": 0}, "max_messages must be an int from 1 to 1000000000, not 0"),
        ({"max_messages": 2.5}, "max_messages must be an int from 1 to 1000000000, not 2.5"),
        ({"max_messages": None}, "max_messages=None would hold a whole backlog in memory"),
        ({"settle": "before"}, "settle must be 'after_yield' or 'per_batch', not 'before'"),
        ({"on_empty": "nothing"}, "on_empty must be 'skip', 'observe' or 'materialize', not 'nothing'"),
        ({"combine": 1}, "combine must be"),
        ({"combine": sum, "settle": "per_batch"}, "combine has nothing to combine with settle='per_batch'"),
        ({"queue_name": " "}, "queue_name: queue name is blank; give it at least one visible character"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0.*not 0"),
        (
            {"spec": dg.AssetSpec("orders", partitions_def=dg.StaticPartitionsDefinition(["a"]))},
            "has partitions, which a queue does not know",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"drain asset 'orders'.*{complaint}"):
        build_queue_drain_asset(**({"spec": "orders", "process": len} | options))


def test_the_ui_names_the_queue_in_markdown() -> None:
    asset = build_queue_drain_asset(spec="orders", process=len, queue_name="orders eu", max_messages=2000)
    (spec,) = asset.specs
    assert spec.description == "What was drained from the queue `orders eu` of the resource `queue`."
    assert asset.op.description == (
        "Drains at most 2,000 messages that are ready from the queue `orders eu` of the resource `queue`, in batches "
        "of 1,000."
    )


def test_a_queue_asset_becomes_a_dependency_beside_the_others() -> None:
    spec = dg.AssetSpec("orders", deps=["customers"])
    asset = build_queue_drain_asset(spec=spec, process=len, queue_asset=["queues", "orders"])
    assert {dep.asset_key for dep in next(iter(asset.specs)).deps} == {
        dg.AssetKey("customers"),
        dg.AssetKey(["queues", "orders"]),
    }


def test_a_queue_asset_that_is_neither_an_asset_nor_a_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="drain asset 'orders': give an asset or the key of one, not 5"):
        build_queue_drain_asset(spec="orders", process=len, queue_asset=5)  # type: ignore[arg-type]


def test_an_asset_that_gets_a_key_prefix_still_drains(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    specs = [dg.AssetCheckSpec("complete", asset="orders")]
    asset = build_queue_drain_asset(spec="orders", process=len, on_empty="observe", check_specs=specs)
    prefixed = asset.with_attributes(asset_key_replacements={dg.AssetKey("orders"): dg.AssetKey(["eu", "orders"])})
    result = dg.materialize([prefixed], resources={"queue": resource})
    (event,) = result.get_asset_observation_events()
    assert event.asset_observation_data.asset_observation.asset_key == dg.AssetKey(["eu", "orders"])
