"""An examination looks for what does not agree in a queue, and for what its user may not do; it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys, text_of

__all__ = [
    "EXAMINED",
    "Examination",
    "ExaminedLeases",
    "Looked",
    "examine_call",
    "examine_operation",
    "probe_rights_call",
]

EXAMINED = (
    *("pending", "returned", "delayed", "set_aside", "leases", "dead", "dead_records", "counters", "wakeup"),
    *("completed", "failed"),
)
"""The keys whose types and contents are looked at, by their names in `QueueKeys`."""
_SAMPLE = 25
_RECENT_MS = 3_600_000
_MAX_LEASES = 1_000
_MAX_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Looked:
    """Stored values that were looked at.

    Attributes:
        count: how many.
        unknown: how many of them are no messages of this version.
        size: their size in bytes.
    """

    count: int = 0
    unknown: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class ExaminedLeases:
    """The leases of a queue, read in one step.

    Attributes:
        held: messages in them.
        gauge: messages in flight as the queue counts them.
        damaged: leases that no consumer can hold.
        miscounted: leases that count their messages wrong.
        without_hash: leases that have a deadline and nothing else.
        without_deadline: leases that would never expire.
    """

    held: int
    gauge: int
    damaged: int = 0
    miscounted: int = 0
    without_hash: int = 0
    without_deadline: int = 0


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found in a queue, or a group of a stream.

    Attributes:
        lengths: of each key in `EXAMINED`; -1 for one that holds another type.
        pending, returned, delayed: samples of the messages in these states.
        dead: dead letters that were looked at.
        dead_without_record: how many of these have no record.
        dead_recently: dead letters that were buried in the last hour.
        wrong_totals: names of totals that are no numbers.
        is_behind: whether the sequence is behind messages that wait.
        expired: expired leases.
        expired_seconds: how long ago the first of them expired.
        names: leases, those with the earliest deadlines first, 1,001 at most.
        leases: what was found in them; None if there are more, or if they change too quickly.
    """

    lengths: Sequence[int]
    pending: Looked
    returned: Looked
    delayed: Looked
    dead: int
    dead_without_record: int
    dead_recently: int
    wrong_totals: Sequence[str]
    is_behind: bool
    expired: int
    expired_seconds: float
    names: Sequence[bytes]
    leases: ExaminedLeases | None

    def length(self, key: str) -> int:
        """Return the length of a key in `EXAMINED`, -1 if it holds another type."""
        return self.lengths[EXAMINED.index(key)]


def examine_call(
    keys: QueueKeys,
    names: Sequence[bytes] = (),
    *,
    sample: int = _SAMPLE,
    recent_ms: int = _RECENT_MS,
    max_leases: int = _MAX_LEASES + 1,
) -> Call[Examination]:
    """Prepare the call that examines a queue, and the leases in `names`."""
    return Call(
        scripts.load("examine"),
        (*(getattr(keys, key) for key in EXAMINED), *(keys.lease(name) for name in names)),
        (keys.group.encode(), sample, recent_ms, max_leases, *names),
        _decode,
    )


def examine_operation(keys: QueueKeys, more_names: Sequence[bytes] = ()) -> Operation[Examination]:
    """Examine a queue in one call, and where it has leases, in one more for each time that they change meanwhile.

    Args:
        keys: the keys of the queue.
        more_names: leases whose hashes were seen, with or without a deadline.
    """
    found: Examination = yield examine_call(keys)
    for _ in range(_MAX_LOOKS):
        names = list(dict.fromkeys([*found.names, *more_names]))
        if not names:
            return found
        if len(names) > _MAX_LEASES:
            break
        found = yield examine_call(keys, names)
        if set(found.names) <= set(names):
            return found
    return replace(found, leases=None)


def probe_rights_call(spare: bytes, commands: Sequence[Sequence[str]]) -> Call[list[str]]:
    """Prepare the call that tries commands without an effect; see the script for the stand-ins of the spare key.

    Args:
        spare: a key that nothing else uses.
        commands: the words of each; the answer has the error of each, "" for none, "?" if it could not be tried.
    """
    words = [word for command in commands for word in (str(len(command)), *command)]
    return Call(scripts.load("probe_rights"), (spare,), [word.encode() for word in words], _decode_errors)


def _decode_errors(reply: list[bytes]) -> list[str]:
    return [text_of(error) for error in reply]


def _decode(reply: list[Any]) -> Examination:
    lengths, looked, dead, wrong_totals, is_behind, expired, names, leases = reply
    pending, returned, delayed = (Looked(*each) for each in looked)
    return Examination(
        lengths=lengths,
        pending=pending,
        returned=returned,
        delayed=delayed,
        dead=dead[0],
        dead_without_record=dead[1],
        dead_recently=dead[2],
        wrong_totals=[text_of(name) for name in wrong_totals],
        is_behind=bool(is_behind),
        expired=expired[0],
        expired_seconds=expired[1] / 1000,
        names=names,
        leases=ExaminedLeases(*leases) if leases else None,
    )
