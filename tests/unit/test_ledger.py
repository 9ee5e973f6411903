"""Slot ranges, and one verdict per slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.core.ledger import LeaseCounts, Ledger, format_ranges, parse_ranges
from sluicegate.errors import AlreadySettledError

SLOTS = st.sets(st.integers(1, 60)).map(sorted)


@given(SLOTS)
def test_ranges_round_trip(slots: list[int]) -> None:
    text = format_ranges(slots)
    assert parse_ranges(text) == slots
    assert len(text.split(",")) == max(1, sum(slot - 1 not in slots for slot in slots)), "neighbours share a range"


@pytest.mark.parametrize(
    ("slots", "text"), [([], ""), ([7], "7"), ([1, 2], "1-2"), ([1, 3, 4, 5, 9], "1,3-5,9"), (range(1, 1001), "1-1000")]
)
def test_ranges(slots: list[int], text: str) -> None:
    assert format_ranges(slots) == text


def test_a_whole_lease_is_one_range() -> None:
    ledger = Ledger(range(1, 1001))
    group = ledger.group("ack", ledger.rest("ack"))
    assert group is not None
    assert (group.verb, group.slots) == ("ack", "1-1000")
    assert ledger.open == []


def test_a_second_verdict_is_refused_and_changes_nothing() -> None:
    ledger = Ledger([1, 2, 3])
    ledger.group("ack", [2])
    with pytest.raises(AlreadySettledError, match="slot 2 already has the verdict 'ack'"):
        ledger.group("nack", [1, 2])
    assert ledger.open == [1, 3]
    with pytest.raises(AlreadySettledError, match="slot 4 does not belong to this lease"):
        ledger.group("ack", [1, 4])
    assert ledger.open == [1, 3]


def test_a_verdict_is_sent_again_until_it_is_confirmed() -> None:
    ledger = Ledger([1, 2, 3])
    ledger.group("ack", [1, 2])
    again = ledger.group("ack", [2, 1, 2])
    assert again is not None
    assert again.slots == "1-2"
    ledger.confirm([1, 2], lost=[])
    assert ledger.group("ack", [1, 2]) is None
    more = ledger.group("ack", [1, 2, 3])
    assert more is not None
    assert more.slots == "3"


def test_the_rest_is_what_has_no_confirmed_verdict_of_this_kind() -> None:
    ledger = Ledger([1, 2, 3, 4])
    ledger.group("ack", [1])
    ledger.confirm([1], lost=[])
    ledger.group("ack", [2])
    ledger.group("nack", [3])
    assert ledger.rest("ack") == [2, 4], "slot 2 was sent and never confirmed"
    assert ledger.rest("nack") == [3, 4]
    assert ledger.rest("release") == [4]


def test_counts_are_confirmed_verdicts_each_once() -> None:
    ledger = Ledger([1, 2, 3, 4, 5])
    ledger.group("ack", [1, 2])
    assert ledger.counts == LeaseCounts()
    assert ledger.confirm([1, 2], lost=[2]) == (1,)
    ledger.confirm([1, 2], lost=[2])
    ledger.group("nack", [3])
    ledger.group("release", [4])
    ledger.group("bury", [5])
    ledger.confirm([3, 4, 5], lost=[])
    assert ledger.counts == LeaseCounts(acked=1, returned=2, buried=1)


def test_a_nack_that_buried_counts_as_buried() -> None:
    ledger = Ledger([1, 2])
    ledger.group("nack", [1, 2])
    ledger.confirm([1, 2], lost=[], buried=[2])
    assert ledger.counts == LeaseCounts(returned=1, buried=1)


def test_a_copy_is_apart() -> None:
    ledger = Ledger([1, 2])
    before = ledger.copy()
    ledger.group("ack", [1])
    ledger.confirm([1], lost=[])
    assert (before.open, before.counts) == ([1, 2], LeaseCounts())
    assert (ledger.open, ledger.counts) == ([2], LeaseCounts(acked=1))


def test_a_discarded_message_counts_as_done() -> None:
    ledger = Ledger([1, 2])
    assert ledger.group("discard", [1]) is not None
    with pytest.raises(AlreadySettledError, match="'discard'"):
        ledger.group("ack", [1])
    ledger.group("ack", [2])
    ledger.confirm([1, 2], [])
    assert ledger.counts == LeaseCounts(acked=2)
