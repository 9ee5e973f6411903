"""A group of a stream claims what it has not read, and its position and lag follow."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from sluicegate.core.entry import read_prefix, split_entry
from sluicegate.core.keys import GroupKeys
from sluicegate.core.transitions.claim import Empty, Opened
from sluicegate.core.transitions.depth import Depth
from sluicegate.core.transitions.peek import peek_call
from sluicegate.errors import WrongKeyTypeError
from tests.support.core_calls import Core, verdict

pytestmark = pytest.mark.every_server  # what servers know of a group differs


class Group(Core):
    """Calls on a group of the stream `orders`, which begins at its start."""

    def __init__(self, client: redis.Redis, group: str = "billing", start: str = "0") -> None:
        super().__init__(client)
        self.keys = GroupKeys("orders", group)
        client.xgroup_create(self.keys.stream, group, start, mkstream=True)

    def add(self, *payloads: str, **fields: Any) -> list[str]:
        """Append messages as any client can."""
        made = [{"data": payload, **fields} for payload in payloads]
        return [self.client.xadd(self.keys.stream, one).decode() for one in made]

    def position(self) -> str:
        return str(self.info()["last-delivered-id"], "ascii")

    def info(self) -> dict[str, Any]:
        """Return what Redis says of the group."""
        (found,) = (
            one for one in self.client.xinfo_groups(self.keys.stream) if one["name"].decode() == self.keys.group
        )
        return found

    def count(self) -> Depth:
        depth: Depth = self.do(self.depth())
        return depth

    def take(self, lease: str = "l", limit: int = 10) -> list[tuple[str, bytes]]:
        """Claim; return ids and payloads."""
        _, opened = self.opened(lease, f"n-{lease}", limit)
        return [(parts[0].decode(), parts[3]) for parts in map(split_entry, opened.entries)]


@pytest.fixture
def group(client: redis.Redis) -> Group:
    """Return a group of a stream."""
    return Group(client)


def test_a_claim_takes_what_the_group_has_not_read_in_order(group: Group) -> None:
    ids = group.add(*"abcde")
    assert group.take("one", 2) == [(ids[0], b"a"), (ids[1], b"b")]
    assert group.position() == ids[1]
    assert group.take("two", 10) == [(ids[2], b"c"), (ids[3], b"d"), (ids[4], b"e")]
    assert group.position() == ids[4]
    assert isinstance(group.do(group.claim("three", "n")), Empty)
    assert group.info()["pending"] == 0


def test_groups_claim_apart(group: Group, client: redis.Redis) -> None:
    other, late = Group(client, "shipping {1}"), Group(client, "late", "$")
    group.add(*"ab")
    assert group.take() == other.take() == late.take()
    assert (group.count().in_flight, other.count().in_flight) == (2, 2)


def test_a_message_is_as_its_entry_says(group: Group) -> None:
    headers = json.dumps({"kind": "test"})
    (first,) = group.add("a", headers=headers, key="k")
    (second,) = group.add("b", key="k", policy="until_acked")
    _, opened = group.opened("l", "n")
    one, other = opened.entries
    assert split_entry(one) == [first.encode(), b"k", headers.encode(), b"a"]
    assert split_entry(other) == [second.encode(), b"k", b"", b"b"]
    assert (one[:1], other[:1]) == (b"1", b"2")
    prefix = read_prefix(one)
    assert (prefix.sequence, prefix.deliveries, prefix.releases) == (1, 0, 0)
    assert prefix.enqueued_ms == int(first.split("-")[0])
    assert read_prefix(other).sequence == 2


@pytest.mark.parametrize(
    ("fields", "headers", "payload"),
    [
        ({"a": "1", "b": 'x"y'}, b"", {"a": "1", "b": 'x"y'}),
        ({"a": b"\xff\x00\x1f\x80", "ü": "ü"}, b"", {"a": "\xff\x00\x1f\x80", "ü": "ü"}),
        ({"a": "€𝄞ä\x7f"}, b"", {"a": "€𝄞ä\x7f"}),
        ({"a": b"\xe2\xc3\xa4\x82\xac"}, b"", {"a": "\xe2\xc3\xa4\x82\xac"}),
        ({"data": "x", "key": "a\x1fb"}, b"", {"data": "x", "key": "a\x1fb"}),
        ({"data": "x", "headers": "no object"}, b"", {"data": "x", "headers": "no object"}),
        ({"data": "x", "created_at": "1.5", "attempts": "0"}, b'{"created_at":"1.5","attempts":"0"}', b"x"),
        ({"data": b"\x00\x1f\xff", "a": b"\xff"}, b'{"a":"\\u00ff"}', b"\x00\x1f\xff"),
        ({"data": b"\x00short"}, b"", b"\x00short"),
    ],
)
def test_whatever_another_client_writes_is_a_message(
    group: Group, fields: dict[str, Any], headers: bytes, payload: object
) -> None:
    group.client.xadd(group.keys.stream, fields)
    _, opened = group.opened("l", "n")
    _, _, stored, content = split_entry(opened.entries[0])
    assert stored == headers
    assert content == payload if isinstance(payload, bytes) else json.loads(content) == payload


def test_extreme_ids_stop_nothing(group: Group) -> None:
    last = 2**64 - 1
    group.client.xadd(group.keys.stream, {"data": "a"}, id=f"{last}-1")
    group.client.xadd(group.keys.stream, {"data": "b"}, id=f"{last}-{last}")
    assert [payload for _, payload in group.take("one", 1)] == [b"a"]
    assert [payload for _, payload in group.take("two")] == [b"b"]
    assert isinstance(group.do(group.claim("three", "n")), Empty)
    assert group.count().ready == 0


def test_the_lag_is_right_whatever_was_deleted(group: Group) -> None:
    ids = group.add(*"abcdefghij")
    assert group.count().pending == 10
    group.take("one", 2)
    assert (group.count().pending, group.count().published_total) == (8, 10)
    group.client.xdel(group.keys.stream, ids[3], ids[8])
    assert group.count().pending == 6
    group.take("two", 3)  # c, e, f: behind the first deleted entry
    assert group.count().pending == 3
    group.take("three", 3)
    assert group.count().pending == 0
    group.add(*"kl")
    assert group.count().pending == 2
    if group.info().get("lag") is not None:
        assert group.info()["lag"] == 2
    group.take("four")
    assert group.count().pending == 0


def test_the_lag_is_right_when_what_was_not_read_was_trimmed(group: Group) -> None:
    group.add(*"abcdefghij")
    group.take("one", 2)
    group.client.xtrim(group.keys.stream, maxlen=5, approximate=False)
    assert group.count().pending == 5
    assert [payload for _, payload in group.take("two", 3)] == [b"f", b"g", b"h"]
    assert group.count().pending == 2
    group.take("three")
    assert group.count().pending == 0


def test_the_server_reports_the_lag_of_a_group_that_was_created_late(group: Group, client: redis.Redis) -> None:
    ids = group.add(*"abcde")
    late = Group(client, "late", ids[1])
    assert late.count().pending == 3
    assert len(late.take("one", 1)) == 1
    assert late.count().pending == 2
    late.take("two")
    group.add("f")
    assert late.count().pending == 1
    assert late.info().get("lag") in (1, None)


def test_the_oldest_ready_message_is_the_oldest_unread_one(group: Group) -> None:
    assert group.count().oldest_ready_age_seconds is None
    group.add("a")
    age = group.count().oldest_ready_age_seconds
    assert age is not None
    assert 0 <= age < 5
    group.take()
    assert group.count().oldest_ready_age_seconds is None


def test_a_peek_shows_what_is_unread_and_changes_nothing(group: Group) -> None:
    ids = group.add(*"abcde")
    group.take("one", 1)
    shown = group.do(peek_call(group.keys, "pending", 2, offset=1))
    assert [split_entry(entry)[0].decode() for entry in shown] == ids[2:4]
    assert [read_prefix(entry).sequence for entry in shown] == [3, 4]
    assert group.do(peek_call(group.keys, "pending", 2, offset=7)) == []
    assert group.position() == ids[0]


def test_a_claim_is_bounded_in_bytes(group: Group) -> None:
    group.add(*["x" * 2_200_000] * 5)
    assert len(group.take("one")) == 4
    assert len(group.take("two")) == 1


def test_what_comes_back_is_claimed_before_what_is_unread(group: Group) -> None:
    ids = group.add(*"abc")
    token, _ = group.opened("one", "n", 1)
    group.do(group.settle("one", token, verdict("release", "1")))
    assert group.count().returned == 1
    assert [one for one, _ in group.take("two")] == ids


def test_a_lost_counter_restarts_behind_what_came_back(group: Group) -> None:
    group.add(*"abc")
    token, _ = group.opened("one", "n", 2)
    group.do(group.settle("one", token, verdict("release", "1-2")))
    group.client.delete(group.keys.counters)
    _, opened = group.opened("two", "m")
    assert isinstance(opened, Opened)
    assert [read_prefix(entry).sequence for entry in opened.entries] == [1, 2, 3]


def test_a_stream_key_of_another_type_is_named(group: Group) -> None:
    group.client.delete(group.keys.stream)
    group.client.set(group.keys.stream, "a")
    with pytest.raises(WrongKeyTypeError, match=r"stream.*string"):
        group.do(group.claim("l", "n"))
    group.client.delete(group.keys.stream)
