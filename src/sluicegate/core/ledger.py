"""The verdicts of one lease: which slots have one, which are still open, and which Redis has confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

from sluicegate.core.bounds import NO_WHY
from sluicegate.errors import AlreadySettledError

__all__ = [
    "LeaseCounts",
    "Ledger",
    "Verb",
    "VerdictGroup",
    "format_ranges",
    "merge_verdicts",
    "parse_ranges",
    "slots_of",
]

Verb = Literal["ack", "discard", "nack", "release", "bury"]


@dataclass(frozen=True, slots=True)
class VerdictGroup:
    """One verdict for some slots.

    Attributes:
        verb: ack, discard, nack, release or bury.
        slots: as ranges, such as "1-3,5".
        delay_seconds: how long a nacked message cannot be claimed.
        named: whether the verdict names these messages instead of a whole batch; then a nack may bury them at once
            when they have reached the queue's largest number of deliveries.
        why: "reason US error type US error text".
    """

    verb: Verb
    slots: str
    delay_seconds: float = 0
    named: bool = True
    why: bytes = field(default=NO_WHY, repr=False)


def merge_verdicts(groups: Sequence[VerdictGroup]) -> list[VerdictGroup]:
    """Merge verdicts that differ in nothing but their slots, in the order of their first slot given.

    A slot goes by the first verdict that names it.
    """
    if len(groups) < 2:
        return list(groups)
    alike: dict[tuple[Verb, float, bool, bytes], list[VerdictGroup]] = {}
    slots: dict[tuple[Verb, float, bool, bytes], list[int]] = {}
    seen: set[int] = set()
    for group in groups:
        fresh = [slot for slot in parse_ranges(group.slots) if slot not in seen]
        if fresh:
            seen.update(fresh)
            kind = group.verb, group.delay_seconds, group.named, group.why
            alike.setdefault(kind, []).append(group)
            slots.setdefault(kind, []).extend(fresh)
    return [_merged(alike[kind], members) for kind, members in slots.items()]


def _merged(groups: Sequence[VerdictGroup], slots: list[int]) -> VerdictGroup:
    """Return groups that differ in nothing but their slots as one; a group that stays as it is costs no copy."""
    text = format_ranges(sorted(slots))
    return groups[0] if groups[0].slots == text else replace(groups[0], slots=text)


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """The confirmed verdicts of a lease.

    Attributes:
        acked: messages acked or discarded.
        returned: messages nacked or released, which are claimable again.
        buried: messages that are dead letters now.
    """

    acked: int = 0
    returned: int = 0
    buried: int = 0


class Ledger:
    """Keeps one verdict per slot.

    A second, different verdict is refused. The same verdict may be sent again until it is confirmed.

    While all slots are alike, without a verdict or with the same one, nothing is kept per slot.

    Args:
        slots: of the lease, ascending.
    """

    __slots__ = ("_confirmed", "_counts", "_is_confirmed", "_open", "_verbs", "_verdict", "_whole")

    def __init__(self, slots: Iterable[int]) -> None:
        # All slots, while they are alike: their verdict, and whether it is confirmed.
        self._whole: Sequence[int] | None = slots if isinstance(slots, range) else list(slots)
        self._verdict: Verb | None = None
        self._is_confirmed = False
        # After that, what holds for each.
        self._open: dict[int, None] = {}  # ordered: a whole lease is one range
        self._verbs: dict[int, Verb] = {}
        self._confirmed: set[int] = set()
        self._counts = {"ack": 0, "discard": 0, "nack": 0, "release": 0, "bury": 0}

    @property
    def open(self) -> list[int]:
        """Slots without a verdict, in claim order."""
        if self._whole is not None:
            return [] if self._verdict else list(self._whole)
        return list(self._open)

    def rest(self, verb: Verb) -> Sequence[int]:
        """Slots that a verdict for all remaining messages covers: without a verdict, or with this one unconfirmed."""
        if self._whole is not None:
            is_covered = self._verdict is None or (self._verdict == verb and not self._is_confirmed)
            return self._whole if is_covered else ()
        unconfirmed = [slot for slot, given in self._verbs.items() if given == verb and slot not in self._confirmed]
        return sorted((*self._open, *unconfirmed)) if unconfirmed else self.open

    @property
    def counts(self) -> LeaseCounts:
        """Count the verdicts confirmed so far."""
        counts = self._counts
        return LeaseCounts(counts["ack"] + counts["discard"], counts["nack"] + counts["release"], counts["bury"])

    def confirmed(self, slots: Iterable[int]) -> bool:
        """Return whether Redis has confirmed the verdicts of these slots."""
        if self._whole is not None and self._is_confirmed:
            return set(self._whole).issuperset(slots)
        return self._confirmed.issuperset(slots)

    def group(
        self,
        verb: Verb,
        slots: Sequence[int],
        *,
        delay_seconds: float = 0,
        named: bool = True,
        why: bytes = NO_WHY,
    ) -> VerdictGroup | None:
        """Record a verdict and make the group to send; None when all of it is already confirmed.

        Raises:
            AlreadySettledError: a slot has another verdict or does not belong to this lease.
        """
        if not slots:
            return None
        if self._covers(slots) and self._verdict in (None, verb):
            if self._is_confirmed:
                return None
            self._verdict = verb
            return VerdictGroup(verb, format_ranges(slots), delay_seconds, named, why)
        self._spread()
        for slot in slots:
            if slot not in self._open and self._verbs.get(slot) != verb:
                earlier = self._verbs.get(slot)
                raise AlreadySettledError(
                    f"message in slot {slot} already has the verdict {earlier!r}"
                    if earlier
                    else f"slot {slot} does not belong to this lease"
                )
        wanted = sorted({slot for slot in slots if slot not in self._confirmed})
        for slot in wanted:
            self._open.pop(slot, None)
            self._verbs[slot] = verb
        return VerdictGroup(verb, format_ranges(wanted), delay_seconds, named, why) if wanted else None

    def copy(self) -> Ledger:
        """Make a snapshot to return to when one of several verdicts is refused."""
        other = copy(self)
        other._open = dict(self._open)
        other._verbs = dict(self._verbs)
        other._confirmed = set(self._confirmed)
        other._counts = dict(self._counts)
        return other

    def confirm(self, sent: Sequence[int], lost: Sequence[int], buried: Sequence[int] = ()) -> Sequence[int]:
        """Record that all slots sent took effect, except `lost`; returns those that did. A nack may bury."""
        if self._verdict is not None and not lost and not buried and self._covers(sent):
            if not self._is_confirmed:
                self._is_confirmed = True
                self._counts[self._verdict] += len(sent)
            return sent
        self._spread()
        missing, dead = set(lost), set(buried)
        settled = tuple(slot for slot in sent if slot not in missing) if missing else tuple(sent)
        for slot in dict.fromkeys(settled):
            if slot not in self._confirmed:
                self._counts["bury" if slot in dead else self._verbs[slot]] += 1
        self._confirmed.update(sent)
        return settled

    def _covers(self, slots: Sequence[int]) -> bool:
        """Return whether these are all slots of a lease whose slots are alike."""
        whole = self._whole
        if whole is None or (isinstance(slots, range) and isinstance(whole, range)):
            return slots == whole
        return slots is whole or (len(slots) == len(whole) and list(slots) == list(whole))

    def _spread(self) -> None:
        """Keep from now on what holds for each slot."""
        whole, self._whole = self._whole, None
        if whole is None:
            return
        if self._verdict is None:
            self._open = dict.fromkeys(whole)
            return
        self._verbs = dict.fromkeys(whole, self._verdict)
        self._confirmed = set(whole) if self._is_confirmed else set()
        self._verdict, self._is_confirmed = None, False


def format_ranges(slots: Iterable[int]) -> str:
    """Format ascending slots as ranges."""
    if isinstance(slots, range) and slots.step == 1:
        return _part(slots[0], slots[-1]) if slots else ""
    parts: list[str] = []
    first = last = 0
    for slot in slots:
        if first and slot == last + 1:
            last = slot
            continue
        if first:
            parts.append(_part(first, last))
        first = last = slot
    if first:
        parts.append(_part(first, last))
    return ",".join(parts)


def parse_ranges(text: str) -> list[int]:
    """Parse ranges into their slots, in order."""
    slots: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        slots.extend(range(int(first), int(last or first) + 1))
    return slots


def slots_of(groups: Sequence[VerdictGroup]) -> Sequence[int]:
    """Return the slots of verdicts, in the order of the verdicts; those of a single range without a list."""
    texts = [group.slots for group in groups]
    if len(texts) == 1 and texts[0] and "," not in texts[0]:
        first, _, last = texts[0].partition("-")
        return range(int(first), int(last or first) + 1)
    return [slot for text in texts for slot in parse_ranges(text)]


def _part(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
