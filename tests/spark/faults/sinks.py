"""A sink that only ever appends, and what must hold for it and the queue when all is over."""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from pyspark import cloudpickle

from sluicegate import Message, RedisMessageQueue
from sluicegate.spark import DrainContext
from tests.support import state

# Executors cannot import the tests, so this module is pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Before = Callable[[list[Message], DrainContext], None]
Truth = dict[str, int]  # message id -> its number


@dataclass(frozen=True)
class Sink:
    """A folder to which every batch is added, whole, whether or not it is there: the worst sink for repetitions."""

    folder: Path

    def add(self, rows: Iterable[tuple[str, int]]) -> None:
        unfinished = self.folder / f"{uuid.uuid4().hex}.unfinished"
        unfinished.write_text(json.dumps(list(rows)))
        unfinished.rename(unfinished.with_suffix(".json"))

    def writer(self, before: Before | None = None) -> Callable[[list[Message], DrainContext], None]:
        """Return a handler that does `before` and then adds its batch."""

        def process(batch: list[Message], ctx: DrainContext) -> None:
            if before is not None:
                before(batch, ctx)
            self.add((message.id, message.json()["n"]) for message in batch)

        return process

    def rows(self) -> list[tuple[str, int]]:
        return [(row[0], row[1]) for file in self.folder.glob("*.json") for row in json.loads(file.read_text())]

    def duplicates(self) -> Counter[str]:
        """Message ids with how often each is there beyond the first time."""
        seen = Counter(name for name, _ in self.rows())
        return Counter({name: count - 1 for name, count in seen.items() if count > 1})


def publish(queue: RedisMessageQueue, count: int, first: int = 0) -> Truth:
    """Publish numbers; returns what a sink must have in the end."""
    numbers = range(first, first + count)
    report = queue.publish_many({"n": n} for n in numbers)
    assert report.accepted == count
    return dict(zip(report.ids, numbers, strict=True))


def check_nothing_lost(sink: Sink, truth: Truth) -> None:
    """Check that the sink, without its duplicates, holds what was published."""
    rows = dict(sink.rows())
    missing, foreign = truth.keys() - rows.keys(), rows.keys() - truth.keys()
    assert rows == truth, f"of {len(truth)} messages {len(missing)} are not in the sink, and {len(foreign)} others are"


def check_acked_once(queue: RedisMessageQueue, client: redis.Redis, truth: Truth) -> None:
    """Each message was acked, once, by the counters and by the queue's own history; nothing is left anywhere."""
    counters = state.counters(client, queue.name)
    assert (counters["published"], counters["acked"]) == (len(truth), len(truth))
    assert sorted(acked_ids(queue, len(truth) + 100)) == sorted(truth)
    depth = queue.depth()
    assert (depth.ready, depth.delayed, depth.in_flight, depth.leases, depth.dead) == (0, 0, 0, 0, 0)


def acked_ids(queue: RedisMessageQueue, most: int) -> list[str]:
    """Ids from the queue's history, once per ack."""
    return [done.message.id for done in queue.peek(most, state="completed")]


def seen_by(reported: Path) -> list[Any]:
    """Return the lines that handlers left in a file."""
    return [json.loads(line) for line in reported.read_text().splitlines()] if reported.exists() else []
