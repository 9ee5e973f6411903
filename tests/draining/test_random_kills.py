"""Drains that are killed at random calls, repeat calls, and run twice at a time, held against what must be true."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Message, RedisGateway, RedisMessageQueue
from sluicegate.draining import engine
from sluicegate.draining.chunk import Chunk
from sluicegate.draining.context import DrainContext
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.summary import PartitionSummary
from sluicegate.errors import RedisUnavailableError
from tests.draining.helpers import engine_for, plan_for
from tests.support import state

BAD = {"raise", "nack", "release", "bury", "nack and raise"}
# As Spark plans for speculation: of two attempts, one waits until the other has missed heartbeats.
TWO_AT_ONCE = {"waits_for_consumer": True, "heartbeat_seconds": 0.75, "take_over_after_seconds": 2.6}
KINDS = ["ok", "ok", "ok", "ok", "ack", *sorted(BAD)]


class Killed(BaseException):
    """Ends an attempt as SIGKILL does: nothing it calls afterwards arrives."""


class Attempts:
    """Runs attempts of a task whose calls fail as told, and sees what their handler was given."""

    def __init__(self, seed: int, queue: RedisMessageQueue, kinds: list[str]) -> None:
        self.random = random.Random(seed)
        self.queue = queue
        self.kinds = kinds
        self.openings: dict[int, set[str]] = defaultdict(set)
        self.fine: set[int] = set()
        self.killing = 0.0
        self._threads: dict[RedisGateway, int] = {}
        self._dead: set[RedisGateway] = set()
        queue.publish_many({"n": n} for n in range(len(kinds)))

    def process(self, batch: list[Message], ctx: DrainContext) -> None:
        numbers = [message.json()["n"] for message in batch]
        for message, n in zip(batch, numbers, strict=True):
            self.openings[n].add(ctx.opening)
            verb = self.kinds[n].partition(" ")[0]
            if verb in ("ack", "nack", "release", "bury"):
                getattr(ctx, verb)(message)
            if verb == "ack":
                self.fine.add(n)
        if any("raise" in self.kinds[n] for n in numbers):
            raise ValueError("bad")
        self.fine.update(numbers)

    def run(self, plan: DrainPlan, attempt: int) -> PartitionSummary | None:
        """Run one attempt and return its summary, None when it was killed."""
        drain = engine_for(self.queue, plan, 0, attempt)
        self._threads[drain._queue.session.runner.gateway] = threading.get_ident()
        try:
            return drain.run()
        except Killed:
            return None

    @contextmanager
    def in_force(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        execute = RedisGateway.execute

        def watched(gateway: RedisGateway, call: Any, **more: Any) -> Any:
            own = self._threads.get(gateway)
            if own is None:
                return execute(gateway, call, **more)
            killed = Killed() if own == threading.get_ident() else RedisUnavailableError("killed")  # of a heartbeat
            fate = self.random.random()
            if gateway in self._dead or fate < self.killing:
                self._dead.add(gateway)
                raise killed
            if fate > 0.9:
                execute(gateway, call, **more)  # its answer is lost
            answer = execute(gateway, call, **more)
            if self.killing < fate < 2 * self.killing:
                self._dead.add(gateway)
                raise killed
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(RedisGateway, "execute", watched)
            patch.setattr(Chunk, "release", lambda self: self.lease.stop_heartbeat())
            yield

    def check(self, summaries: list[PartitionSummary], client: redis.Redis, limit: int | None) -> None:
        count, counters = len(self.kinds), defaultdict(int, state.counters(client, "orders"))
        contents, depth = state.contents(client, "orders"), self.queue.depth()
        left = {Message(value).json()["n"] for value in (*contents.pending, *contents.returned, *contents.delayed)}
        dead = {letter.message.json()["n"] for letter in self.queue.peek(count, state="dead")}
        gone = set(range(count)) - left - dead

        assert {n: seen for n, seen in self.openings.items() if len(seen) > 1} == {}  # none is taken again
        assert (depth.leases, depth.in_flight) == (0, 0)
        assert gone <= self.fine
        assert {self.kinds[n] for n in gone}.isdisjoint(BAD)
        assert {self.kinds[n] for n in left if n in self.openings}.isdisjoint({"ok", "ack", "bury"})
        assert {self.kinds[n] for n in dead} <= {"bury"}
        for summary in summaries:
            assert summary.claimed == min(count, limit or count)
            assert (summary.acked, summary.buried) == (counters["acked"], counters["buried"]) == (len(gone), len(dead))
            assert summary.returned == counters["nacked"] + counters["released"]
            assert bool(summary.failures) or not any(self.kinds[n] == "raise" for n in self.openings)


def some_kinds(chance: random.Random) -> list[str]:
    """Most are fine, since a handler that fails at everything gives a chunk up."""
    density = chance.choice([0.0, 0.5, 1.0])
    return [
        chance.choice(KINDS) if n % 4 == 0 and chance.random() < density else "ok"
        for n in range(chance.choice([5, 12, 30]))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_whenever_an_attempt_is_killed_each_message_ends_once_as_its_handler_said(
    queue: RedisMessageQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    attempts = Attempts(seed, queue, some_kinds(chance))
    limit = chance.choice([None, None, 4, 11])
    plan = plan_for(attempts.process, batch_size=chance.choice([3, 8, 100]), limit=limit)

    with attempts.in_force(monkeypatch):
        for attempt in range(20):
            attempts.killing = chance.choice([0.05, 0.15]) if attempt < 15 else 0.0
            summary = attempts.run(plan, attempt)
            if summary is not None:
                break

    assert summary is not None
    attempts.check([summary], client, limit)


@pytest.mark.parametrize("seed", range(15))
def test_two_attempts_at_once_report_the_same_and_each_message_ends_once_though_one_is_killed(
    queue: RedisMessageQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.01)
    chance = random.Random(seed)
    attempts = Attempts(seed, queue, some_kinds(chance))
    limit = chance.choice([None, None, 4, 11])

    def process(batch: list[Message], ctx: DrainContext) -> None:
        time.sleep(chance.random() * 0.01)  # not to wait for anything: so that both get work
        attempts.process(batch, ctx)

    plan = plan_for(process, batch_size=chance.choice([3, 8]), limit=limit, lease_seconds=3, **TWO_AT_ONCE)
    summaries: list[PartitionSummary | None] = []
    with attempts.in_force(monkeypatch):
        threads = [
            threading.Thread(target=lambda number=number: summaries.append(attempts.run(plan, number)))
            for number in range(2)
        ]
        attempts.killing = chance.choice([0.0, 0.02])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        attempts.killing = 0.0
        if not any(summaries):
            summaries.append(attempts.run(plan, 2))

    reported = [summary for summary in summaries if summary is not None]
    assert reported
    attempts.check(reported, client, limit)
