"""The same calls on two queues, one of entries and one whose publishes store blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from sluicegate.core.block import Block
from sluicegate.core.transitions.depth import Depth, depth_operation
from sluicegate.core.transitions.peek import PeekPlace, peek_operation
from sluicegate.core.transitions.publish import Published
from tests.support import state
from tests.support.blocks import entries_of, packed
from tests.support.core_administration import Admin
from tests.support.making import small_blocks

TIME = slice(13, 25)  # of an entry: the two publishes are not at the same time


class Twin(Admin):
    """A queue, and whether its publishes store blocks."""

    def __init__(self, client: redis.Redis, queue: str, *, packs: bool, least: int = 2, most: int = 5) -> None:
        super().__init__(client, queue, most=4)
        self.packs, self.least, self.most_in_block = packs, least, most

    def add(self, batch: str, *names: str, **options: Any) -> Published:
        """Publish, in blocks if this is the queue of blocks."""
        with small_blocks(self.least, self.most_in_block):
            return self.do(self.publish(batch, *names, **options, packs=self.packs))

    def open_oldest(self, count: int) -> None:
        """Turn blocks among the oldest values into entries, in their places, as a claim does."""
        values = self.client.lrange(self.keys.pending, -count, -1)[::-1]
        entries = [entry for value in values for entry in entries_of(value)]
        with self.client.pipeline() as pipe:
            pipe.ltrim(self.keys.pending, 0, -len(values) - 1)
            if entries:
                pipe.rpush(self.keys.pending, *entries[::-1])
            pipe.hincrby(self.keys.counters, "packed", -packed(values))
            pipe.execute()

    def look(self, count: int, offset: int, place: PeekPlace | None = None) -> list[bytes]:
        shown = self.run(peek_operation(self.keys, "pending", count, offset=offset, place=place))
        return [without_time(entry) for entry in shown]

    def count(self) -> Depth:
        return self.run(depth_operation(self.keys))

    # ------------------------------------------------------------------ what is stored

    def stored(self) -> dict[str, list[bytes]]:
        """Return what the queue holds by state, the messages of blocks as entries, without times."""
        found = vars(state.contents(self.client, self.queue))
        return {
            place: sorted(opened, key=lambda entry: entry[1:13]) if place == "in_flight" else opened
            for place, values in found.items()
            for opened in [[without_time(entry) for value in values for entry in entries_of(value)]]
        }

    def totals(self) -> dict[str, int]:
        """Return the totals that both queues have."""
        private = {"packed", "cancelled_values", "layout"}
        return {name: total for name, total in state.counters(self.client, self.queue).items() if name not in private}

    def blocks(self) -> list[Block]:
        return [block for value in self.client.lrange(self.keys.pending, 0, -1) if (block := Block.read(value))]

    def check(self, *, exact: bool = True) -> None:
        """Assert that `packed` is what it should be, or at least that."""
        values = self.client.lrange(self.keys.pending, 0, -1)
        counted, real = int(self.client.hget(self.keys.counters, "packed") or 0), packed(values)
        assert counted == real if exact else counted >= real
        for block in self.blocks():
            assert 2 <= block.count <= self.most_in_block
            assert len(set(block.ids())) == block.count

    def owners(self, names: Sequence[str]) -> list[str | None]:
        return [self.owner(name) for name in names]


def without_time(entry: bytes) -> bytes:
    return entry[: TIME.start] + entry[TIME.stop :]


def twins(client: redis.Redis, **options: int) -> tuple[Twin, Twin]:
    """Return a queue of entries, and a queue of blocks."""
    return Twin(client, "singles", packs=False), Twin(client, "blocks", packs=True, **options)
