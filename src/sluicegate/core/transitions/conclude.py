"""A conclusion records how messages ended that were acked before their handler ran (at most once)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from sluicegate.core import scripts
from sluicegate.core.bounds import NO_WHY
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.rules import QueueRules

__all__ = ["Conclusion", "conclude_call", "conclude_operation"]

_MAX_MESSAGES = 1000
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A conclusion says how the messages of one lease ended.

    Attributes:
        name: the lease's id as it stands in keys.
        token: the token under which they were acked.
        keep_seconds: life of the record of the ack, where it has to be made.
        recorded: whether the ack left a record.
        asked_for: whether a retry may ask for that record, so that it must stay.
        done: entries of the messages that were handled.
        failed: entries of the messages that were not.
        why: "US error type US error text" of the failed ones.
    """

    name: bytes
    token: bytes
    keep_seconds: float
    recorded: bool
    asked_for: bool
    done: Sequence[bytes] = field(default=(), repr=False)
    failed: Sequence[bytes] = field(default=(), repr=False)
    why: bytes = field(default=NO_WHY, repr=False)


def conclude_call(
    keys: QueueKeys,
    rules: QueueRules,
    conclusion: Conclusion,
    part: int,
    last: int,
    done: int,
    entries: Sequence[bytes],
) -> Call[bool]:
    """Prepare the call that records one part; answers whether it was recorded now.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue.
        conclusion: how all messages ended.
        part: the number of this part, from 1.
        last: 0 when parts follow; 1 when the record of the ack can go; 2 when it must stay.
        done: how many of the entries are done. The others failed.
        entries: the messages of this part, the done ones first.
    """
    return Call(
        scripts.load("conclude"),
        (
            keys.closed(conclusion.name),
            keys.leases,
            keys.counters,
            keys.completed,
            keys.failed,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
        ),
        (
            conclusion.token,
            ceil(conclusion.keep_seconds * 1000),
            int(conclusion.recorded),
            part,
            last,
            -1 if rules.completed_cap is None else rules.completed_cap,
            -1 if rules.failed_cap is None else rules.failed_cap,
            conclusion.why,
            done,
            *entries,
        ),
        _decode,
    )


def conclude_operation(keys: QueueKeys, rules: QueueRules, conclusion: Conclusion) -> Operation[None]:
    """Record all of it, up to 1,000 messages or 4 MB per call."""
    parts = list(_parts(conclusion))
    for number, (done, entries) in enumerate(parts, 1):
        last = (2 if conclusion.asked_for else 1) if number == len(parts) else 0
        yield conclude_call(keys, rules, conclusion, number, last, done, entries)


def _decode(reply: list[int]) -> bool:
    return bool(reply[0])


def _parts(conclusion: Conclusion) -> Iterator[tuple[int, list[bytes]]]:
    """Split into parts: how many of a part are done, and its entries.

    There is always at least one part, because the last one ends the record of the ack.
    """
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
