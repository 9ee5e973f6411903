"""What `process` adds to a drain: metadata, check results, and results that are refused."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import QueueDrainContext, RedisQueueResource
from sluicegate import Message, RedisMessageQueue
from tests.dagster.drains import Storage, drain_asset, error_of, fill, metadata_of, numbers, run

pytestmark = pytest.mark.dagster

CHECK = dg.AssetCheckSpec("complete", asset="drained", blocking=True)


@pytest.mark.parametrize(
    "result",
    [dg.MaterializeResult(metadata={"mine": 1}), dg.Output([1]), dg.AssetCheckResult(passed=True)],
    ids=lambda result: type(result).__name__,
)
def test_an_event_of_dagster_is_refused_as_a_result(
    queue: RedisMessageQueue, resource: RedisQueueResource, result: object
) -> None:
    fill(queue, 2)
    storage = Storage()
    error = error_of(run(drain_asset(lambda messages: result), resource, storage))

    assert f"process returned a {type(result).__name__}, which no IO manager stores; return the value itself" in error
    assert "ctx.add_metadata(...)" in error
    assert storage.stored == []
    assert queue.depth().dead == 0
    assert queue.stats().acked == 0


def test_metadata_of_a_later_batch_replaces_that_of_an_earlier_one(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        ctx.add_metadata({f"batch {ctx.chunk}": len(messages), "last": ctx.chunk, "dagster/row_count": 70})

    fill(queue, 3)
    metadata = metadata_of(run(drain_asset(process, batch_size=2), resource))

    assert (metadata["batch 0"], metadata["batch 1"], metadata["last"]) == (2, 1, 1)
    assert (metadata["dagster/row_count"], metadata["sluicegate/acked"]) == (70, 3)


def test_metadata_may_not_take_the_names_of_the_library(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    fill(queue, 1)
    asset = drain_asset(lambda messages, ctx: ctx.add_metadata({"sluicegate/acked": 1}))
    assert "the metadata 'sluicegate/acked' is this library's; use another name" in error_of(run(asset, resource))


def test_a_check_that_failed_for_one_batch_has_failed(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        ctx.add_check_result(dg.AssetCheckResult(passed=ctx.chunk != 1, metadata={"batch": ctx.chunk}))
        return numbers(messages)

    fill(queue, 6)
    specs = [dg.AssetCheckSpec("complete", asset="drained")]
    result = run(drain_asset(process, batch_size=2, check_specs=specs), resource)

    (found,) = result.get_asset_check_evaluations()
    assert (found.check_name, found.passed, found.metadata["batch"].value) == ("complete", False, 1)
    assert metadata_of(result)["sluicegate/acked"] == 6


def test_a_blocking_check_that_fails_fails_the_step_after_the_result_was_stored_and_acked(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    tries: list[int] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        tries.append(len(messages))
        ctx.add_check_result(dg.AssetCheckResult(passed=False))
        return numbers(messages)

    @dg.asset
    def report(drained: list[list[int]]) -> None:
        raise AssertionError("the check blocks it")

    fill(queue, 2)
    storage = Storage()
    asset = drain_asset(process, check_specs=[CHECK], retry_policy=dg.RetryPolicy(max_retries=2))
    result = run(asset, resource, storage, report)

    assert "1 blocking asset check failed" in error_of(result)
    assert (storage.stored, tries) == ([[[0, 1]]], [2])
    assert (queue.stats().acked, queue.depth().in_flight, queue.depth().ready) == (2, 0, 0)


@pytest.mark.parametrize(
    ("specs", "result", "complaint"),
    [
        (
            [CHECK],
            dg.AssetCheckResult(passed=True, check_name="fresh"),
            "has no check 'fresh' (it declares 'complete')",
        ),
        ([], dg.AssetCheckResult(passed=True), "has no check None (it declares none); add it to check_specs"),
        ([CHECK], True, "a check result must be an AssetCheckResult, not a bool"),
    ],
)
def test_a_check_result_that_fits_no_declared_check_is_refused(
    queue: RedisMessageQueue, resource: RedisQueueResource, specs: list[dg.AssetCheckSpec], result: Any, complaint: str
) -> None:
    fill(queue, 1)
    asset = drain_asset(lambda messages, ctx: ctx.add_check_result(result), check_specs=specs)
    error = error_of(run(asset, resource))
    assert complaint in error
    assert "drain asset 'drained'" in error


def test_a_declared_check_without_a_result_fails_the_step_before_anything_is_stored(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    fill(queue, 2)
    storage = Storage()
    error = error_of(run(drain_asset(check_specs=[CHECK]), resource, storage))

    assert "drain asset 'drained': process added no result for the check 'complete'" in error
    assert storage.stored == []
    assert (queue.depth().ready, queue.depth().in_flight) == (2, 0)
