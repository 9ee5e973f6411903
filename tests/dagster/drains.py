"""Drain assets in the tests' own process: a queue to fill, storage to watch, and what a run left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from dagster_sluicegate import RedisQueueResource, build_queue_drain_asset
from sluicegate import Depth, Message, RedisMessageQueue
from tests.dagster.helpers import asset_job
from tests.support.waiting import wait_until

OnOutput = Callable[[], None]


class Storage(dg.IOManager):
    """An IO manager in memory; `on_output` runs before it stores anything."""

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self.stored: list[Any] = []
        self.on_output = on_output

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if self.on_output is not None:
            self.on_output()
        self.stored.append(obj)

    def load_input(self, context: dg.InputContext) -> Any:
        return self.stored[-1]


def numbers(messages: list[Message]) -> list[int]:
    return [message.json()["n"] for message in messages]


def fill(queue: RedisMessageQueue, count: int) -> None:
    queue.publish_many({"n": number} for number in range(count))


def run(
    asset: dg.AssetsDefinition,
    resource: RedisQueueResource,
    storage: Storage | None = None,
    *others: dg.AssetsDefinition,
    run_id: str | None = None,
) -> dg.ExecuteInProcessResult:
    job = asset_job([asset, *others], {"queue": resource, "io_manager": storage or Storage()})
    return job.execute_in_process(raise_on_error=False, run_id=run_id)


def error_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    error = result.failure_data_for_node("drained").error  # type: ignore[union-attr]
    return error.to_string()  # type: ignore[union-attr]


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert result.success
    (materialization,) = result.asset_materializations_for_node("drained")
    return {name: value.value for name, value in materialization.metadata.items()}


def drain_asset(process: Callable[..., Any] = numbers, **options: Any) -> dg.AssetsDefinition:
    return build_queue_drain_asset(spec="drained", process=process, **options)


def waits_for(queue: RedisMessageQueue, ready: int) -> Depth:
    """Return how long a failed message stays delayed: a second or two."""
    wait_until(lambda: queue.depth().ready == ready, f"{ready} messages are ready")
    return queue.depth()
