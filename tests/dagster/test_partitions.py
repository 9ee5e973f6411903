"""Partitions of drains: static ones have a queue each, and dynamic ones are added by the run that wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import (
    QueueDrainContext,
    QueuePartitions,
    RedisQueueResource,
    build_queue_drain_asset,
    build_queue_gates_sensor,
    write_by_partition,
)
from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import re_execute
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

REGIONS = QueuePartitions("partitions orders", ["eu", "us"])
DAYS = dg.DynamicPartitionsDefinition(name="order_days")
BY_DAY = dg.AssetSpec("orders_by_day", partitions_def=DAYS, deps=["drained"])


@pytest.fixture
def shop(url: str, client: redis.Redis) -> Iterator[RedisQueueResource]:
    """Yield a resource without a queue of its own; the queues of this file are gone afterwards."""
    yield RedisQueueResource(url=url)
    for key in client.scan_iter("sluicegate:{partitions orders*"):
        client.delete(key)


def fill(shop: RedisQueueResource, region: str, *numbers: int) -> None:
    with shop.get_queue(REGIONS.queue_of(region)) as queue:
        queue.publish_many({"n": number} for number in numbers)


def ready(shop: RedisQueueResource, region: str) -> int:
    return shop.get_depth(REGIONS.queue_of(region)).ready


def writing(folder: Path) -> Callable[..., None]:
    """Return a handler that writes the numbers of a batch into a file of its partition."""

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        path = ctx.output_file(folder / ctx.asset.partition_key, ".json")
        path.write_text(json.dumps([message.json()["n"] for message in messages]))

    return process


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


# ------------------------------------------------------------------------------------------ static, a queue for each


def test_a_run_drains_the_queue_of_its_partition_and_materializes_that_partition(
    shop: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    fill(shop, "eu", 1, 2, 3)
    fill(shop, "us", 4)
    asset = build_queue_drain_asset(
        spec="drained", process=writing(tmp_path), settle="per_batch", queue_partitions=REGIONS
    )

    assert dg.materialize([asset], resources={"queue": shop}, partition_key="eu", instance=instance).success

    assert (numbers_in(tmp_path / "eu"), numbers_in(tmp_path / "us")) == ([1, 2, 3], [])
    assert (ready(shop, "eu"), ready(shop, "us")) == (0, 1)
    assert instance.get_materialized_partitions(dg.AssetKey("drained")) == {"eu"}
    event = instance.get_latest_materialization_event(dg.AssetKey("drained"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["sluicegate/queue"].value == "partitions orders:eu"
    assert event.asset_materialization.metadata["dagster/row_count"].value == 3


def test_the_leases_of_two_partitions_in_one_run_have_names_of_their_own(
    shop: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    keys: list[str] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        keys.append(ctx.lease_key)

    asset = build_queue_drain_asset(spec="drained", process=process, settle="per_batch", queue_partitions=REGIONS)
    fill(shop, "eu", 1)
    fill(shop, "us", 2)
    defs = dg.Definitions(assets=[asset], resources={"queue": shop}, executor=dg.in_process_executor)
    job = defs.resolve_implicit_global_asset_job_def()
    first = job.execute_in_process(partition_key="eu", instance=instance)
    # A re-execution has the name of the root run, so only the partition separates the two.
    re_execute(job, instance, first.run_id, tags={"dagster/partition": "us"})

    assert len(set(keys)) == 2
    assert (ready(shop, "eu"), ready(shop, "us")) == (0, 0)


def test_a_sensor_requests_the_partition_whose_queue_is_deep_enough(
    shop: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    asset = build_queue_drain_asset(spec="drained", process=len, queue_partitions=REGIONS)
    sensor = build_queue_gates_sensor(name="regions", queues=REGIONS.gates(target=asset, min_ready=3))
    defs = dg.Definitions(assets=[asset], sensors=[sensor], resources={"queue": shop})
    fill(shop, "eu", 1, 2)
    fill(shop, "us", 1, 2, 3)

    context = dg.build_sensor_context(definitions=defs, instance=instance, resources={"queue": shop})
    (request,) = sensor.evaluate_tick(context).run_requests or []

    assert request.partition_key == "us"
    assert request.run_key == "partitions orders:us:0:0"
    assert request.tags["sluicegate/queue"] == "partitions orders:us"
    job = defs.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(partition_key=request.partition_key, instance=instance).success
    assert (ready(shop, "eu"), ready(shop, "us")) == (2, 0)


def test_a_run_without_a_partition_claims_nothing(shop: RedisQueueResource) -> None:
    asset = build_queue_drain_asset(spec="drained", process=len, queue_partitions=REGIONS)
    with pytest.raises(ConfigurationError, match="a run drains one partition of the queue 'partitions orders'"):
        list(asset(dg.build_asset_context(), queue=shop))
    fill(shop, "eu", 1)
    (result,) = list(asset(dg.build_asset_context(partition_key="eu"), queue=shop))
    assert result.metadata["dagster/row_count"] == 1


def test_a_backfill_has_a_run_per_partition() -> None:
    asset = build_queue_drain_asset(spec="drained", process=len, queue_partitions=REGIONS)
    assert asset.backfill_policy == dg.BackfillPolicy.multi_run(1)
    assert asset.partitions_def == REGIONS.partitions_def


def test_the_regions_of_the_documentation_are_published_gated_and_drained_by_themselves(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names = documented(snippet("dagster-partitions").replace("min_ready=1000", "min_ready=1"), tmp_path)
    given = {"queue": RedisQueueResource(url=url)}

    assert dg.materialize([names["published"]], resources=given, instance=instance).success
    (sensor,) = names["defs"].sensors
    context = dg.build_sensor_context(definitions=names["defs"], instance=instance, resources=given)
    regions = [request.partition_key for request in sensor.evaluate_tick(context).run_requests or []]
    for region in regions:
        assert dg.materialize(
            [names["stored_orders"]], resources=given, partition_key=region, instance=instance
        ).success

    assert regions == ["eu", "us"]
    assert {path.parent.name for path in tmp_path.glob("*/*.jsonl")} == {"region=eu", "region=us"}
    for key in client.scan_iter("sluicegate:{orders:*"):
        client.delete(key)


def test_the_days_of_the_documentation_are_added_by_the_run(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    names = documented(snippet("dagster-written-partitions"), tmp_path)
    shop = RedisQueueResource(url=url, queue_name="orders")
    with shop.get_queue() as queue:
        queue.publish_many({"n": n, "ordered_on": f"2026-03-0{1 + n}"} for n in range(3))

    assert dg.materialize([names["drained_orders"]], resources={"queue": shop}, instance=instance).success

    assert sorted(instance.get_dynamic_partitions("order_days")) == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert len(list(tmp_path.glob("day=*/*.jsonl"))) == 3
    for key in client.scan_iter("sluicegate:{orders}*"):
        client.delete(key)


def documented(code: str, folder: Path) -> dict[str, Any]:
    """Run a snippet of the documentation, with a folder of the test, and return its names."""
    names: dict[str, Any] = {"__name__": "documented"}
    code = code.replace("/data/orders", str(folder))
    exec(compile(code, "dagster.md", "exec", dont_inherit=True), names)  # noqa: S102
    return names


def test_payloads_are_routed_by_partition_in_their_order() -> None:
    orders = [("eu", 1), ("us", 2), ("eu", 3)]
    assert REGIONS.route(orders, lambda order: order[0]) == {"eu": [("eu", 1), ("eu", 3)], "us": [("us", 2)]}
    with pytest.raises(ConfigurationError, match="has no partition 'asia'; it has 'eu', 'us'"):
        REGIONS.route([("asia", 1)], lambda order: order[0])


def test_a_key_belongs_to_the_same_group_in_every_process_and_all_groups_are_used() -> None:
    groups = QueuePartitions.hashed("orders", 12)

    assert groups.keys[:2] == ("00", "01")
    assert [groups.key_of(key) for key in ("acme", "globex", "")] == ["09", "06", "00"]
    found = [groups.key_of(f"customer {number}") for number in range(1200)]
    assert {key: 60 < found.count(key) < 140 for key in groups.keys} == dict.fromkeys(groups.keys, True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([], "keys must be a list of partition keys, not []"),
        ("eu", "keys must be a list of partition keys, not 'eu'"),
        (["eu", "eu"], "QueuePartitions('orders'): "),
        (["e...u"], "QueuePartitions('orders'): "),
        ([str(number) for number in range(1001)], "1001 keys are more than 1000"),
    ],
)
def test_keys_that_cannot_work_are_refused(keys: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        QueuePartitions("orders", keys)
    assert words in str(refused.value)


@pytest.mark.parametrize("count", [0, 1001, "8"])
def test_a_number_of_groups_that_cannot_work_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="count"):
        QueuePartitions.hashed("orders", count)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spec": BY_DAY}, "its spec has partitions, which a queue does not know"),
        ({"spec": BY_DAY, "queue_partitions": REGIONS}, "its spec has other partitions than queue_partitions"),
        ({"queue_partitions": ["eu"]}, "queue_partitions must be a QueuePartitions, not a list"),
        ({"queue_partitions": REGIONS, "queue_name": "orders"}, "leave queue_name='orders' out"),
    ],
)
def test_partitions_that_do_not_fit_the_asset_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match="drain asset ") as refused:
        build_queue_drain_asset(**{"spec": "drained", "process": len, **options})
    assert words in str(refused.value)


# ------------------------------------------------------------------------- dynamic, added by the run that wrote them


def by_day(folder: Path, **options: Any) -> Callable[..., None]:
    """Return a handler that writes a file per batch and day, and fails on a message that says so."""

    def write(day: str, messages: list[Message], ctx: QueueDrainContext) -> None:
        orders = [message.json() for message in messages]
        if any(order.get("fails") for order in orders) and not (folder / "mended").exists():
            raise ValueError("cannot write")
        ctx.output_file(folder / day, ".json").write_text(json.dumps([order["n"] for order in orders]))

    return write_by_partition(spec=BY_DAY, partition_of=lambda message: message.json()["day"], write=write, **options)


def drain_of(process: Callable[..., None], resource: RedisQueueResource) -> dg.JobDefinition:
    drained = build_queue_drain_asset(spec="drained", process=process, settle="per_batch", batch_size=4)
    defs = dg.Definitions(assets=[drained, BY_DAY], resources={"queue": resource}, executor=dg.in_process_executor)
    return defs.resolve_implicit_global_asset_job_def()


def events_of(instance: dg.DagsterInstance) -> list[tuple[str | None, Any]]:
    """Return partition and row count of every materialization of the partitioned asset, in their order."""
    records = instance.fetch_materializations(dg.AssetKey("orders_by_day"), limit=100, ascending=True).records
    found = [record.asset_materialization for record in records]
    return [(event.partition, event.metadata["dagster/row_count"].value) for event in found if event is not None]


def test_the_run_adds_the_partitions_that_it_wrote_and_records_each(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many({"n": n, "day": f"2026-01-0{1 + n % 2}"} for n in range(6))

    assert drain_of(by_day(tmp_path), resource).execute_in_process(instance=instance).success

    assert sorted(instance.get_dynamic_partitions("order_days")) == ["2026-01-01", "2026-01-02"]
    assert events_of(instance) == [("2026-01-01", 2), ("2026-01-02", 2), ("2026-01-01", 1), ("2026-01-02", 1)]
    assert numbers_in(tmp_path / "2026-01-01") == [0, 2, 4]
    assert instance.get_materialized_partitions(dg.AssetKey("orders_by_day")) == {"2026-01-01", "2026-01-02"}
    assert (queue.depth().ready, queue.stats().acked) == (0, 6)


def test_a_partition_is_recorded_before_its_messages_are_acked_so_none_is_missing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many({"n": n, "day": f"day {n // 4}", "fails": n == 5} for n in range(8))

    job = drain_of(by_day(tmp_path), resource)
    first = job.execute_in_process(instance=instance, raise_on_error=False)

    assert not first.success
    assert events_of(instance) == [("day 0", 4)]
    assert instance.get_dynamic_partitions("order_days") == ["day 0"]
    assert queue.stats().acked == 4

    (tmp_path / "mended").touch()
    wait_until(lambda: queue.depth().ready == 4, "the batch is due")
    re_execute(job, instance, first.run_id)

    # Messages that failed before come in batches of their own.
    assert events_of(instance) == [("day 0", 4), *[("day 1", 1)] * 4]
    assert queue.stats().acked == 8


def test_a_message_without_a_partition_is_buried_and_the_others_are_written(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many([{"n": 1, "day": "monday"}, {"n": 2}, {"n": 3, "day": ""}, {"n": 4, "day": "a...b"}])

    assert drain_of(by_day(tmp_path), resource).execute_in_process(instance=instance).success

    assert events_of(instance) == [("monday", 1)]
    assert numbers_in(tmp_path / "monday") == [1]
    dead = queue.peek(state="dead")
    assert sorted(entry.message.json()["n"] for entry in dead if entry.message) == [2, 3, 4]
    assert {entry.reason for entry in dead} == {"no partition"}


def test_a_batch_with_too_many_partitions_fails_and_adds_none(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many({"n": n, "day": f"day {n}"} for n in range(4))

    job = drain_of(by_day(tmp_path, max_partitions_per_batch=3), resource)
    result = job.execute_in_process(instance=instance, raise_on_error=False)

    failure = result.failure_data_for_node("drained")
    assert failure is not None
    assert "one batch has 4 partitions of 'orders_by_day'" in failure.error.to_string()  # type: ignore[union-attr]
    assert instance.get_dynamic_partitions("order_days") == []
    assert queue.stats().acked == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spec": dg.AssetSpec("orders_by_day")}, "spec needs partitions_def=dg.DynamicPartitionsDefinition(name=...)"),
        ({"partition_of": "day"}, "partition_of must be a function, not 'day'"),
        ({"write": None}, "write must be a function, not None"),
        ({"max_partitions_per_batch": 0}, "max_partitions_per_batch"),
    ],
)
def test_options_of_a_write_by_partition_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match="write_by_partition for 'orders_by_day'") as refused:
        write_by_partition(**{"spec": BY_DAY, "partition_of": str, "write": print, **options})
    assert words in str(refused.value)
