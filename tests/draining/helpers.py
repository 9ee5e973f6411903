"""Handlers that leave traces in a folder, and partitions that are drained in the test's own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.chunk import Chunk
from sluicegate.draining.context import DrainContext
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import BatchFormat, Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.summary import PartitionSummary
from sluicegate.heartbeat import scheduler
from sluicegate.lease import LeaseHeartbeat

Process = Callable[..., object]
Numbers = Callable[[int], list[int]]
Check = Callable[[list[int], DrainContext], None]


@dataclass(frozen=True)
class Output:
    """What handlers wrote: a file of numbers per lease key, and a line per call."""

    folder: Path

    def writer(self, before: Check | None = None) -> Process:
        """Return a handler that does `before`, then writes its numbers as `DrainContext` recommends.

        It is a nested function, so it is pickled by value: executors need not import the tests.
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
        """Return all numbers that were written, each as often as it was, ascending."""
        return sorted(n for file in self.folder.glob("[!.]*.json") for n in json.loads(file.read_text()))

    def lease_keys(self) -> list[str]:
        return sorted(file.stem for file in self.folder.glob("[!.]*.json"))

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def failing_on(*bad: int) -> Check:
    """Return a handler's part that fails on some numbers."""

    def check(batch: list[int], ctx: DrainContext) -> None:
        found = [n for n in batch if n in bad]
        if found:
            raise ValueError(f"cannot work on {found[0]}")

    return check


def plan_for(
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
    return DrainPlan(run_id=run_id, handler=handler, batch_size=batch_size, lease_seconds=lease_seconds, **more)


def engine_for(queue: RedisMessageQueue, plan: DrainPlan, partition: int = 0, attempt: int = 0) -> DrainEngine:
    """Return an engine with a connection of its own, as a task or a worker process has one."""
    return DrainEngine(plan, RedisMessageQueue.from_spec(queue.spec()), partition, attempt)


def drain_here(
    queue: RedisMessageQueue, process: Process, *, partition: int = 0, attempt: int = 0, **options: Any
) -> PartitionSummary:
    """Drain one partition in this process, as attempt `attempt` at it."""
    return engine_for(queue, plan_for(process, **options), partition, attempt).run()


def what_was_done(summary: PartitionSummary) -> dict[str, Any]:
    """Return a summary without what differs between a run and its repetition."""
    return {
        name: value
        for name, value in asdict(summary).items()
        if name
        not in ("seconds", "replayed", "failures", "taken_over", "bytes", "retries", "remembered_empty", "failed")
    }


class Killed(BaseException):
    """Ends an attempt as SIGKILL does, where `leave_leases_open` is in force."""


@pytest.fixture
def leave_leases_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chunk, "release", lambda self: self.lease.stop_heartbeat())


def watched() -> list[str]:
    """Return the leases of these drains that have a heartbeat; other tests may have left theirs."""
    beats = [watch.lease() for watch in list(scheduler()._due._watches.values())]
    return [beat.lease_id for beat in beats if isinstance(beat, LeaseHeartbeat) and beat.lease_id.startswith("run/")]
