"""Which calls a settle makes of its verdicts."""

from __future__ import annotations

from collections.abc import Callable

from sluicegate.core.ledger import VerdictGroup, merge_verdicts, parse_ranges
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.settle import MAX_BYTES, MAX_SLOTS, Settled, SettleRequest, join_settled, split_settle

PLAIN = QueueRules()


def planned(
    *groups: VerdictGroup,
    rules: QueueRules = PLAIN,
    bound: tuple[tuple[int, bytes], ...] = (),
    size_of: Callable[[int], int] = lambda slot: 100,
) -> list[list[tuple[str, str]]]:
    request = SettleRequest(b"l", b"t", 60, True, groups, bound)
    return [[(group.verb, group.slots) for group in step.groups] for step in split_settle(rules, request, size_of)]


def test_verdicts_that_say_the_same_become_one_group() -> None:
    given = [VerdictGroup("nack" if slot % 2 else "ack", str(slot)) for slot in range(1, 8)]
    assert merge_verdicts(given) == [VerdictGroup("nack", "1,3,5,7"), VerdictGroup("ack", "2,4,6")]
    assert merge_verdicts([VerdictGroup("ack", str(slot)) for slot in (3, 1, 2)]) == [VerdictGroup("ack", "1-3")]


def test_what_tells_verdicts_apart_keeps_them_apart() -> None:
    given = [
        VerdictGroup("nack", "1"),
        VerdictGroup("nack", "2", delay_seconds=1),
        VerdictGroup("nack", "3", delay_seconds=2),
        VerdictGroup("nack", "4", why=b"\x1fE\x1ft"),
        VerdictGroup("nack", "5-6", named=False),
        VerdictGroup("release", "7"),
    ]
    assert merge_verdicts(given) == given


def test_a_slot_goes_by_the_first_verdict_that_names_it() -> None:
    named, rest = VerdictGroup("nack", "2", why=b"\x1fE\x1ft"), VerdictGroup("nack", "1-3", named=False)
    assert merge_verdicts([named, rest]) == [named, VerdictGroup("nack", "1,3", named=False)]


def test_a_settle_is_one_call_in_the_order_given_unless_it_is_much() -> None:
    few = [VerdictGroup("ack", "1-9000"), VerdictGroup("nack", "9001-10000")]
    assert planned(*few) == [[("ack", "1-9000"), ("nack", "9001-10000")]]
    assert planned(VerdictGroup("ack", "1-10000"), rules=QueueRules(completed_cap=0), bound=((1, b"m"),)) == [
        [("ack", "1-10000")]
    ]


def test_much_goes_in_steps_and_all_acks_in_the_last() -> None:
    groups = [VerdictGroup("ack", "1-100"), VerdictGroup("nack", "101-1700"), VerdictGroup("ack", "1701-1710")]
    assert planned(*groups, VerdictGroup("bury", "1711-2200")) == [
        [("nack", "101-1100")],
        [("nack", "1101-1700"), ("bury", "1711-2110")],
        [("bury", "2111-2200"), ("ack", "1-100"), ("ack", "1701-1710")],
    ]


def test_acks_that_read_their_messages_are_a_call_of_their_own_when_they_are_many() -> None:
    groups = [VerdictGroup("nack", "1-200"), VerdictGroup("ack", "201-1500")]
    for planned_ in (planned(*groups, rules=QueueRules(completed_cap=5)), planned(*groups, bound=((300, b"m"),))):
        assert planned_ == [[("nack", "1-200")], [("ack", "201-1500")]]
    assert len(planned(*groups)) == 1
    assert len(planned(groups[0], VerdictGroup("ack", "201-900"), rules=QueueRules(completed_cap=5))) == 1


def test_steps_are_bounded_in_bytes_of_messages_and_errors() -> None:
    half = MAX_BYTES // 2 - 2  # with what separates the parts of an error
    assert planned(VerdictGroup("nack", "1-5"), size_of=lambda slot: half) == [
        [("nack", "1-2")],
        [("nack", "3-4")],
        [("nack", "5")],
    ]
    large = VerdictGroup("bury", "1-2", why=b"x" * half)
    assert len(planned(large, size_of=lambda slot: half + 1)) == 2
    assert len(planned(VerdictGroup("nack", "1-3"), size_of=lambda slot: 3 * MAX_BYTES)) == 3


def test_every_slot_is_in_one_step() -> None:
    groups = [
        VerdictGroup(("nack", "bury", "release", "discard", "ack")[slot % 5], str(slot), delay_seconds=slot)  # type: ignore[arg-type]
        for slot in range(1, 4001)
    ]
    made = planned(*groups)
    assert sorted(slot for step in made for _, slots in step for slot in parse_ranges(slots)) == [*range(1, 4001)]
    assert max(len([verb for verb, _ in step if verb != "ack"]) for step in made) == MAX_SLOTS
    assert [index for index, step in enumerate(made) if ("ack", "4") in step] == [len(made) - 1]


def test_answers_become_one() -> None:
    assert join_settled([Settled([1], 9, [2], 3)]) == Settled([1], 9, [2], 3)
    assert join_settled([Settled([1], 9, [2], 3), Settled([5], 4, [2, 6], 1)]) == Settled([1, 5], 4, [2, 6], 4)
