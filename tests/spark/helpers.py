"""Handlers that leave traces in a folder, and drains without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluicegate import Message, RedisMessageQueue
from sluicegate.spark import DrainContext, PartitionSummary
from sluicegate.spark.draining.handler import BatchFormat, Handler
from sluicegate.spark.draining.partition import PartitionDrain
from sluicegate.spark.draining.plan import DrainPlan

_OF_ONE_TRY = ("seconds", "replayed", "failures", "failed", "taken_over", "bytes", "retries", "remembered_empty")
Process = Callable[..., object]
Numbers = Callable[[int], list[int]]
Check = Callable[[list[int], DrainContext], None]


@dataclass(frozen=True)
class Output:
    """What handlers wrote: a file of numbers per lease key, and a line per call."""

    folder: Path

    def writer(self, before: Check | None = None) -> Process:
        """A handler that does `before`, then writes its numbers as `DrainContext` recommends.

        It is a nested function, and so travels to executors by value: they need not import the tests.
        """
        folder = self.folder

        def process(batch: list[Message], ctx: DrainContext) -> None:
            numbers = [message.json()["n"] for message in batch]
            with (folder / "calls").open("a") as calls:
                line = {"key": ctx.lease_key, "partition": ctx.partition, "chunk": ctx.chunk, "attempt": ctx.attempt}
                calls.write(json.dumps(dict(line, numbers=numbers)) + "\n")
            if before is not None:
                before(numbers, ctx)
            ctx.output_file(folder, ".json").write_text(json.dumps(numbers))

        return process

    def numbers(self) -> list[int]:
        """All numbers that were written, each as often as it was, ascending."""
        return sorted(n for file in self.folder.glob("[!.]*.json") for n in json.loads(file.read_text()))

    def lease_keys(self) -> list[str]:
        return sorted(file.stem for file in self.folder.glob("[!.]*.json"))

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def failing_on(*bad: int) -> Check:
    """A handler's part that fails on some numbers."""

    def check(batch: list[int], ctx: DrainContext) -> None:
        found = [n for n in batch if n in bad]
        if found:
            raise ValueError(f"cannot work on {found[0]}")

    return check


def plan_for(
    queue: RedisMessageQueue,
    process: Process,
    *,
    run_id: str = "run",
    batch_size: int = 1000,
    lease_seconds: float = 60,
    batch_format: BatchFormat | None = None,
    schema: Any = None,
    **more: Any,
) -> DrainPlan:
    """`more` is as in `DrainPlan`; plans without a `call_id` are of different calls of `drain`."""
    handler = Handler.of(process, batch_format, schema)
    return DrainPlan(queue.spec().to_json(), run_id, batch_size, lease_seconds, handler, **more)


def drain_here(
    queue: RedisMessageQueue, process: Process, *, partition: int = 0, attempt: int = 0, **options: Any
) -> PartitionSummary:
    """Drain one partition in this process, as attempt `attempt` of its task."""
    return PartitionDrain(plan_for(queue, process, **options), partition, attempt).run()


def partition_rows(*partitions: int) -> list[pa.RecordBatch]:
    """What Spark gives a task: its rows of a range."""
    return [pa.RecordBatch.from_arrays([pa.array([partition])], names=["id"]) for partition in partitions]


def what_was_done(summary: PartitionSummary) -> dict[str, Any]:
    """A summary without what differs between a run and its repetition."""
    return {
        name: value
        for name, value in asdict(summary).items()
        if name
        not in ("seconds", "replayed", "failures", "taken_over", "bytes", "retries", "remembered_empty", "failed")
    }
