"""Pending blocks are read, cancelled, purged, dropped and repaired message by message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate.core.block import MAX_BLOCK_BYTES, Block
from sluicegate.core.call import Call
from sluicegate.core.entry import client_part, is_entry, split_entry
from sluicegate.core.transitions.examine import examine_call
from sluicegate.core.transitions.peek import peek_operation, peek_pending_call
from sluicegate.core.transitions.publish import Batch, publish_call
from sluicegate.core.transitions.repair import repair_call, repair_operation
from tests.support import state
from tests.support.blocks import block_of, entries_of, pack_pending
from tests.support.twins import Twin, without_time

LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture
def queue(bare_client: redis.Redis) -> Twin:
    return Twin(bare_client, "orders", packs=True, most=8)


def names(queue: Twin) -> list[str]:
    """Return the payloads of what is pending, the oldest first."""
    return [split_entry(entry)[3].decode() for entry in state.contents(queue.client, "orders").pending]


def pending(queue: Twin) -> int:
    depth = queue.count()
    assert depth.ready == depth.pending
    return depth.pending


def test_a_message_leaves_its_block_and_the_others_keep_their_order_and_their_keys(queue: Twin) -> None:
    queue.add("b", *LETTERS, keyed=True)
    assert [block.count for block in queue.blocks()] == [4, 8, 8]

    assert queue.cancel(["b-3", "b-19", "b-8", "c-1", "b-20", "b-07", "b-"]) == ["b-3", "b-19", "b-8"]

    assert "".join(names(queue)) == "abcefghjklmnopqrs"
    assert pending(queue) == 17
    queue.check()
    kept = [name for name in LETTERS if queue.owner(name)]
    assert "".join(kept) == "abcefghjklmnopqrs"
    stored = state.contents(queue.client, "orders").pending
    assert queue.look(3, 2) == [without_time(entry) for entry in stored[2:5]]


def test_the_last_message_of_a_block_is_an_entry_and_an_empty_block_is_gone(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    queue.cancel([f"b-{number}" for number in (*range(7), *range(8, 16))])
    oldest, last = queue.client.lrange(queue.keys.pending, 0, -1)[::-1]
    assert is_entry(oldest)
    assert Block(last).count == 4
    assert "".join(names(queue)) == "hqrst"
    queue.check()


def test_a_purge_frees_the_keys_of_what_is_left_in_a_block(queue: Twin) -> None:
    queue.add("b", *LETTERS, keyed=True)
    queue.cancel(["b-3"])
    queue.add("c", "d", keyed=True)  # the key of the message that was cancelled

    assert queue.purge("pending") == 20

    assert (names(queue), queue.client.hget(queue.keys.counters, "packed")) == ([], b"0")
    assert [name for name in LETTERS if queue.owner(name)] == []


def test_what_is_published_during_a_purge_stays(queue: Twin) -> None:
    queue.add("b", *LETTERS * 40)
    scans: list[int] = []

    def publish(call: Call[Any]) -> None:
        if call.script.name == "scan":
            scans.append(1)
            if len(scans) == 2:
                queue.between = lambda _: None
                queue.add("c", *LETTERS)

    queue.between = publish
    assert queue.purge("pending") == 800
    assert "".join(names(queue)) == LETTERS
    assert [answer for answer in queue.answers if isinstance(answer, int)] == [504, 296], "whole blocks, page by page"
    queue.check()


@pytest.mark.parametrize("dropped", [1, 3, 4, 7, 8, 9, 16, 20])
def test_the_oldest_are_dropped_to_the_message(queue: Twin, dropped: int) -> None:
    queue.add("b", *LETTERS)
    new = [f"n{number}" for number in range(dropped)]
    published = queue.do(queue.publish("c", *new, max_pending_length=20, overload="drop_oldest"))
    assert (published.accepted, published.dropped) == (dropped, dropped)
    assert names(queue) == [*LETTERS[dropped:], *new]
    assert pending(queue) == 20
    queue.check()


def test_a_cap_counts_the_messages_of_blocks(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    assert queue.do(queue.publish("c", "x", max_pending_length=20)).waiting == 20
    assert queue.do(queue.publish("d", "x", "y", max_pending_length=21, overload="partial")).refused == (1,)
    ids = queue.die("dead", "too") if queue.purge("pending") else []
    queue.add("e", *LETTERS)
    report = queue.redrive(max_pending_length=21)
    assert (report.redriven, report.scanned) == (1, 1)
    assert names(queue)[-1] == "dead"
    assert len(ids) == 2


# ---------------------------------------------------------------------- other calls meanwhile


def opened(queue: Twin) -> None:
    """Open the oldest block, as a claim does that takes one message and leaves the others."""
    queue.open_oldest(1)


def opened_and_claimed(queue: Twin) -> None:
    queue.open_oldest(1)
    queue.client.ltrim(queue.keys.pending, 0, -4)


def joined(queue: Twin) -> None:
    queue.add("new", *LETTERS)


def cancelled_elsewhere(queue: Twin) -> None:
    queue.between = lambda _: None
    queue.cancel([f"b-{number}" for number in (18, 19, 9)])


@pytest.mark.parametrize("meanwhile", [opened, opened_and_claimed, joined, cancelled_elsewhere])
@pytest.mark.parametrize("page_size", [1, 500])
def test_a_cancel_finds_what_other_calls_moved(
    queue: Twin, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Twin], None], page_size: int
) -> None:
    monkeypatch.setattr("sluicegate.core.transitions.cancel._PAGE_SIZE", page_size)
    queue.add("b", *LETTERS)
    done: list[str] = []

    def move(call: Call[Any]) -> None:
        if call.script.name == "cancel" and not done:
            done.append(call.script.name)
            meanwhile(queue)

    queue.between = move
    wanted = [f"b-{number}" for number in (4, 5, 8, 17)]
    assert queue.cancel(wanted) == wanted
    left = set(names(queue))
    assert not left & set("efir") or meanwhile is joined
    assert len(names(queue)) == {opened: 16, opened_and_claimed: 13, joined: 36, cancelled_elsewhere: 13}[meanwhile]


@pytest.mark.parametrize("meanwhile", [opened, joined, cancelled_elsewhere])
def test_a_purge_deletes_what_other_calls_changed(queue: Twin, meanwhile: Callable[[Twin], None]) -> None:
    queue.add("b", *LETTERS)

    def move(call: Call[Any]) -> None:
        if call.script.name == "purge":
            queue.between = lambda _: None
            meanwhile(queue)

    queue.between = move
    assert queue.purge("pending") == (17 if meanwhile is cancelled_elsewhere else 20)
    assert "".join(names(queue)) == (LETTERS if meanwhile is joined else "")
    queue.check()


# ---------------------------------------------------------------------- damage


def _changed(block: bytes, at: int, to: bytes) -> bytes:
    return block[:at] + to + block[at + len(to) :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda block: block[:-1],
    "longer": lambda block: block + b"x",
    "of another count": lambda block: block.replace(b"\x1f8\x1f", b"\x1f9\x1f", 1),
    "of other positions": lambda block: block.replace(b"0-7", b"0-6", 1),
    "of decreasing ends": lambda block: _changed(block, len(block) - 32, b"\xff"),
    "of a wrong last end": lambda block: _changed(block, len(block) - 4, b"\xff"),
    "of a wrong head": lambda block: _changed(block, 5, b"z"),
    "delivered before": lambda block: _changed(block, 27, b"1"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_block_is_a_foreign_value(queue: Twin, damage: str) -> None:
    queue.add("b", *LETTERS)
    damaged = DAMAGES[damage](queue.client.lindex(queue.keys.pending, -1))
    assert Block.read(damaged) is None
    queue.client.lset(queue.keys.pending, -1, damaged)

    assert queue.count().pending >= 13
    assert queue.run(peek_operation(queue.keys, "pending", 1)) == [damaged]
    assert len(queue.run(peek_operation(queue.keys, "pending", 30))) == 13
    assert queue.do(examine_call(queue.keys)).pending.unknown <= 1
    assert queue.cancel(["b-2", "b-9", "b-19"]) == ["b-9", "b-19"]
    assert queue.purge("pending") == 11
    assert names(queue) == []


def test_a_purge_takes_blocks_on_both_sides_of_a_damaged_one(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    queue.client.lset(queue.keys.pending, 1, DAMAGES["of decreasing ends"](queue.client.lindex(queue.keys.pending, 1)))
    assert queue.purge("pending") == 13


# ---------------------------------------------------------------------- repair, doctor


def test_a_repair_counts_the_messages_in_blocks(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    for wrong in (b"99", b"x", b"0", None):
        queue.client.hdel(queue.keys.counters, "packed")
        if wrong:
            queue.client.hset(queue.keys.counters, "packed", wrong)
        report = queue.run(repair_operation(queue.keys, queue.rules, b"n"))
        assert report.counters == (2 if wrong == b"x" else 1)
        assert pending(queue) == 20
    assert queue.run(repair_operation(queue.keys, queue.rules, b"n")).mended == 0


def test_a_count_of_blocks_begins_again_when_the_queue_changes(queue: Twin) -> None:
    queue.add("b", *LETTERS * 10)
    queue.client.hset(queue.keys.counters, "packed", 999)
    first = queue.do(repair_call(queue.keys, "packed", place=b"0", page_size=9))
    assert (first.next[:2], first.count) == (b"9 ", 0)
    queue.add("c", "x")
    assert queue.do(repair_call(queue.keys, "packed", place=first.next, page_size=9)).next == b"again"
    place = b"0"
    while place:
        page = queue.do(repair_call(queue.keys, "packed", place=place, page_size=9))
        place = page.next
    assert (page.count, pending(queue)) == (1, 201)


def test_a_block_that_was_set_aside_returns_message_by_message(queue: Twin) -> None:
    queue.add("b", *LETTERS[:8])
    block = queue.client.rpop(queue.keys.pending)
    queue.client.hset(queue.keys.counters, mapping={"packed": 0, "set_aside": 1})
    queue.client.zadd(queue.keys.set_aside, {block: 5})
    assert queue.run(repair_operation(queue.keys, queue.rules, b"n")).returned == 8
    assert state.contents(queue.client, "orders").returned == entries_of(block)


def test_the_sequence_goes_on_behind_the_last_message_of_a_block(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    queue.cancel(["b-18"])  # the ranks of the newest block are 0, 1 and 3
    queue.client.hset(queue.keys.counters, "published", "x")
    queue.add("c", "new")
    assert [int(entry[1:13], 16) for entry in state.contents(queue.client, "orders").pending][-2:] == [20, 21]


def test_a_block_that_was_buried_returns_whole(queue: Twin) -> None:
    queue.add("b", *LETTERS)
    block = queue.client.rpop(queue.keys.pending)
    queue.client.hincrby(queue.keys.counters, "packed", -7)
    queue.client.zadd(queue.keys.dead, {"foreign-1": 5})
    queue.client.hset(queue.keys.dead_records, "foreign-1", b"5\x1fforeign\x1f\x1f\x1f" + block)
    assert queue.redrive(max_pending_length=19).redriven == 0, "there is room for seven"
    assert queue.redrive(max_pending_length=20).redriven == 1
    assert "".join(names(queue)) == "ijklmnopqrstabcdefgh"
    queue.check()


# ---------------------------------------------------------------------- sizes


def publish_parts(queue: Twin, batch: str, payloads: list[bytes]) -> None:
    parts = [client_part(b"", b"", b"", payload) for payload in payloads]
    made = Batch(batch.encode(), parts, oldest_seconds=500, receipt_seconds=600)
    assert queue.do(publish_call(queue.keys, made, age_seconds=0)).accepted == len(payloads)


def test_empty_and_binary_parts(queue: Twin) -> None:
    payloads = [b"", b"\x1f", b"\x00\xff\xfe", b"", b"-1,2", b"\x1f\x1f8\x1f0,0", b"3" * 30, b""]
    publish_parts(queue, "b", payloads)
    whole = state.contents(queue.client, "orders").pending
    assert pack_pending(queue.client, "orders") == 1
    assert queue.run(peek_operation(queue.keys, "pending", 8)) == whole
    assert queue.cancel(["b-0", "b-5"]) == ["b-0", "b-5"]
    assert [split_entry(entry)[3] for entry in queue.run(peek_operation(queue.keys, "pending", 8))] == [
        payload for at, payload in enumerate(payloads) if at not in (0, 5)
    ]
    assert queue.purge("pending") == 6


def test_a_peek_reads_a_bounded_part_and_continues(queue: Twin) -> None:
    payloads = [b"%d:" % number + b"x" * 4000 for number in range(1000)]
    for first in range(0, 1000, 250):
        publish_parts(queue, f"b{first}", payloads[first : first + 250])
    assert pack_pending(queue.client, "orders") == 64
    shown = queue.do(peek_pending_call(queue.keys, 1000))
    assert 1024 * 1024 <= sum(map(len, shown.entries)) <= 1024 * 1024 + MAX_BLOCK_BYTES
    assert not shown.ended
    entries = queue.run(peek_operation(queue.keys, "pending", 2000))
    assert [split_entry(entry)[3] for entry in entries] == payloads
    for offset in (1, 249, 250, 603, 999, 1000):
        entries = queue.run(peek_operation(queue.keys, "pending", 3, offset=offset))
        assert [split_entry(entry)[3] for entry in entries] == payloads[offset : offset + 3]


def test_the_largest_blocks_are_cancelled_and_purged_in_bounded_time(queue: Twin) -> None:
    """Each script needs a small part of what Redis may be busy for; a busy machine gets three attempts."""
    for attempt in range(3):
        queue.client.flushall()
        for batch in range(4):
            publish_parts(queue, f"b{batch}", [b"x" * 200] * 1000)
        assert pack_pending(queue.client, "orders") == 4 * 4
        queue.client.config_set("slowlog-log-slower-than", 20_000)
        queue.client.slowlog_reset()
        asked = [f"b{batch}-{number}" for batch in range(4) for number in range(0, 1000, 4)]
        assert queue.cancel(asked) == asked
        assert len(queue.run(peek_operation(queue.keys, "pending", 3000))) == 3000
        assert queue.purge("pending") == 3000
        slow = [one["duration"] for one in queue.client.slowlog_get(10)]
        if not slow or attempt == 2:
            break
    assert slow == []


def test_two_hundred_and_fifty_messages_are_a_block_and_one_more_are_not(queue: Twin) -> None:
    publish_parts(queue, "b", [b"x"] * 250)
    entries = state.contents(queue.client, "orders").pending
    assert Block.read(block_of(entries)) is not None
    more = block_of(entries).replace(b"0-249\x1f250", b"0-250\x1f251", 1)
    assert Block.read(more) is None
    queue.client.lpush(queue.keys.pending, more)
    assert pending(queue) == 251
