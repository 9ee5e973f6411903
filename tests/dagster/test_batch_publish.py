"""Publishing as a batch: the tries of a step rejoin one batch, and its id is in the metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import (
    QueuePublishIOManager,
    RedisQueueResource,
    build_batch_wait_op,
    build_queue_drain_asset,
    build_queue_publish_asset,
)
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.drains import Storage, numbers
from tests.dagster.helpers import asset_job, re_execute

pytestmark = pytest.mark.dagster


def produced() -> Iterator[dict[str, int]]:
    yield from ({"n": number} for number in range(25))


def publish_asset(**options: Any) -> dg.AssetsDefinition:
    return build_queue_publish_asset(**{"spec": "published", "produce": produced, "batch_size": 10, **options})


def batches_of(instance: dg.DagsterInstance, run_id: str) -> list[dict[str, Any]]:
    found = [entry.asset_materialization for entry in instance.all_logs(run_id) if entry.asset_materialization]
    return [{name: value.value for name, value in made.metadata.items()} for made in found]


def test_a_run_publishes_one_batch_and_a_re_execution_rejoins_it(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    job = asset_job([publish_asset(as_batch=True)], {"queue": resource})
    first = job.execute_in_process(instance=instance)
    again = re_execute(job, instance, first.run_id)
    other = job.execute_in_process(instance=instance)

    (made,), (repeated,), (another,) = (batches_of(instance, run) for run in (first.run_id, again.run_id, other.run_id))

    assert made["sluicegate/batch_id"] == repeated["sluicegate/batch_id"] != another["sluicegate/batch_id"]
    assert made["sluicegate/batch_id"].startswith(f"{first.run_id} published ")
    status = queue.get_batch(made["sluicegate/batch_id"]).status()
    assert (status.total, status.waiting, status.sealed, status.is_complete) == (25, 25, True, False)
    assert queue.depth().ready == 50
    assert (made["dagster/row_count"], repeated["dagster/row_count"]) == (25, 25)


def test_a_retry_after_a_failure_midway_publishes_what_is_missing_and_seals_the_batch(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    tries = []

    def fails_first() -> Iterator[dict[str, int]]:
        tries.append(1)
        for number in range(25):
            if number == 15 and len(tries) == 1:
                raise RuntimeError("the source is away")
            yield {"n": number}

    asset = publish_asset(produce=fails_first, as_batch=True, retry_policy=dg.RetryPolicy(max_retries=1))

    done = asset_job([asset], {"queue": resource}).execute_in_process(instance=instance)

    (made,) = batches_of(instance, done.run_id)
    status = queue.get_batch(made["sluicegate/batch_id"]).status()
    assert (len(tries), status.total, status.sealed) == (2, 25, True)
    assert sorted(message.json()["n"] for message in queue.claim(100)) == list(range(25))


def test_the_batch_is_complete_when_a_drain_of_another_run_has_acked_it(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    drained = build_queue_drain_asset(spec="drained", process=numbers, batch_size=10)
    job = asset_job([publish_asset(batch_id="monday"), drained], {"queue": resource, "io_manager": Storage()})
    job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("published")])
    assert not queue.get_batch("monday").status().is_complete

    job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("drained")])

    status = queue.get_batch("monday").status()
    assert (status.done, status.is_complete) == (25, True)


def test_partitions_and_functions_make_ids_of_their_own(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    named = publish_asset(batch_id=lambda context: f"day {context.partition_key}", partitions_def=days)
    by_run = publish_asset(spec="by_run", as_batch=True, partitions_def=days)

    for asset in (named, by_run):
        assert dg.materialize(
            [asset], resources={"queue": resource}, instance=instance, partition_key="2026-01-02"
        ).success

    assert queue.get_batch("day 2026-01-02").status().total == 25
    (made,) = instance.fetch_materializations(dg.AssetKey("by_run"), limit=10).records
    found = made.asset_materialization
    assert found is not None
    assert " by_run 2026-01-02 " in str(found.metadata["sluicegate/batch_id"].value)


def test_an_io_manager_publishes_each_output_as_a_batch(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(io_manager_key="to_queue")
    def orders() -> list[dict[str, int]]:
        return [{"n": 1}, {"n": 2}]

    manager = QueuePublishIOManager(queue=resource, as_batch=True)
    done = dg.materialize([orders], resources={"queue": resource, "to_queue": manager}, instance=instance)

    (made,) = batches_of(instance, done.run_id)
    assert queue.get_batch(made["sluicegate/batch_id"]).status().total == 2


def test_a_batch_that_cannot_be_is_refused(resource: RedisQueueResource, instance: dg.DagsterInstance) -> None:
    for options, words in (
        ({"stream_name": "orders", "as_batch": True}, "a stream has no batches; leave as_batch and batch_id out"),
        ({"batch_id": ""}, "batch_id is empty"),
        ({"as_batch": "yes"}, "as_batch"),
    ):
        with pytest.raises(ConfigurationError, match=f"publish asset 'published': {words}"):
            publish_asset(**options)
    stream = RedisQueueResource(url=resource.url, stream_name="orders")

    done = asset_job([publish_asset(as_batch=True)], {"queue": stream}).execute_in_process(raise_on_error=False)

    assert "has no batches" in done.failure_data_for_node("published").error.to_string()  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------- the op that waits


def run_wait(resource: RedisQueueResource, batch_id: str, **options: Any) -> dg.ExecuteInProcessResult:
    wait = build_batch_wait_op(**{"timeout_seconds": 0.2, **options})

    @dg.job(resource_defs={"queue": resource}, executor_def=dg.in_process_executor)
    def job() -> None:
        wait()

    config = {"ops": {"wait_for_batch": {"inputs": {"batch_id": batch_id}}}}
    return job.execute_in_process(run_config=config, raise_on_error=False)


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    return result.failure_data_for_node("wait_for_batch").error.to_string()  # type: ignore[union-attr]


def test_the_op_returns_the_counts_of_a_complete_batch_and_fails_after_its_time(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    queue.batch(["a", "b", "c"], batch_id="monday")
    text = failure_of(run_wait(resource, "monday"))
    assert "batch 'monday' of queue" in text
    assert "is not complete after 0.2 s, with 3 of 3 messages left" in text
    assert "let build_batch_sensor wait without a worker" in text
    lease = queue.claim(3)
    lease.bury(lease.messages[:1], error="broken")
    lease.ack()

    assert run_wait(resource, "monday", timeout_seconds=60).output_for_node("wait_for_batch") == {
        "batch_id": "monday",
        "queue": queue.name,
        "total": 3,
        "done": 2,
        "dead": 1,
        "gone": 0,
    }
    assert "is complete with 1 dead, more than 0" in failure_of(run_wait(resource, "monday", max_dead=0))
    assert "has no batch 'tuesday'" in failure_of(run_wait(resource, "tuesday"))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"timeout_seconds": 0}, "timeout_seconds"), ({"max_dead": -1}, "max_dead"), ({"queue_name": ""}, "queue_name")],
)
def test_a_wait_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"op 'wait_for_batch': {words}"):
        build_batch_wait_op(**{"timeout_seconds": 1, **options})
