"""A lease that holds blocks makes the same table as one of single messages, without an entry per message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sluicegate.core.block import Block
from sluicegate.core.leased import LeasedEntries, only_between
from sluicegate.core.transitions.manifest import LeaseView
from sluicegate.leased_messages import LeasedMessages
from sluicegate.tables.arrow import message_arrays, to_table
from tests.support.blocks import block_of, values_of
from tests.unit.test_block import entries

KEYS = [b"", b"a%3Ab", *(b"key-%d" % at for at in range(28))]


def leases(headers: bytes = b"", begun: int = 1) -> tuple[LeasedEntries, LeasedEntries]:
    """Return a lease of singles, and one that has them in blocks and between blocks."""
    given = entries(30, b"2", 7, headers=headers, keys=KEYS)
    values = [block_of(given[:10]), given[10], given[11], block_of(given[12:20]), block_of(given[20:])]
    return LeasedEntries(given, None, begun), LeasedEntries(values, None, begun)


@pytest.mark.parametrize("headers", [b"", b'{"a":"b","c":""}'])
@pytest.mark.parametrize("begun", [1, 3])
def test_blocks_and_single_messages_make_the_same_table(headers: bytes, begun: int) -> None:
    singles, blocks = leases(headers, begun)
    assert blocks.has_blocks
    table = to_table(LeasedMessages(blocks))
    assert table.equals(to_table(LeasedMessages(singles)), check_metadata=True)
    assert blocks.has_blocks, "no entry was made"
    assert table.column("deduplication_key").to_pylist()[:3] == [None, "a:b", "key-0"]


def with_places(block: bytes, places: Sequence[int]) -> bytes:
    """Return a block of consecutive messages as one of the messages at these places."""
    if isinstance(places, range):
        return block
    first, last = places[0], places[0] + len(places) - 1
    listed, ranks = (b",".join(b"%d" % (at - start) for at in places) for start in (0, first))
    before, after = b"\x1f%d-%d\x1f%d\x1f0,0\x1f" % (first, last, len(places)), b"\x1f%d\x1f0,0\x1f" % len(places)
    assert before + b"\x1f" in block
    return block.replace(before + b"\x1f", b"\x1f" + listed + after + ranks + b"\x1f")


@pytest.mark.parametrize(
    "places",
    [
        [range(10), range(10, 20), range(20, 30)],
        [range(10), range(20, 30), range(10, 20)],
        [range(10), range(15, 25), range(20, 30)],
        [range(2, 8), [9, 11, 12, 25]],
        [[0, 2, 4], [1, 3, 5]],
    ],
)
def test_blocks_may_have_any_messages_in_any_order(places: list[Sequence[int]]) -> None:
    """A purge, a claim of a part or lost counters leave gaps and other orders."""
    given = entries(30, keys=KEYS)
    parts = [[given[at] for at in each] for each in places]
    blocks = LeasedEntries([with_places(block_of(part), each) for part, each in zip(parts, places, strict=True)])
    singles = LeasedEntries([entry for part in parts for entry in part])
    assert to_table(LeasedMessages(blocks)).equals(to_table(LeasedMessages(singles)))
    assert blocks.has_blocks


def test_only_the_wanted_columns_are_made() -> None:
    _, blocks = leases()
    assert list(message_arrays(LeasedMessages(blocks), ["payload"])) == ["payload"]


def test_a_lease_of_blocks_knows_its_messages_by_position_and_slot() -> None:
    singles, blocks = leases()
    assert len(blocks) == 30
    assert list(blocks.slots) == list(range(1, 31))
    assert (blocks.size, blocks.redelivered) == (singles.size, 0)
    assert [type(piece) for piece in blocks.pieces()] == [Block, bytes, bytes, Block, Block]
    assert blocks.entry(25) == singles.entry(25)
    assert blocks.size_at(26) == singles.size_at(26)
    assert blocks.entries() == singles.entries()
    assert list(blocks.pieces()) == singles.entries() or not blocks.has_blocks


def test_slots_name_the_first_message_of_a_block() -> None:
    given = entries(30)
    lease = LeasedEntries([given[0], block_of(given[1:10]), given[20]], [3, 7, 40])
    assert list(lease.slots) == [3, *range(7, 16), 40]
    assert lease.entries() == [given[0], *given[1:10], given[20]]
    lease.drop([8, 40])
    assert list(lease.slots) == [3, 7, *range(9, 16)]
    assert lease.entries() == [given[0], given[1], *given[3:10]]


@pytest.mark.parametrize(("first", "last"), [(1, 20), (5, 12), (11, 20), (3, 3), (20, 20)])
def test_a_part_of_a_lease_has_the_entries_of_a_block_that_reaches_beyond(first: int, last: int) -> None:
    given = entries(30)
    slots, found = only_between([1, 11], [block_of(given[:10]), block_of(given[10:20])], first, last)
    lease = LeaseView("open", entries=found, slots=slots).leased()
    assert list(lease.slots) == list(range(first, last + 1))
    assert lease.entries() == given[first - 1 : last]


def test_a_block_that_is_inside_of_a_part_stays_one_value() -> None:
    given = entries(30)
    _, found = only_between([1, 11], values_of(given[:10]) + values_of(given[10:20]), 1, 12)
    assert [value[:1] for value in found] == [b"3", b"1", b"1"]
