"""What a claim answered, by position and slot, and the objects that are made of it."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from sluicegate.core.entry import client_part
from sluicegate.core.leased import LeasedEntries
from sluicegate.leased_messages import LeasedMessages
from sluicegate.message import Message


def entry_of(number: int, kind: bytes = b"1", payload: bytes = b"{}") -> bytes:
    return kind + b"%012x" % number + b"0199f3c2b1a4" + b"0010" + client_part(b"id-%d" % number, b"key", b"", payload)


def leased_of(count: int) -> LeasedMessages:
    return LeasedMessages(LeasedEntries([entry_of(number) for number in range(count)], None, 2))


def test_slots_count_from_one_unless_some_are_missing() -> None:
    whole = LeasedEntries([b"a", b"bb", b"ccc"], [])
    assert (whole.slots, len(whole), whole.size) == (range(1, 4), 3, 6)
    assert [whole.position(slot) for slot in (0, 1, 3, 4)] == [None, 0, 2, None]
    rest = LeasedEntries([b"a", b"bb"], [2, 5])
    assert (list(rest.slots), rest.slot(1), rest.entry(1)) == ([2, 5], 5, b"bb")
    assert [rest.position(slot) for slot in (1, 2, 5)] == [None, 0, 1]
    assert (rest.size_at(2), rest.size_at(5)) == (1, 2)
    with pytest.raises(KeyError):
        rest.size_at(1)


@pytest.mark.parametrize("kind", [b"1", b"2", b"5", b"6", b"7", b"8"])
def test_a_marker_that_ends_with_its_message_is_listed_with_its_slot(kind: bytes) -> None:
    stored = LeasedEntries([entry_of(1), entry_of(2, kind)], [3, 7])
    assert stored.bound() == (((7, b"key"),) if kind in (b"2", b"6", b"8") else ())


def test_dropped_messages_leave_their_slots_empty() -> None:
    leased = leased_of(4)
    messages = leased.all()
    second = messages[1]
    leased.drop({1, 3})
    assert [message.slot for message in messages] == [2, 4], "the list that users hold changes"
    assert (list(leased.stored.slots), len(leased)) == ([2, 4], 2)
    assert leased.at(2) is second
    assert leased.owns(second)
    with pytest.raises(KeyError):
        leased.at(3)


def test_dropped_payloads_leave_ids_keys_and_counts() -> None:
    leased = LeasedMessages(LeasedEntries([entry_of(7, payload=b"x" * 100)], None, 2))
    looked_at = leased[0]
    leased.drop_payloads()
    for message in (looked_at, leased[0], Message(leased.stored.entry(0), 1, 2)):
        found = (message.id, message.deduplication_key, message.delivery_count, message.payload)
        assert found == ("id-7", "key", 3, b"")
    assert leased.stored.size < 100


def test_number_slots_and_sizes_cost_no_objects() -> None:
    leased = leased_of(1000)
    assert (len(leased), bool(leased), leased.stored.slots[-1], leased.stored.size > 0) == (1000, True, 1000, True)
    assert leased._made == []


def test_objects_are_made_once_with_the_collector_off() -> None:
    seen: list[bool] = []

    class Watched(Message):
        """Notes whether the collector was on when it was made."""

        __slots__ = ()

        def __init__(self, entry: bytes, slot: int = 0, deliveries_begun: int = 0) -> None:
            super().__init__(entry, slot, deliveries_begun)
            seen.append(gc.isenabled())

    leased = leased_of(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluicegate.leased_messages.Message", Watched)
        first = list(leased)
    assert seen == [False] * 3
    assert gc.isenabled()
    assert all(one is other for one, other in zip(first, leased.all(), strict=True))
    assert [(message.slot, message.id, message.delivery_count) for message in first] == [
        (1, "id-0", 3),
        (2, "id-1", 3),
        (3, "id-2", 3),
    ]


def test_threads_get_the_same_objects() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            leased = leased_of(200)
            begin = threading.Barrier(4)
            found: list[list[Message]] = []

            def look(leased: LeasedMessages = leased, begin: threading.Barrier = begin) -> None:
                begin.wait(30)
                found.append(leased.all())  # noqa: B023  (joined below)

            threads = [threading.Thread(target=look) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert len(found) == 4
            assert len({id(messages) for messages in found}) == 1
    finally:
        sys.setswitchinterval(interval)


def test_a_message_that_equals_another_is_not_that_message() -> None:
    leased = leased_of(2)
    assert leased.owns(leased[1])
    assert not leased.owns(Message(leased[1].entry, 2, 2))
    assert not leased.owns(Message(leased[1].entry, 9, 2))


def test_some_slots_of_a_lease_keep_their_order_and_counts() -> None:
    stored = LeasedEntries([b"a", b"b", b"c"], [2, 4, 6], 3)
    some = stored.only([4, 6])
    assert (list(some.slots), some.entries(), some.begun) == ([4, 6], [b"b", b"c"], 3)
    with pytest.raises(KeyError):
        stored.only([2, 3])


def test_deliveries_are_counted_from_the_entry_and_the_lease() -> None:
    fresh, again = entry_of(1).replace(b"a40010", b"a40000"), entry_of(2)
    assert [LeasedEntries([fresh, again], None, 1).delivery_count(at) for at in (0, 1)] == [1, 2]
    assert LeasedEntries([fresh, again], None, 1).redelivered == 1
    assert LeasedEntries([fresh, again], None, 2).redelivered == 2, "a takeover is a delivery"
