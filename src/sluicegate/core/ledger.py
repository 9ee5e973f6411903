"""The verdicts of one lease: which slots have one, which are still open, and what a settle's answer means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluicegate.core.ranges import format_ranges
from sluicegate.core.values import Verb, VerdictGroup
from sluicegate.errors import AlreadySettledError

__all__ = ["LeaseCounts", "Ledger"]


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """What became of a lease's messages.

    Attributes:
        acked: done, or discarded: gone for good either way.
        returned: nacked or released, claimable again.
        buried: dead.
    """

    acked: int = 0
    returned: int = 0
    buried: int = 0


class Ledger:
    """One verdict per slot: a second, different one is refused; the same one may be sent again until it is
    confirmed.
    """

    __slots__ = ("_confirmed", "_counts", "_open", "_verbs")

    def __init__(self, slots: Iterable[int]) -> None:
        self._open = dict.fromkeys(slots)  # ordered: a whole lease is one range
        self._verbs: dict[int, Verb] = {}
        self._confirmed: set[int] = set()
        self._counts = {"ack": 0, "discard": 0, "nack": 0, "release": 0, "bury": 0}

    @property
    def open(self) -> list[int]:
        """Slots without a verdict, in claim order."""
        return list(self._open)

    def rest(self, verb: Verb) -> list[int]:
        """Slots that a verdict for all the rest means: those without one, or with this one unconfirmed."""
        unconfirmed = [slot for slot, given in self._verbs.items() if given == verb and slot not in self._confirmed]
        return sorted((*self._open, *unconfirmed)) if unconfirmed else self.open

    @property
    def counts(self) -> LeaseCounts:
        """Confirmed verdicts so far."""
        counts = self._counts
        return LeaseCounts(counts["ack"] + counts["discard"], counts["nack"] + counts["release"], counts["bury"])

    def confirmed(self, slots: Iterable[int]) -> bool:
        """Whether Redis has answered to the verdicts of these slots."""
        return self._confirmed.issuperset(slots)

    def group(
        self,
        verb: Verb,
        slots: Sequence[int],
        *,
        delay_seconds: float = 0,
        named: bool = True,
        why: bytes = b"\x1f\x1f",
    ) -> VerdictGroup | None:
        """Note a verdict and give the group to send; None when all of it is already confirmed.

        Raises:
            AlreadySettledError: a slot has another verdict or does not belong to this lease.
        """
        if slots and not self._verbs and slots == self.open:
            self._verbs = dict.fromkeys(slots, verb)
            self._open.clear()
            return VerdictGroup(verb, format_ranges(slots), delay_seconds, named, why)
        for slot in slots:
            if slot not in self._open and self._verbs.get(slot) != verb:
                earlier = self._verbs.get(slot)
                raise AlreadySettledError(
                    f"message in slot {slot} already has the verdict {earlier!r}"
                    if earlier
                    else f"slot {slot} is not of this lease"
                )
        wanted = sorted({slot for slot in slots if slot not in self._confirmed})
        for slot in wanted:
            self._open.pop(slot, None)
            self._verbs[slot] = verb
        return VerdictGroup(verb, format_ranges(wanted), delay_seconds, named, why) if wanted else None

    def copy(self) -> Ledger:
        """A snapshot, to go back to when verdicts that belong together are refused."""
        other = Ledger(self._open)
        other._verbs = dict(self._verbs)
        other._confirmed = set(self._confirmed)
        other._counts = dict(self._counts)
        return other

    def confirm(self, sent: Sequence[int], lost: Sequence[int], buried: Sequence[int] = ()) -> tuple[int, ...]:
        """Note that what was sent took effect but `lost`; returns the slots that did. A nack may have buried."""
        missing, dead = set(lost), set(buried)
        settled = tuple(slot for slot in sent if slot not in missing) if missing else tuple(sent)
        for slot in dict.fromkeys(settled):
            if slot not in self._confirmed:
                self._counts["bury" if slot in dead else self._verbs[slot]] += 1
        self._confirmed.update(sent)
        return settled
