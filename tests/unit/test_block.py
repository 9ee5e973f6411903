"""The layout of blocks: what is put in comes out, in Python and in Lua alike, and a damaged block is none."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.core.block import MAX_BLOCK_BYTES, MAX_MESSAGES, Block, Slices, block_part
from sluicegate.core.call import Call
from sluicegate.core.entry import client_part, is_entry, read_prefix, split_entry
from sluicegate.core.scripts import make_script
from tests.support.blocks import block_of, values_of
from tests.support.core_calls import Core

SOURCE = """-- Do with a block what scripts do with blocks.
-- Guarantee: none.
-- KEYS:
--   1 unused
-- ARGV:
--   1 verb
--   2 value
--   3... place
-- Returns: values
-- Repeat: does it again.

--- @include block, block_pieces, entry, sound_block
local block, places = index_block(value), {}
for i = place_at, #ARGV do
  places[#places + 1] = tonumber(ARGV[i])
end
if verb == 'is' then
  return {is_block(value) and 1 or 0, block and 1 or 0, sound_block(value) and 1 or 0, is_entry(value) and 1 or 0}
elseif verb == 'open' then
  return open_block(value) or {}
elseif verb == 'ids' then
  local ids = {}
  for i = 1, block.count do
    ids[i] = id_in(block, i)
  end
  return ids
elseif verb == 'cut' then
  return {cut_block(block, places[1], places[2])}
end
return {keep_in_block(block, places, verb == 'renumber')}
"""
SCRIPT = make_script("with_a_block", SOURCE)
KEYS = st.lists(st.binary(max_size=20).filter(lambda key: b"\x1f" not in key), min_size=2, max_size=12)


def entries(count: int, kind: bytes = b"1", first: int = 0, **fields: Sequence[bytes] | bytes) -> list[bytes]:
    keys = fields.get("keys") or [b"key-%d" % at for at in range(count)]
    payloads = fields.get("payloads") or [b'{"at":%d}' % at for at in range(count)]
    headers = fields.get("headers") or b""
    assert isinstance(headers, bytes)
    return [
        b"%b%012x0199f3c2b1a40000" % (kind, 28 + at)
        + client_part(b"b-%d" % (first + at), keys[at], headers, payloads[at])  # type: ignore[arg-type]
        for at in range(count)
    ]


def in_lua(client: redis.Redis, verb: str, value: bytes, *places: int) -> list[Any]:
    call = Call(SCRIPT, (b"unused",), (verb.encode(), value, *places), lambda reply: reply)
    return Core(client).do(call)  # type: ignore[no-any-return]


def texts(slices: Slices) -> list[bytes]:
    """Read slices as Arrow does."""
    count = len(slices.offsets) // 4 - 1
    buffers = [None, pa.py_buffer(slices.offsets), pa.py_buffer(slices.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers).to_pylist()  # type: ignore[no-any-return]


def read(value: bytes) -> Block:
    block = Block.read(value)
    assert block is not None
    return block


@given(KEYS, st.data(), st.sampled_from([b"1", b"2"]), st.integers(0, 900), st.sampled_from([b"", b'{"a":"b"}']))
@example([b"", b""], None, b"1", 0, b"")
def test_round_trip(keys: list[bytes], data: Any, kind: bytes, first: int, headers: bytes) -> None:
    payloads = [data.draw(st.binary(max_size=40)) if data else b"" for _ in keys]
    given = entries(len(keys), kind, first, keys=keys, payloads=payloads, headers=headers)
    block = read(block_of(given))
    assert block.entries() == given
    assert [block.entry(place) for place in range(len(block))] == given
    assert block.ids() == [split_entry(entry)[0] for entry in given]
    assert block.sizes() == [len(entry) for entry in given]
    assert texts(block.keys()) == keys == [block.key(place) for place in range(len(block))]
    assert texts(block.payloads()) == payloads == [block.payload(place) for place in range(len(block))]
    assert block.enqueued_ms == 0x0199F3C2B1A4


def test_lua_reads_what_python_writes(bare_client: redis.Redis) -> None:
    given = entries(MAX_MESSAGES, b"2", 750, payloads=[b"\x1f\x00" * (at % 40) for at in range(250)])
    value = block_of(given)
    assert in_lua(bare_client, "is", value) == [1, 1, 1, 0]
    assert in_lua(bare_client, "open", value) == given
    assert in_lua(bare_client, "ids", value) == read(value).ids()


@pytest.mark.parametrize(("first", "last"), [(1, 250), (1, 2), (249, 250), (7, 7), (1, 1), (250, 250), (20, 199)])
def test_a_piece_of_a_piece_has_the_same_messages(bare_client: redis.Redis, first: int, last: int) -> None:
    given = entries(MAX_MESSAGES, first=3)
    (piece,) = in_lua(bare_client, "cut", block_of(given), first, last)
    assert opened(piece) == given[first - 1 : last]
    if last - first > 1:
        (smaller,) = in_lua(bare_client, "cut", piece, 2, last - first)
        assert opened(smaller) == given[first : last - 1]
        assert texts(read(piece).payloads()) == [split_entry(entry)[3] for entry in given[first - 1 : last]]


def opened(value: bytes) -> list[bytes]:
    block = Block.read(value)
    return block.entries() if block else [value]


@given(st.sets(st.integers(1, 40), min_size=1), st.sets(st.integers(1, 40), min_size=1))
def test_what_is_kept_of_a_block_keeps_its_place(server: Any, one: set[int], two: set[int]) -> None:
    given = entries(40, b"2")
    with server.client() as client:
        (kept,) = in_lua(client, "keep", block_of(given), *sorted(one))
        places = sorted(one)
        assert opened(kept) == [given[place - 1] for place in places]
        again = [place for place in sorted(two) if place <= len(places)]
        if len(places) > 1 and again:
            (kept,) = in_lua(client, "keep", kept, *again)
            assert opened(kept) == [given[places[place - 1] - 1] for place in again]


def test_what_a_publish_keeps_gets_sequences_without_gaps(bare_client: redis.Redis) -> None:
    given = entries(40)
    (kept,) = in_lua(bare_client, "renumber", block_of(given), 3, 4, 9)
    assert [read_prefix(entry).sequence for entry in opened(kept)] == [28, 29, 30]
    assert [split_entry(entry) for entry in opened(kept)] == [split_entry(given[at]) for at in (2, 3, 8)]


def damaged() -> dict[str, bytes]:
    value = block_of(entries(9))
    ends = len(value) - 8 * 9
    return {
        "truncated": value[:-1],
        "longer": value + b"x",
        "no such kind": b"9" + value[1:],
        "leased before": value[:25] + b"0010" + value[29:],
        "a count of one": value.replace(b"\x1f9\x1f0,0", b"\x1f1\x1f0,0"),
        "a count that is too great": value.replace(b"\x1f9\x1f0,0", b"\x1f9999999999999999999999\x1f0,0"),
        "positions without end": value.replace(b"\x1f0-8\x1f", b"\x1f0-999999999999\x1f"),
        "too few positions": value.replace(b"\x1f0-8\x1f", b"\x1f0-7\x1f"),
        "positions twice": value.replace(b"\x1f0-8\x1f", b"\x1f0-4,4-7\x1f"),
        "too few ranks": value.replace(b"\x1f0,0\x1f\x1f", b"\x1f0,0\x1f0-7\x1f"),
        "ranks twice": value.replace(b"\x1f0,0\x1f\x1f", b"\x1f0,0\x1f0-4,4-7\x1f"),
        "ends that decrease": value[: ends + 4] + struct.pack("<I", 1) + value[ends + 8 :],
        "an end beyond": value[: ends + 12] + struct.pack("<I", 1 << 31) + value[ends + 16 :],
        "a last end beyond": value[:-4] + struct.pack("<I", 5),
        "no fields": value[:40],
        "only a kind": b"3",
        "nothing": b"",
    }


@pytest.mark.parametrize("how", damaged())
def test_a_damaged_block_is_none(bare_client: redis.Redis, how: str) -> None:
    value = damaged()[how]
    assert Block.read(value) is None
    assert in_lua(bare_client, "open", value) == []
    assert in_lua(bare_client, "is", value)[1:] == [0, 0, 0]


def test_a_changed_block_is_sound_if_its_index_can_be_read(bare_client: redis.Redis) -> None:
    """A claim takes a whole block without making lists of its index, and refuses it for the same reasons."""
    rnd, whole, found = random.Random(0), block_of(entries(9)), set()
    (kept,) = in_lua(bare_client, "keep", whole, 1, 2, 5, 9)
    (cut,) = in_lua(bare_client, "cut", whole, 3, 7)
    for value in (whole, kept, cut) * 100:
        at, change = rnd.randrange(28, len(value)), rnd.randbytes(rnd.choice([1, 1, 4]))
        changed = value[:at] + change + value[at + len(change) :]
        _, indexed, sound, _ = in_lua(bare_client, "is", changed)
        assert sound == indexed == (Block.read(changed) is not None)
        found.add(sound)
    assert found == {0, 1}


def test_a_message_is_no_block(bare_client: redis.Redis) -> None:
    (value, *_) = entries(1)
    assert Block.read(value) is None
    assert in_lua(bare_client, "is", value) == [0, 0, 0, 1]


def test_the_values_of_a_publish_are_blocks_within_their_limits() -> None:
    values = values_of(entries(1000))
    assert [len(opened(value)) for value in values] == [250, 250, 250, 250]
    large = values_of(entries(100, payloads=[bytes(1000)] * 100))
    assert [len(opened(value)) for value in large] == [64, 36]
    assert max(map(len, large)) <= MAX_BLOCK_BYTES
    few = values_of(entries(7))
    assert all(map(is_entry, few))
    mixed = values_of([*entries(10), *entries(10, b"2"), *entries(9, first=50)])
    assert [len(opened(value)) for value in mixed] == [10, 10, 9]


def test_the_part_of_a_client_needs_only_the_prefix() -> None:
    part = block_part(b"b", 3, [b"k1", b""], [b"one", b"two"])
    assert part.startswith(b"b\x1f3-4\x1f2\x1f0,0\x1f\x1f2\x1f6\x1f\x1fk1onetwo")
