"""The rules about what a queue, a stream or a group holds: its state, its damage, its leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluicegate.core.transitions.examine import EXAMINED, Examination, ExaminedLeases
from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.doctor.finding import Finding, could_not_look, error, note, ok, warning
from sluicegate.doctor.units import count, duration

__all__ = ["check_damage", "check_state"]

_LATE_SECONDS = 60.0
_REPAIR = "run repair on it: it mends this beside publishers and consumers"
_OTHER_PROGRAM = "find the program that writes under the prefix sluicegate:, and keep it away by an ACL rule"


def check_state(where: str, first: Snapshot, last: Snapshot, found: Examination | None) -> Iterator[Finding]:
    """Yield what a queue or a group waits for.

    Args:
        where: its name, in words.
        first: how it was.
        last: how it is a little later.
        found: what was found in it; None if that could not be read.
    """
    depth = last.depth
    if depth.paused:
        rule = warning if depth.ready else note
        yield rule("paused", where, f"it is paused, with {count(depth.ready, 'message')} ready", "resume it")
    if found is not None and found.expired:
        late = found.expired_seconds > _LATE_SECONDS and not depth.paused
        yield (warning if late else note)(
            "expired",
            where,
            f"{count(found.expired, 'lease')} with {count(depth.expired, 'message')} expired, the first "
            f"{duration(found.expired_seconds)} ago, and no claim has taken the messages back",
            "start a consumer: its first claim takes them back; a drain that died there may need a retry",
        )
    if depth.dead:
        grew = last.depth.dead - first.depth.dead
        lately = f", {count(found.dead_recently, 'of them')} in the last hour" if found is not None else ""
        recent = grew > 0 or (found is not None and found.dead_recently > 0)
        yield (warning if recent else note)(
            "dead",
            where,
            f"{count(depth.dead, 'dead letter')}{lately.replace('1 of them', 'one of them')}",
            "look at them (dead list), mend the cause, then redrive or purge them; they are kept without a limit",
        )
    if last.stats.foreign:
        yield warning(
            "foreign",
            where,
            f"{count(last.stats.foreign, 'value')} of another program were found among its messages and buried",
            _OTHER_PROGRAM,
        )
    if depth.set_aside:
        yield warning(
            "set_aside",
            where,
            f"{count(depth.set_aside, 'message')} of a newer version are set aside: no consumer can read them",
            "upgrade the consumers, then run repair on it",
        )


def check_damage(where: str, found: Examination, *, in_stream: bool) -> Iterator[Finding]:
    """Yield which stored values are not as the library writes them.

    Args:
        where: the name of the queue, in words.
        found: what was found in it.
        in_stream: whether it is a group of a stream.
    """
    damage = [*_mistyped(where, found, in_stream), *_unreadable(where, found), *_counts(where, found)]
    yield from damage
    if found.leases is None:
        yield could_not_look("stored", where, "its leases are more than 1,000, or change too quickly", _REPAIR)
    else:
        leases = list(_leases(where, found.leases))
        yield from leases
        damage += leases
    if not damage:
        looked = found.pending.count + found.returned.count + found.delayed.count + found.dead
        yield ok("stored", where, f"keys, counts and {count(looked, 'stored message')} looked at are in order")


def _mistyped(where: str, found: Examination, in_stream: bool) -> Iterator[Finding]:
    names = [name for name, length in zip(EXAMINED, found.lengths, strict=True) if length < 0]
    if names:
        shown = ["the stream" if in_stream and name == "pending" else name for name in names]
        yield error(
            "stored",
            where,
            f"{', '.join(shown)} {'holds' if len(names) == 1 else 'hold'} a value of another type: calls that need "
            "it raise WrongKeyTypeError",
            f"move or delete it (docs/operations.md lists the keys), then run repair; {_OTHER_PROGRAM}",
        )


def _unreadable(where: str, found: Examination) -> Iterator[Finding]:
    for state in ("pending", "returned", "delayed"):
        looked = getattr(found, state)
        if looked.unknown:
            yield warning(
                "stored",
                where,
                f"{looked.unknown} of {count(looked.count, 'value')} looked at in {state} are no messages of this "
                "version: a claim buries them, or sets them aside if a newer version wrote them",
                f"upgrade the consumers if publishers are newer; else {_OTHER_PROGRAM}",
            )


def _counts(where: str, found: Examination) -> Iterator[Finding]:
    lost = found.dead_without_record
    more_records = found.length("dead_records") - found.length("dead")
    if lost or (more_records > 0 and found.length("dead") >= 0):
        what = (
            f"{lost} of {count(found.dead, 'dead letter')} looked at have no record"
            if lost
            else (f"{count(more_records, 'record')} belong to no dead letter")
        )
        yield warning("stored", where, what, _REPAIR)
    if found.wrong_totals:
        names = ", ".join(found.wrong_totals[:5])
        yield warning("stored", where, f"totals that are no numbers: {names}; they count from 0", _REPAIR)
    if found.is_behind:
        yield error(
            "stored",
            where,
            "the total of published messages is behind messages that wait: new messages are claimed before them",
            _REPAIR,
        )


def _leases(where: str, leases: ExaminedLeases) -> Iterator[Finding]:
    wrong: Sequence[tuple[int, str]] = (
        (leases.damaged, "damaged, so no consumer can settle"),
        (leases.without_hash, "without content"),
        (leases.without_deadline, "without a deadline, so it never expires"),
        (leases.miscounted, "with a wrong count of messages"),
    )
    for number, what in wrong:
        if number:
            yield error("stored", where, f"{count(number, 'lease')} {what}", _REPAIR)
    if not any(number for number, _ in wrong) and leases.held != leases.gauge:
        yield error(
            "stored",
            where,
            f"{count(leases.gauge, 'message')} in flight by its count, {leases.held:,} in its leases: another program "
            "deleted keys, or the server evicted them",
            _REPAIR,
        )
