"""At most once: messages are acked before they are handled, and how that ended is recorded afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import QueueRules

__all__ = ["Conclusion", "conclude", "conclusion_call"]

_MAX_MESSAGES = 1000
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How the messages of one lease ended.

    Attributes:
        name: of the lease.
        token: under which they were acked.
        keep_seconds: life of the record of the ack, where it has to be made.
        recorded: whether the ack left one.
        asked_for: whether a retry may ask for that record, so that it must stay.
        done: entries of the messages that were handled.
        failed: of those that were not.
        why: "US error type US error text" of these.
    """

    name: bytes
    token: bytes
    keep_seconds: float
    recorded: bool
    asked_for: bool
    done: Sequence[bytes] = field(default=(), repr=False)
    failed: Sequence[bytes] = field(default=(), repr=False)
    why: bytes = field(default=b"\x1f\x1f", repr=False)


def conclude(keys: QueueKeys, rules: QueueRules, conclusion: Conclusion) -> Operation[None]:
    """Record all of it, 1,000 messages or 4 MB a call."""
    parts = list(_parts(conclusion))
    for number, (done, entries) in enumerate(parts, 1):
        last = (2 if conclusion.asked_for else 1) if number == len(parts) else 0
        yield conclusion_call(keys, rules, conclusion, number, last, done, entries)


def conclusion_call(
    keys: QueueKeys,
    rules: QueueRules,
    conclusion: Conclusion,
    part: int,
    last: int,
    done: int,
    entries: Sequence[bytes],
) -> Call[bool]:
    """Record one part: `done` of the entries are done, the others failed."""
    caps = (-1 if cap is None else cap for cap in (rules.completed_cap, rules.failed_cap))
    return Call(
        scripts.load("conclude"),
        (keys.closed(conclusion.name), keys.leases, keys.counters, keys.completed, keys.failed),
        (
            conclusion.token,
            math.ceil(conclusion.keep_seconds * 1000),
            int(conclusion.recorded),
            part,
            last,
            *caps,
            conclusion.why,
            done,
            *entries,
        ),
        _recorded,
    )


def _parts(conclusion: Conclusion) -> Iterator[tuple[int, list[bytes]]]:
    """How many of a part are done, and its entries; always one part at least, which ends the record of the ack."""
    done, size = 0, 0
    entries: list[bytes] = []
    for at, entry in enumerate((*conclusion.done, *conclusion.failed)):
        if entries and (len(entries) == _MAX_MESSAGES or size + len(entry) > _MAX_BYTES):
            yield done, entries
            done, size, entries = 0, 0, []
        entries.append(entry)
        size += len(entry)
        done += at < len(conclusion.done)
    yield done, entries


def _recorded(reply: list[int]) -> bool:
    return bool(reply[0])
