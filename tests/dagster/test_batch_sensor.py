"""The batch sensor: one run for each completion of a batch, whoever drained it, and no write to Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_batch_sensor
from dagster_sluicegate.places import label_of
from sluicegate import BatchStatus, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from sluicegate.place import Place
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

ORDERS = dg.AssetKey("published_orders")


@dg.asset
def report() -> None: ...


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def daily_report() -> None: ...


def sensor_of(**options: Any) -> dg.SensorDefinition:
    chosen = {"asset": ORDERS} if "batch_ids" not in options else {}
    return build_batch_sensor(**{"name": "drained", "target": report, **chosen, **options})


class Ticks:
    """Ticks of a sensor, each with the cursor of the last one."""

    def __init__(
        self,
        sensor: dg.SensorDefinition,
        resource: RedisQueueResource,
        instance: dg.DagsterInstance,
        defs: dg.Definitions | None = None,
    ) -> None:
        self.sensor, self.resource, self.instance = sensor, resource, instance
        self.defs = defs or dg.Definitions(assets=[report, daily_report], sensors=[sensor])
        self.cursor: str | None = None
        self.reason = ""

    def tick(self) -> Sequence[dg.RunRequest]:
        context = dg.build_sensor_context(
            instance=self.instance, resources={"queue": self.resource}, cursor=self.cursor, definitions=self.defs
        )
        data = self.sensor.evaluate_tick(context)
        self.cursor, self.reason = data.cursor, data.skip_message or ""
        return data.run_requests or []


def publish(
    queue: RedisMessageQueue, instance: dg.DagsterInstance, batch_id: str, count: int = 3, **event: Any
) -> None:
    """Publish a batch, and record it as the asset that publishes does."""
    queue.batch([{"n": number} for number in range(count)], batch_id=batch_id)
    record(instance, batch_id, **{"sluicegate/queue": label_of(Place(queue.name)), **event})


def record(instance: dg.DagsterInstance, batch_id: str, partition: str | None = None, **metadata: Any) -> None:
    instance.report_runless_asset_event(
        dg.AssetMaterialization(ORDERS, partition=partition, metadata={"sluicegate/batch_id": batch_id, **metadata})
    )


def ack_all(queue: RedisMessageQueue) -> None:
    while lease := queue.claim(100):
        lease.ack()


def completion(queue: RedisMessageQueue, batch_id: str) -> str:
    at = queue.get_batch(batch_id).status().completed_at
    assert at is not None
    return f"{at.timestamp() * 1000:.0f}"


def test_one_run_is_requested_when_a_batch_is_complete(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(run_tags={"team": "shop"}), resource, instance)
    assert ticks.tick() == []
    assert ticks.reason == f"No batch of {queue.name!r} is open."
    publish(queue, instance, "monday")
    assert ticks.tick() == []
    assert ticks.reason == f"1 open in {queue.name!r}: 'monday' has 3 of 3 messages left."
    queue.claim(2).ack()
    lease = queue.claim(1)
    lease.nack(lease.messages, delay_seconds=60)
    assert ticks.tick() == []
    assert ticks.reason == f"1 open in {queue.name!r}: 'monday' has 1 of 3 messages left."
    queue.purge("delayed")

    (request,) = ticks.tick()

    assert request.run_key == f"batch:{queue.name}:monday:{completion(queue, 'monday')}"
    assert request.tags == {
        "team": "shop",
        "dagster/sensor_name": "drained",
        "dagster/max_runtime": "86400",
        "sluicegate/queue": queue.name,
        "sluicegate/queue_id": request.tags["sluicegate/queue_id"],
        "sluicegate/sensor": "drained",
        "sluicegate/batch_id": "monday",
        "sluicegate/batch_total": "3",
        "sluicegate/batch_dead": "0",
    }
    assert request.tags["sluicegate/queue_id"].endswith("/batch"), "no gate of the queue counts this run"
    assert ticks.tick() == []
    assert ticks.reason == f"No batch of {queue.name!r} is open."


def test_a_tick_that_is_repeated_has_the_same_run_key_and_a_lost_cursor_too(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    publish(queue, instance, "monday")
    ticks.tick()
    before = ticks.cursor
    ack_all(queue)
    (first,) = ticks.tick()
    for cursor in (before, None, "no JSON", '{"version": 99}'):
        ticks.cursor = cursor
        assert [request.run_key for request in ticks.tick()] == [first.run_key]


def test_a_redrive_reopens_the_batch_and_its_next_completion_requests_another_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    publish(queue, instance, "monday")
    lease = queue.claim(3)
    lease.bury(lease.messages[:1], error="broken")
    lease.ack()
    (first,) = ticks.tick()
    assert first.tags["sluicegate/batch_dead"] == "1"
    assert ticks.tick() == []
    assert ticks.reason == f"No batch of {queue.name!r} is open; a run was requested for each of 1."
    queue.redrive()
    assert ticks.tick() == []
    assert "'monday' has 1 of 3 messages left" in ticks.reason
    ack_all(queue)

    (second,) = ticks.tick()

    assert second.run_key == f"batch:{queue.name}:monday:{completion(queue, 'monday')}"
    assert second.run_key != first.run_key
    assert ticks.tick() == []


def test_a_batch_that_was_reopened_and_completed_between_two_ticks_requests_another_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    publish(queue, instance, "monday", 1)
    lease = queue.claim(1)
    lease.bury(lease.messages, error="broken")
    (first,) = ticks.tick()
    queue.redrive()
    ack_all(queue)

    (second,) = ticks.tick()

    assert second.run_key == f"batch:{queue.name}:monday:{completion(queue, 'monday')}"
    assert second.run_key != first.run_key


def test_dead_letters_hold_the_run_back_where_that_is_asked_for(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(max_dead=0), resource, instance)
    publish(queue, instance, "monday")
    lease = queue.claim(3)
    lease.bury(lease.messages[:1], error="broken")
    lease.ack()
    assert ticks.tick() == []
    assert "'monday' is complete with 1 dead letter, more than 0" in ticks.reason
    queue.redrive()
    ack_all(queue)

    (request,) = ticks.tick()

    assert request.tags["sluicegate/batch_dead"] == "0"


def test_a_tick_looks_at_a_bounded_number_and_the_event_log_keeps_the_rest(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(max_batches=2), resource, instance)
    ticks.tick()
    publish(queue, instance, "first")
    ticks.tick()
    for name in ("second", "third", "fourth"):
        publish(queue, instance, name)
    ticks.tick()
    assert "'first'" in ticks.reason
    assert "'second'" in ticks.reason
    assert "'third'" not in ticks.reason
    ack_all(queue)

    done = [request.tags["sluicegate/batch_id"] for _ in range(3) for request in ticks.tick()]

    assert done == ["first", "second", "third", "fourth"]


def test_batches_of_another_queue_and_materializations_without_one_are_left_out(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    ticks.tick()
    record(instance, "elsewhere", **{"sluicegate/queue": "another"})
    instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS))
    publish(queue, instance, "mine", 1)
    ack_all(queue)

    assert [request.tags["sluicegate/batch_id"] for request in ticks.tick()] == ["mine"]


def test_a_run_is_about_the_partition_of_the_materialization(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(same_partition=True, target=daily_report), resource, instance)
    publish(queue, instance, "monday", 1, partition="2026-01-02")
    ack_all(queue)

    assert [request.partition_key for request in ticks.tick()] == ["2026-01-02"]


def test_a_batch_whose_record_was_removed_is_reported_and_no_longer_watched(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    record(instance, "long ago")

    assert ticks.tick() == []
    assert '"long ago"' not in (ticks.cursor or "")
    assert "batch 'long ago' is no longer recorded in queue" in capsys.readouterr().err


def test_batches_may_be_given_or_named_by_a_function(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    names = ["monday"]
    ticks = Ticks(sensor_of(batch_ids=lambda context: iter(names), max_batches=2), resource, instance)
    assert ticks.tick() == []
    assert ticks.reason == f"1 open in {queue.name!r}: 'monday' is not there yet."
    for name in ("monday", "tuesday", "wednesday"):
        queue.batch(["a"], batch_id=name)
    ack_all(queue)
    names += ["tuesday", "wednesday"]

    found = [[request.tags["sluicegate/batch_id"] for request in ticks.tick()] for _ in range(3)]

    assert sorted(found[0] + found[1]) == ["monday", "tuesday", "wednesday"]
    assert found[2] == []
    given = Ticks(sensor_of(batch_ids=["monday"]), resource, instance)
    assert [len(given.tick()), len(given.tick())] == [1, 0]


def test_the_config_of_the_run_is_made_of_the_status(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def config(_: dg.SensorEvaluationContext, batch: BatchStatus) -> dict[str, Any]:
        return {"ops": {"report": {"config": {"done": batch.done}}}}

    ticks = Ticks(sensor_of(run_config_fn=config), resource, instance)
    publish(queue, instance, "monday", 4)
    ack_all(queue)

    (request,) = ticks.tick()

    assert request.run_config == {"ops": {"report": {"config": {"done": 4}}}}


def test_an_id_and_a_queue_never_make_the_run_key_of_others(
    url: str, client: redis.Redis, instance: dg.DagsterInstance
) -> None:
    keys = set()
    for name, batch_id in (("a", "b:c"), ("a:b", "c")):
        with RedisMessageQueue(name, url=url) as queue:
            publish(queue, instance, batch_id, 1)
            ack_all(queue)
            ticks = Ticks(sensor_of(), RedisQueueResource(url=url, queue_name=name), instance)
            (request,) = ticks.tick()
            keys.add(request.run_key.rpartition(":")[0])
            client.delete(*client.scan_iter(f"sluicegate:{{{name.replace(':', '%3A')}}}*"))
    assert keys == {"batch:a:b%3Ac", "batch:a:b:c"}


def test_looking_changes_nothing_in_redis(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    def everything() -> dict[bytes, Any]:
        keys = sorted(client.scan_iter(f"sluicegate:{{{queue.name}}}*"))
        return {key: (client.dump(key), client.pttl(key) > 0) for key in keys}

    ticks = Ticks(sensor_of(), resource, instance)
    publish(queue, instance, "open")
    before = everything()
    ticks.tick()
    assert everything() == before
    ack_all(queue)
    before = everything()
    assert len(ticks.tick()) == 1
    assert everything() == before


def test_many_batches_cost_one_write(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    ids = [f"batch {number}" for number in range(300)]
    for name in ids:
        queue.batch(["a"], batch_id=name)
    ticks = Ticks(sensor_of(batch_ids=ids), resource, instance)
    ticks.tick()
    before = client.info("stats")["total_connections_received"]

    assert ticks.tick() == []

    assert client.info("stats")["total_connections_received"] - before <= 2
    assert "300 open" in ticks.reason
    assert "and 295 more" in ticks.reason


def test_redis_that_is_away_fails_the_tick(instance: dg.DagsterInstance) -> None:
    resource = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    record(instance, "monday")

    with pytest.raises(RedisUnavailableError):
        Ticks(sensor_of(), resource, instance).tick()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"asset": None}, "give either asset, which publishes the batches, or batch_ids, their ids"),
        ({"asset": ORDERS, "batch_ids": ["a"]}, "give either asset"),
        ({"asset": None, "batch_ids": ["a"], "same_partition": True}, "same_partition needs asset"),
        ({"max_dead": -1}, "max_dead"),
        ({"max_batches": 0}, "max_batches"),
        ({"run_tags": {"sluicegate/mine": "1"}}, "the run tags .* are the sensor's own; use other names"),
        ({"queue_name": " "}, "queue_name: queue name is blank"),
        ({"max_runtime_seconds": 0}, "max_runtime_seconds"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"sensor 'drained': {words}"):
        build_batch_sensor(**{"name": "drained", "target": report, "asset": ORDERS, **options})


def test_a_stream_has_no_batches(url: str, instance: dg.DagsterInstance) -> None:
    resource = RedisQueueResource(url=url, stream_name="orders", group="billing")

    with pytest.raises(ConfigurationError, match="group 'billing' of stream 'orders' has no batches and no jobs"):
        Ticks(sensor_of(), resource, instance).tick()


def test_the_documented_report_runs_when_its_batch_is_complete(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "orders"}
    exec(compile(snippet("dagster-batch"), "dagster-batch", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    job = defs.resolve_implicit_global_asset_job_def()
    _, sensor = defs.sensors
    with defs.resources["queue"].process_config_and_initialize_cm() as configured:
        ticks = Ticks(sensor, configured, instance, defs)
        for asset in ("published_orders", "drained_orders"):
            assert ticks.tick() == []
            assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(asset)]).success
        (request,) = ticks.tick()

    done = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("report")], tags=request.tags)

    (made,) = done.asset_materializations_for_node("report")
    assert {name: value.value for name, value in made.metadata.items()} == {"done": 100, "dead": 0}
    client.delete(*client.scan_iter("sluicegate:{documented batch}*"))
