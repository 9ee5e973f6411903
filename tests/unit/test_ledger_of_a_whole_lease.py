"""A ledger that keeps nothing per slot while all slots are alike answers as one that does."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.core.ledger import LeaseCounts, Ledger, Verb, VerdictGroup, format_ranges, slots_of
from sluicegate.errors import AlreadySettledError

VERBS = st.sampled_from(["ack", "nack", "release", "bury"])
SOME = st.one_of(st.just("rest"), st.just("all"), st.lists(st.integers(1, 7), max_size=6))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("group"), VERBS, SOME),
        st.tuples(st.just("confirm"), st.booleans(), st.booleans()),
        st.tuples(st.just("copy")),
    ),
    max_size=8,
)


class Plain:
    """Keeps everything per slot."""

    def __init__(self, slots: list[int]) -> None:
        self.slots = slots
        self.verbs: dict[int, Verb] = {}
        self.confirmed: dict[int, str] = {}

    def group(self, verb: Verb, slots: list[int]) -> str | None:
        if any(slot not in self.slots or self.verbs.get(slot, verb) != verb for slot in slots):
            raise AlreadySettledError("refused")
        self.verbs |= dict.fromkeys(slots, verb)
        return format_ranges(sorted({slot for slot in slots if slot not in self.confirmed})) or None

    def rest(self, verb: Verb) -> list[int]:
        return [slot for slot in self.slots if self.verbs.get(slot, verb) == verb and slot not in self.confirmed]

    def confirm(self, sent: list[int], lost: list[int], buried: list[int]) -> list[int]:
        for slot in sent:
            self.confirmed.setdefault(slot, "lost" if slot in lost else "bury" if slot in buried else self.verbs[slot])
        return [slot for slot in sent if slot not in lost]

    def counts(self) -> LeaseCounts:
        ends = list(self.confirmed.values())
        return LeaseCounts(ends.count("ack"), ends.count("nack") + ends.count("release"), ends.count("bury"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([range(1, 7), [1, 2, 4, 6]]), STEPS)
def test_it_answers_as_one_that_keeps_everything_per_slot(slots: Any, steps: list[tuple[Any, ...]]) -> None:
    ledger, plain = Ledger(slots), Plain(list(slots))
    sent: list[int] = []
    for step in steps:
        match step:
            case ("group", verb, what):
                named = plain.rest(verb) if what == "rest" else plain.slots if what == "all" else what
                if what == "rest":
                    assert list(ledger.rest(verb)) == named
                given_slots = ledger.rest(verb) if what == "rest" else named
                try:
                    expected = plain.group(verb, named)
                except AlreadySettledError:
                    expected = "refused"
                try:
                    group = ledger.group(verb, given_slots)
                except AlreadySettledError:
                    assert expected == "refused"
                else:
                    assert (None if group is None else group.slots) == expected
                    sent = list(slots_of([group])) if group else []
            case ("confirm", loses, buries):
                lost, buried = (sent[:1] if loses else []), (sent[1:2] if buries else [])
                assert list(ledger.confirm(sent, lost, buried)) == plain.confirm(sent, lost, buried)
                assert ledger.confirmed(sent)
            case _:
                before = ledger.copy()
                for verb in ("ack", "nack"):
                    try:
                        ledger.group(verb, plain.slots)
                        ledger.confirm(plain.slots, [])
                    except (AlreadySettledError, KeyError):
                        continue
                ledger = before
        assert ledger.open == [slot for slot in plain.slots if slot not in plain.verbs]
        assert ledger.counts == plain.counts()


def test_a_whole_verdict_keeps_nothing_per_slot() -> None:
    ledger = Ledger(range(1, 10_001))
    group = ledger.group("ack", ledger.rest("ack"), named=False)
    assert group == VerdictGroup("ack", "1-10000", named=False)
    sent = slots_of([group])
    assert sent == range(1, 10_001)
    assert ledger.confirm(sent, []) == sent
    assert ledger.confirm(sent, []) == sent, "a repeat is harmless"
    assert (ledger.counts, ledger.open, ledger.rest("ack")) == (LeaseCounts(acked=10_000), [], ())
    assert (ledger._open, ledger._verbs, ledger._confirmed) == ({}, {}, set())


def test_slots_of_several_verdicts_are_in_their_order() -> None:
    groups = [VerdictGroup("ack", "1-2,5"), VerdictGroup("nack", "3-4")]
    assert list(slots_of(groups)) == [1, 2, 5, 3, 4]
    assert list(slots_of([VerdictGroup("ack", "7")])) == [7]
    assert list(slots_of([])) == []
