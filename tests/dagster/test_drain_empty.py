"""A drain that finds nothing: what it records, and what runs behind it."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import QueueDrainContext, RedisQueueResource
from dagster_sluicegate.drains.outcome import OnEmpty
from sluicegate import Message, RedisMessageQueue
from tests.dagster.drains import Storage, drain_asset, fill, numbers, run
from tests.dagster.helpers import asset_job, re_execute

pytestmark = pytest.mark.dagster

ALL: tuple[OnEmpty, ...] = ("skip", "observe", "materialize")


def recorded(result: dg.ExecuteInProcessResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the metadata of the materializations and of the observations of a run."""
    assert result.success
    materialized = [
        event.step_materialization_data.materialization for event in result.get_asset_materialization_events()
    ]
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return (
        [{name: value.value for name, value in found.metadata.items()} for found in materialized],
        [{name: value.value for name, value in found.metadata.items()} for found in observed],
    )


@pytest.mark.parametrize("on_empty", ALL)
def test_an_empty_queue_is_recorded_as_the_option_says_and_overwrites_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, on_empty: OnEmpty
) -> None:
    def refuse() -> None:
        raise AssertionError("there is nothing to store")

    materialized, observed = recorded(run(drain_asset(on_empty=on_empty), resource, Storage(refuse)))

    assert (len(materialized), len(observed)) == {"skip": (0, 0), "observe": (0, 1), "materialize": (1, 0)}[on_empty]
    for metadata in materialized + observed:
        assert metadata["sluicegate/queue"] == queue.name
        assert {metadata[name] for name in ("dagster/row_count", "sluicegate/claimed", "sluicegate/ready_left")} == {0}


@pytest.mark.parametrize("on_empty", ALL)
def test_what_is_behind_an_empty_drain_runs_only_when_it_is_materialized(
    queue: RedisMessageQueue, resource: RedisQueueResource, on_empty: OnEmpty
) -> None:
    reports: list[Any] = []
    asset = drain_asset(on_empty=on_empty)

    @dg.asset
    def report(drained: list[list[int]]) -> None:
        reports.append(drained)

    @dg.asset_check(asset=asset, blocking=True)
    def is_current() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    storage = Storage()
    job = asset_job([asset, report, is_current], {"queue": resource, "io_manager": storage})
    fill(queue, 2)
    full = job.execute_in_process()
    empty = job.execute_in_process()

    assert full.success
    assert empty.success
    again = on_empty == "materialize"
    assert reports == [[[0, 1]]] * (1 + again), "it gets the value that was stored last"
    assert len(empty.get_asset_check_evaluations()) == again


@pytest.mark.parametrize("on_empty", ALL)
def test_checks_of_the_drain_itself_are_not_evaluated_without_messages(
    queue: RedisMessageQueue, resource: RedisQueueResource, on_empty: OnEmpty
) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> list[int]:
        ctx.add_check_result(dg.AssetCheckResult(passed=True))
        return numbers(messages)

    specs = [dg.AssetCheckSpec("complete", asset="drained", blocking=True)]
    asset = drain_asset(process, on_empty=on_empty, check_specs=specs)
    fill(queue, 1)
    full, empty = run(asset, resource), run(asset, resource)

    assert [found.passed for found in full.get_asset_check_evaluations()] == [True]
    assert empty.success
    assert empty.get_asset_check_evaluations() == []


@pytest.mark.parametrize("on_empty", ALL)
def test_a_paused_queue_is_never_recorded_as_up_to_date(
    queue: RedisMessageQueue, resource: RedisQueueResource, client: redis.Redis, on_empty: OnEmpty
) -> None:
    fill(queue, 3)
    client.hset(queue.key.counters, "paused", "1")
    materialized, observed = recorded(run(drain_asset(on_empty=on_empty), resource))

    assert materialized == []
    assert [metadata["sluicegate/paused"] for metadata in observed] == [True] * (on_empty == "observe")
    assert queue.depth().pending == 3


def test_a_re_executed_run_whose_work_is_done_warns_that_new_messages_need_a_new_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 3)
    asset = drain_asset(max_messages=2, on_empty="observe")
    job = asset_job([asset], {"queue": resource, "io_manager": Storage()})
    first = job.execute_in_process(instance=instance)
    again = re_execute(job, instance, first.run_id)

    (record,) = instance.all_logs(again.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
    assert record.dagster_event is not None
    metadata = record.dagster_event.asset_observation_data.asset_observation.metadata
    warning = metadata["sluicegate/warning"].value
    assert isinstance(warning, str)
    assert "drain asset 'drained' found its work done: earlier tries of this run acked 2 messages" in warning
    assert "(1 messages are ready)" in warning
    assert "launch one instead of re-executing" in warning
    assert [entry.level for entry in instance.all_logs(again.run_id) if entry.user_message == warning] == [30]
