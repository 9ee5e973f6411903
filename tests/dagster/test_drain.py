"""The drain asset: it settles after the result was stored, and no failure on the way loses or acks a message."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
import redis
from dagster._core.errors import DagsterExecutionInterruptedError

from dagster_sluicegate import QueueDrainContext, RedisQueueResource
from dagster_sluicegate.drains.step import SettleWhen
from sluicegate import Depth, Lease, Message, RedisMessageQueue
from sluicegate.errors import AlreadySettledError, ConfigurationError, LeaseLostError
from tests.dagster.drains import Storage, drain_asset, error_of, fill, metadata_of, numbers, run, waits_for
from tests.dagster.helpers import asset_job, re_execute
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

COUNTS = {
    "dagster/row_count",
    *(
        f"sluicegate/{name}"
        for name in [
            "queue",
            "batches",
            "claimed",
            "acked",
            "returned",
            "buried",
            "acked_before",
            "redelivered",
            "ready_left",
            "dead",
        ]
    ),
}

# ---------------------------------------------------------------------------------------------------- the good way


def test_it_settles_after_the_result_was_stored(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    fill(queue, 3)
    seen: list[Depth] = []
    storage = Storage(lambda: seen.append(queue.depth()))
    assert run(drain_asset(), resource, storage).success
    assert storage.stored == [[[0, 1, 2]]]
    assert (seen[0].in_flight, seen[0].ready) == (3, 0)
    depth = queue.depth()
    assert (depth.in_flight, depth.ready, depth.dead, depth.leases) == (0, 0, 0, 0)


def test_the_metadata_counts(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> int:
        ctx.bury(messages[0], error=ValueError("no such customer"), reason="invalid")
        ctx.nack(messages[1:3], delay_seconds=600)
        return len(messages) - 3

    fill(queue, 12)
    metadata = metadata_of(run(drain_asset(process, max_messages=10), resource))
    assert {name: value for name, value in metadata.items() if name in COUNTS} == {
        "dagster/row_count": 7,
        "sluicegate/queue": queue.name,
        "sluicegate/batches": 1,
        "sluicegate/claimed": 10,
        "sluicegate/acked": 7,
        "sluicegate/returned": 2,
        "sluicegate/buried": 1,
        "sluicegate/acked_before": 0,
        "sluicegate/redelivered": 0,
        "sluicegate/ready_left": 2,
        "sluicegate/dead": 0,
    }
    depth = queue.depth()
    assert (depth.ready, depth.delayed, depth.dead, depth.in_flight) == (2, 2, 1, 0)
    (dead,) = queue.peek(state="dead")
    assert dead.message is not None
    assert (dead.message.json(), dead.reason, dead.error) == ({"n": 0}, "invalid", "no such customer")
    assert [message.json()["n"] for message in queue.peek(state="delayed")] == [1, 2]


def test_several_batches_are_held_until_the_one_yield(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    fill(queue, 7)
    seen: list[Depth] = []
    storage = Storage(lambda: seen.append(queue.depth()))
    result = run(drain_asset(batch_size=2, max_messages=6), resource, storage)
    assert storage.stored == [[[0, 1], [2, 3], [4, 5]]]
    assert (seen[0].in_flight, seen[0].leases) == (6, 3)
    assert metadata_of(result)["dagster/row_count"] == 6
    assert queue.depth().in_flight == 0
    storage = Storage()
    fill(queue, 2)
    run(drain_asset(batch_size=2, combine=lambda parts: [*itertools.chain(*parts)]), resource, storage)
    assert storage.stored == [[6, 0, 1]]


def test_what_is_written_by_the_handler_itself_asks_no_io_manager(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def refuse() -> None:
        raise AssertionError("there is nothing to store")

    fill(queue, 3)
    written: list[int] = []
    result = run(drain_asset(lambda messages: written.extend(numbers(messages))), resource, Storage(refuse))
    assert metadata_of(result)["sluicegate/acked"] == 3
    assert written == [0, 1, 2]


def test_the_handler_knows_its_lease_and_the_run(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    known: list[tuple[str, str, int, bool, str]] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        known.append((ctx.lease_id, ctx.lease_key, ctx.chunk, ctx.lost, ctx.asset.run.run_id))

    fill(queue, 4)
    result = run(drain_asset(process, batch_size=2), resource)
    assert [entry[:1] + entry[2:] for entry in known] == [
        (f"{result.run_id}:drained/0/{chunk}", chunk, False, result.run_id) for chunk in range(2)
    ]
    assert len({entry[1] for entry in known}) == 2


def test_a_long_batch_keeps_its_lease(
    queue: RedisMessageQueue, resource: RedisQueueResource, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Lease.start_heartbeat
    # More often than every third of a minute, and a minute is more than a busy machine delays a beat.
    monkeypatch.setattr(Lease, "start_heartbeat", lambda lease, interval=None: start(lease, interval or 0.1))

    def process(messages: list[Message]) -> None:
        deadlines = set()

        def beaten() -> bool:
            deadlines.update(score for _, score in client.zrange(queue.key.leases, 0, -1, withscores=True))
            return len(deadlines) > 3

        wait_until(beaten, "three heartbeats")

    fill(queue, 3)
    result = run(drain_asset(process, lease_seconds=60), resource)
    assert metadata_of(result)["sluicegate/acked"] == 3


def test_a_batch_may_be_a_table_and_its_file_is_in_place_before_the_settle(
    queue: RedisMessageQueue, resource: RedisQueueResource, tmp_path: Path
) -> None:
    def process(batch: pa.Table, context: QueueDrainContext) -> None:
        context.release(batch["id"][:1])
        context.output_file(tmp_path, ".txt").write_text(str(batch.num_rows))
        assert (context.partition, context.attempt) == (0, 0)

    fill(queue, 3)
    metadata = metadata_of(run(drain_asset(process, settle="per_batch"), resource))

    assert (metadata["sluicegate/acked"], metadata["sluicegate/returned"]) == (2, 1)
    assert [file.read_text() for file in tmp_path.glob("[!.]*.txt")] == ["3"]


def test_a_message_that_is_nacked_without_a_delay_waits_as_the_queue_says(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    fill(queue, 2)
    run(drain_asset(lambda messages, ctx: ctx.nack(messages[0])), resource)

    (delayed,) = queue.peek(state="delayed")  # for a second at least
    assert delayed.json() == {"n": 0}


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_a_handler_whose_work_would_not_be_done_is_refused(kind: str) -> None:
    async def coroutine(messages: list[Message]) -> None: ...

    def generator(messages: list[Message]) -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigurationError, match=kind):
        drain_asset({"coroutine": coroutine, "generator": generator}[kind])


# ---------------------------------------------------------------------------------------------------- nothing to do


def test_an_empty_queue_materializes_nothing_and_skips_what_is_downstream(resource: RedisQueueResource) -> None:
    @dg.asset
    def report(drained: list[int]) -> None:
        raise AssertionError("there is nothing to report")

    result = run(drain_asset(), resource, Storage(), report)
    assert result.success
    assert result.get_asset_materialization_events() == []
    assert [event.step_key for event in result.all_events if event.is_step_skipped] == ["report"]


def test_a_paused_queue_materializes_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, client: redis.Redis
) -> None:
    fill(queue, 3)
    client.hset(queue.key.counters, "paused", "1")
    result = run(drain_asset(), resource)
    assert result.success
    assert result.get_asset_materialization_events() == []
    assert queue.depth().pending == 3


# ---------------------------------------------------------------------------------------------------- failures


def test_an_io_manager_that_raises_leaves_every_message_to_come_back(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def full() -> None:
        raise OSError("disk full")

    fill(queue, 4)
    failed = run(drain_asset(batch_size=2), resource, Storage(full))
    assert "disk full" in error_of(failed)
    depth = queue.depth()
    assert (depth.ready, depth.returned, depth.in_flight) == (4, 4, 0)
    storage = Storage()
    assert run(drain_asset(), resource, storage).success
    assert storage.stored == [[[0, 1, 2, 3]]]


def test_a_handler_that_raises_gives_its_batch_back_with_the_error_and_the_earlier_ones_uncounted(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def process(messages: list[Message]) -> list[int]:
        if 2 in numbers(messages):
            raise ValueError("no such customer")
        return numbers(messages)

    fill(queue, 4)
    storage = Storage()
    failed = run(drain_asset(process, batch_size=2), resource, storage)
    assert "no such customer" in error_of(failed)
    assert storage.stored == []
    assert queue.depth().in_flight == 0
    waits_for(queue, 4)
    counts = {}
    while lease := queue.claim(4):
        counts |= {message.json()["n"]: message.delivery_count for message in lease.messages}
    assert counts == {0: 1, 1: 1, 2: 2, 3: 2}


def test_a_failing_batch_buries_no_neighbours(url: str, queue: RedisMessageQueue) -> None:
    def process(messages: list[Message]) -> None:
        raise ValueError("always")

    strict = RedisQueueResource(url=url, queue_name=queue.name, max_delivery_count=1)
    fill(queue, 3)
    assert not run(drain_asset(process), strict).success
    depth = queue.depth()
    assert (depth.dead, depth.returned + depth.delayed) == (0, 3)


def test_an_interrupted_step_releases_its_batch_at_once(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    def process(messages: list[Message]) -> None:
        raise DagsterExecutionInterruptedError

    fill(queue, 3)
    assert DagsterExecutionInterruptedError.__name__ in error_of(run(drain_asset(process), resource))
    assert queue.depth().returned == 3
    assert {message.delivery_count for message in queue.claim(3)} == {1}


def test_a_retry_of_the_step_works_on_what_failed(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    tries: list[list[int]] = []

    def process(messages: list[Message]) -> list[int]:
        tries.append(numbers(messages))
        if len(tries) == 1:
            raise ConnectionError("the warehouse is away")
        return tries[-1]

    fill(queue, 1)
    storage = Storage()
    result = run(drain_asset(process, retry_policy=dg.RetryPolicy(max_retries=1)), resource, storage)
    assert tries == [[0], [0]]
    assert storage.stored == [[[0]]]
    assert metadata_of(result)["sluicegate/acked"] == 1
    assert queue.depth().in_flight == 0


def test_a_batch_lost_during_processing_is_not_handed_over(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        queue.claim(lease_id=ctx.lease_id, take_over_after_seconds=0)
        return numbers(messages)

    fill(queue, 3)
    storage = Storage()
    failed = run(drain_asset(process), resource, storage)
    assert LeaseLostError.__name__ in error_of(failed)
    assert storage.stored == []
    assert queue.depth().in_flight == 3


def test_an_ack_that_comes_too_late_fails_the_step_and_settles_the_other_batches(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    leases: list[str] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        leases.append(ctx.lease_id)
        return numbers(messages)

    def steal() -> None:
        queue.claim(lease_id=leases[0], take_over_after_seconds=0)

    fill(queue, 4)
    failed = run(drain_asset(process, batch_size=2), resource, Storage(steal))
    assert LeaseLostError.__name__ in error_of(failed)
    depth = queue.depth()
    assert (depth.in_flight, depth.ready) == (2, 0)


def test_a_verdict_for_a_foreign_or_settled_message_fails_before_the_hand_over(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    complaints: list[str] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        ctx.bury(messages[0])
        try:
            ctx.nack(messages[:1])
        except AlreadySettledError as error:
            complaints.append(str(error))
        ctx.nack(queue.peek(1))
        return []

    fill(queue, 3)
    storage = Storage()
    error = error_of(run(drain_asset(process, batch_size=2), resource, storage))
    assert len(complaints) == 1
    for complaint in (complaints[0], error):
        assert "has the verdict" in complaint or "is not of this batch" in complaint
    assert storage.stored == []
    assert queue.depth().dead == 0


# ---------------------------------------------------------------------------------------------------- re-executions


def test_a_re_executed_run_takes_over_the_batch_of_its_dead_root(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 5)
    root = dg.DagsterRun(job_name="drain_job").run_id
    dead = queue.claim(3, lease_id=f"{root}:drained/0/0")  # its worker was killed, and the lease has not expired
    handled: list[tuple[str, list[int], set[int]]] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        handled.append((ctx.lease_key, numbers(messages), {message.delivery_count for message in messages}))

    job = asset_job([drain_asset(process)], {"queue": resource, "io_manager": Storage()})
    assert re_execute(job, instance, root).is_success
    assert handled[0] == (dead.key, [0, 1, 2], {2})
    assert [entry[1:] for entry in handled[1:]] == [([3, 4], {1})]
    assert queue.depth().in_flight == 0
    with pytest.raises(LeaseLostError):
        dead.ack()


def test_a_re_executed_run_does_nothing_twice(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    handled: list[int] = []
    fill(queue, 6)
    job = asset_job(
        [drain_asset(lambda messages: handled.extend(numbers(messages)), batch_size=2, max_messages=4)],
        {"queue": resource, "io_manager": Storage()},
    )
    first = job.execute_in_process(instance=instance)
    assert metadata_of(first)["sluicegate/acked"] == 4
    again = re_execute(job, instance, first.run_id)
    assert again.is_success
    assert handled == [0, 1, 2, 3]
    assert queue.depth().pending == 2
    events = instance.all_logs(again.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert len(events) == 0


# ---------------------------------------------------------------------------------------------------- per batch


@pytest.mark.parametrize("settle", ["after_yield", "per_batch"])
def test_a_run_drains_what_was_ready_when_it_began(
    queue: RedisMessageQueue, resource: RedisQueueResource, settle: SettleWhen
) -> None:
    def process(messages: list[Message]) -> None:
        fill(queue, 2)  # a producer that is as fast as the drain

    fill(queue, 6)
    metadata = metadata_of(run(drain_asset(process, batch_size=2, settle=settle), resource))
    assert (metadata["sluicegate/batches"], metadata["sluicegate/acked"]) == (3, 6)
    assert metadata["sluicegate/ready_left"] == 6


@pytest.mark.parametrize("settle", ["after_yield", "per_batch"])
def test_a_run_takes_no_more_than_max_messages(
    queue: RedisMessageQueue, resource: RedisQueueResource, settle: SettleWhen
) -> None:
    sizes: list[int] = []
    fill(queue, 9)
    asset = drain_asset(lambda messages: sizes.append(len(messages)), batch_size=4, max_messages=6, settle=settle)
    metadata = metadata_of(run(asset, resource))
    assert sizes == [4, 2]
    assert (metadata["sluicegate/acked"], metadata["sluicegate/ready_left"]) == (6, 3)


def test_per_batch_settles_each(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    in_flight: list[int] = []

    def process(messages: list[Message]) -> None:
        in_flight.append(queue.depth().in_flight)
        fill(queue, 2)  # a producer that is as fast as the drain

    fill(queue, 5)
    result = run(drain_asset(process, batch_size=2, max_messages=None, settle="per_batch"), resource)
    assert in_flight == [2, 2, 2]
    metadata = metadata_of(result)
    assert (metadata["sluicegate/batches"], metadata["sluicegate/acked"], metadata["sluicegate/ready_left"]) == (
        3,
        6,
        5,
    )


def test_per_batch_keeps_what_was_acked_before_a_failure(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    written: list[int] = []
    broken = True

    def process(messages: list[Message]) -> None:
        if broken and 4 in numbers(messages):
            raise ValueError("no such customer")
        written.extend(numbers(messages))

    fill(queue, 5)
    asset = drain_asset(process, batch_size=2, settle="per_batch")
    job = asset_job([asset], {"queue": resource, "io_manager": Storage()})
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not failed.success
    assert written == [0, 1, 2, 3]
    assert failed.asset_materializations_for_node("drained") == []
    broken = False
    waits_for(queue, 1)
    again = re_execute(job, instance, failed.run_id)
    assert again.is_success
    assert written == [0, 1, 2, 3, 4]
    (event,) = instance.all_logs(again.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert event.asset_materialization is not None
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert (metadata["dagster/row_count"], metadata["sluicegate/acked_before"]) == (1, 4)


def test_per_batch_materializes_what_an_earlier_try_acked_but_could_not_report(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    root = dg.DagsterRun(job_name="drain_job").run_id
    queue.claim(3, lease_id=f"{root}:drained/0/0").ack()
    asset = drain_asset(lambda messages: None, settle="per_batch")
    job = asset_job([asset], {"queue": resource, "io_manager": Storage()})
    again = re_execute(job, instance, root)
    (event,) = instance.all_logs(again.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert event.asset_materialization is not None
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert (metadata["dagster/row_count"], metadata["sluicegate/acked_before"]) == (0, 3)


def test_per_batch_refuses_a_value_that_would_be_acked_before_it_was_stored(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    fill(queue, 2)
    storage = Storage()
    failed = run(drain_asset(settle="per_batch"), resource, storage)
    assert "process must write its result and return None, not list" in error_of(failed)
    assert storage.stored == []
    waits_for(queue, 2)


def test_a_test_may_call_it_directly(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    drained = drain_asset()
    fill(queue, 3)
    (by_context,) = drained(dg.build_asset_context(resources={"queue": resource}))  # type: ignore[misc]
    fill(queue, 2)
    (by_argument,) = drained(dg.build_asset_context(), queue=resource)  # type: ignore[misc]

    assert (by_context.value, by_argument.value) == ([[0, 1, 2]], [[0, 1]])
    assert (queue.stats().acked, queue.depth().in_flight) == (5, 0)
