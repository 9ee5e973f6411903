"""A publish of many messages stores blocks; what cannot be in one is stored as entries beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from sluicegate.core.block import MAX_BLOCK_BYTES, Block
from sluicegate.core.entry import client_part, is_entry, read_prefix, split_entry
from sluicegate.core.transitions.publish import Batch, Published, publish_call
from sluicegate.errors import ConfigurationError, RedisMemoryError
from tests.support import state
from tests.support.blocks import entries_of
from tests.support.core_calls import Core, verdict

WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def core(bare_client: redis.Redis) -> Core:
    return Core(bare_client)


def stored(core: Core) -> list[int]:
    """Return how many messages each pending value has, the oldest first; 0 for an entry."""
    values = core.client.lrange(core.keys.pending, 0, -1)[::-1]
    return [block.count if (block := Block.read(value)) else 0 for value in values]


def payloads(core: Core) -> list[bytes]:
    """Return the pending payloads, and assert that their sequences follow one another."""
    entries = state.contents(core.client, core.queue).pending
    sequences = [read_prefix(entry).sequence for entry in entries]
    published = state.counters(core.client, core.queue)["published"]
    assert sequences == list(range(published - len(entries) + 1, published + 1))
    return [split_entry(entry)[3] for entry in entries]


def send(core: Core, parts: Sequence[bytes], **options: Any) -> Published:
    name = b"unit:0" if "tracked" in options else b"b"
    batch = Batch(name, list(parts), receipt_seconds=600, oldest_seconds=500, packs=True, **options)
    return core.do(publish_call(core.keys, batch, age_seconds=0))


def parts_of(payloads: Sequence[bytes], headers: bytes = b"") -> list[bytes]:
    return [client_part(b"", b"", headers, payload) for payload in payloads]


@pytest.mark.parametrize(
    ("count", "values"),
    [(1, [0]), (7, [0] * 7), (8, [8]), (250, [250]), (251, [250, 0]), (258, [250, 8]), (1000, [250] * 4)],
)
def test_runs_of_messages_are_blocks(core: Core, count: int, values: list[int]) -> None:
    sent = [b"p%d" % number for number in range(count)]
    assert send(core, parts_of(sent, b'{"a":"b"}')).accepted == count
    assert stored(core) == values
    assert payloads(core) == sent
    assert core.do(core.depth()).pending == count
    state.check(core.client)
    totals = state.counters(core.client, core.queue)
    assert totals.get("layout") == (3 if count >= 8 else None)
    assert totals["published"] == count


def test_a_block_has_no_more_than_its_bytes(core: Core) -> None:
    sent = [b"x" * 4000] * 40
    send(core, parts_of(sent))
    values = core.client.lrange(core.keys.pending, 0, -1)
    assert stored(core) == [16, 16, 8]
    assert MAX_BLOCK_BYTES * 0.9 < max(map(len, values)) <= MAX_BLOCK_BYTES
    assert payloads(core) == sent


def test_a_large_message_is_an_entry_between_blocks(core: Core) -> None:
    sent = [b"x"] * 9 + [b"y" * 9000] + [b"z"] * 3 + [b"y" * 9000] + [b"", b"\x1f", b"\xff"] * 3
    send(core, parts_of(sent))
    assert stored(core) == [9, 0, 0, 0, 0, 0, 9]
    assert payloads(core) == sent


@pytest.mark.parametrize(
    "options",
    [
        {"delay_seconds": 5}, {"due_ms": 1}, {"max_pending_length": 99, "overload": "partial"},
        {"kind": b"5", "tracked": b"unit"}, {"kind": b"7", "job_kinds": b"mail"},
    ],
    ids=str,
)  # fmt: skip
def test_what_waits_for_a_time_or_is_tracked_is_stored_as_entries(core: Core, options: dict[str, Any]) -> None:
    if "tracked" in options:
        core.client.hset(core.keys.tracking, "b:unit:total", 0)
    assert send(core, parts_of([b"x"] * 20), **options).accepted == 20
    values = core.client.lrange(core.keys.pending, 0, -1) + core.client.zrange(core.keys.delayed, 0, -1)
    assert len(values) == 20
    assert all(map(is_entry, values))
    assert "packed" not in state.counters(core.client, core.queue)


def test_messages_with_large_headers_are_stored_as_entries(core: Core) -> None:
    assert send(core, parts_of([b"x"] * 20, b"h" * 70_000)).accepted == 20
    assert stored(core) == [0] * 20


def test_messages_with_headers_of_their_own_are_stored_as_entries(core: Core) -> None:
    parts = parts_of([b"x"] * 10, b"{}") + parts_of([b"x"] * 10)
    assert send(core, parts).accepted == 20
    assert stored(core) == [0] * 20


@pytest.mark.parametrize("bound", [False, True])
def test_duplicates_leave_their_blocks(core: Core, bound: bool) -> None:
    more: dict[str, Any] = {"kind": b"2", "window": 7 * 86400} if bound else {}
    core.do(core.publish("first", "w3", "w17", "w21", keyed=True, packs=True))
    names = [*WORDS[:30], "w5", *WORDS[30:], "w39"]
    call = core.publish("b", *names, keyed=True, **more, packs=True)
    published = core.do(call)
    assert published.accepted == 37
    assert published.duplicates == {3: "first-0", 17: "first-1", 21: "first-2", 30: "b-5", 41: "b-40"}
    assert stored(core) == [0, 0, 0, 37]
    assert payloads(core)[3:] == [name.encode() for name in WORDS if name not in ("w3", "w17", "w21")]
    block = Block(core.client.lindex(core.keys.pending, 0))
    assert block.kind == (b"2" if bound else b"1")
    assert block.ids()[:5] == [b"b-0", b"b-1", b"b-2", b"b-4", b"b-5"]
    assert [core.owner(name) for name in ("w4", "w5", "w39")] == ["b-4", "b-5", "b-40"]
    state.check(core.client)
    before = state.dumps(core.client)
    assert core.do(call) == published, "a lost reply"
    assert {**state.dumps(core.client), core.keys.counters: 0} == {**before, core.keys.counters: 0}


@pytest.mark.parametrize("left", [0, 1, 2])
def test_what_is_left_of_a_run_takes_as_little_as_it_can(core: Core, left: int) -> None:
    core.do(core.publish("a", *WORDS[: 20 - left], keyed=True, packs=True))
    core.client.delete(core.keys.pending)
    assert core.do(core.publish("b", *WORDS[:20], "new", keyed=True, packs=True)).accepted == left + 1
    assert stored(core) == [[0], [2], [3]][left]
    assert payloads(core) == [word.encode() for word in (*WORDS[20 - left : 20], "new")]


def test_a_call_that_does_not_fit_is_refused_whole(core: Core) -> None:
    core.do(core.publish("a", *WORDS, max_pending_length=50, packs=True))
    before = state.dumps(core.client)
    assert core.do(core.publish("b", *WORDS[:11], max_pending_length=50, packs=True)).waiting == 40
    assert state.dumps(core.client) == before
    assert core.do(core.publish("b", *WORDS[:10], max_pending_length=50, packs=True)).accepted == 10
    assert core.do(core.depth()).pending == 50


def test_new_blocks_drop_the_oldest_messages(core: Core) -> None:
    core.do(core.publish("a", *WORDS, max_pending_length=50, overload="drop_oldest", packs=True))
    published = core.do(core.publish("b", *WORDS[:33], max_pending_length=50, overload="drop_oldest", packs=True))
    assert (published.accepted, published.dropped) == (33, 23)
    assert stored(core) == [17, 33]
    assert [split_entry(entry)[0] for entry in state.contents(core.client, "orders").pending][:1] == [b"a-23"]
    state.check(core.client)


def test_a_publish_of_blocks_is_refused_whole_for_memory(core: Core) -> None:
    call = core.publish("b", *WORDS, keyed=True, packs=True)
    before = state.dumps(core.client)
    core.client.config_set("maxmemory", "1")
    with pytest.raises((redis.exceptions.OutOfMemoryError, RedisMemoryError)):
        core.do(call)
    core.client.config_set("maxmemory", "0")
    assert state.dumps(core.client) == before


def test_blocks_of_until_acked_free_their_keys_as_messages_end(core: Core) -> None:
    core.do(core.publish("b", *WORDS, keyed=True, kind=b"2", window=7 * 86400, packs=True))
    token, opened = core.opened("l", "n", 40)
    core.do(core.settle("l", token, verdict("ack", "1-10"), verdict("release", "11-40")))
    assert len(opened.leased().slots) == 40
    assert [name for name in WORDS if core.owner(name)] == WORDS[10:]
    assert [len(entries_of(value)) for value in core.client.zrange(core.keys.returned, 0, -1)] == [1] * 30


@pytest.mark.parametrize("use", ["publish", "claim", "depth"])
def test_a_newer_layout_is_refused_with_a_word(core: Core, use: str) -> None:
    calls = {"publish": core.publish("b", "a"), "claim": core.claim("l", "n"), "depth": core.depth()}
    core.client.hset(core.keys.counters, "layout", 4)
    before = state.dumps(core.client)
    with pytest.raises(ConfigurationError, match=r"newer Sluicegate \(layout 4, .*upgrade the client"):
        core.do(calls[use])
    assert state.dumps(core.client) == before
    core.client.hset(core.keys.counters, "layout", 3)
    core.do(calls[use])
