"""Prepare the calls that only Spark uses: streaming queries, staged writes, and reads of a group in parts.

Each function prepares one call; see `sluicegate.core.transitions` for those of the queue itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import GroupKeys, QueueKeys

__all__ = [
    "ConsumerLease",
    "GroupPage",
    "Span",
    "WriteRecord",
    "WriteVerb",
    "acquire_consumer_call",
    "browse_group_call",
    "commit_write_call",
    "stage_rows_call",
    "staged_rows_call",
]

WriteVerb = Literal["look", "open", "finish", "drop", "cancel"]


@dataclass(frozen=True, slots=True)
class Span:
    """Names the leases of one epoch of a consumer.

    Attributes:
        epoch: the epoch in which they were claimed.
        floor: the last number before them.
        top: the last number among them.
    """

    epoch: int
    floor: int
    top: int


@dataclass(frozen=True, slots=True)
class ConsumerLease:
    """Says which reader claims for a consumer.

    Attributes:
        acquired: whether it is the reader that asked.
        epoch: the epoch of the reader that claims.
        floor: leases up to this number are settled, -1 where that is unknown.
        top: no lease above it was claimed, -1 where that is unknown.
        left: leases of older epochs that may still be open.
    """

    acquired: bool
    epoch: int
    floor: int = -1
    top: int = -1
    left: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Holds the record of a staged write.

    Attributes:
        known: whether there is one.
        waiting: stages that are still to be published; none of a known write means that it is done.
        left: these stages by name, each with its description, as far as they were asked for; all of them for `open`.
        gone: the number of a stage that could not be opened because it is gone, 0 for none.
    """

    known: bool
    waiting: int = 0
    left: dict[str, str] = field(default_factory=dict)
    gone: int = 0


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Holds a page of what a group has not read.

    Attributes:
        sequence: the sequence number of the last message on it, or of the one before an empty page.
        last_id: its id.
        ended: whether no message follows.
        count: the number of messages on it.
        messages: the messages as they would be stored, if they were asked for.
    """

    sequence: int
    last_id: str
    ended: bool = False
    count: int = 0
    messages: tuple[bytes, ...] = ()


def acquire_consumer_call(
    keys: QueueKeys,
    consumer: str,
    nonce: bytes,
    epoch: int,
    *,
    floor: int = -1,
    top: int = -1,
    life_seconds: float = 30 * 86_400,
) -> Call[ConsumerLease]:
    """Prepare the call that makes a reader the one that claims for a consumer.

    Args:
        keys: the keys of the queue.
        consumer: the name of the consumer.
        nonce: identifies the reader.
        epoch: the epoch of the reader; 0 for a new one.
        floor: how far the reader has settled; with it, a reader only keeps what it has acquired before.
        top: the highest lease that the reader has claimed.
        life_seconds: how long the consumer is remembered.
    """
    return Call(
        scripts.load("acquire_consumer"),
        (keys.leases, keys.consumer(consumer)),
        (nonce, epoch, floor, top, ceil(life_seconds * 1000)),
        _consumer_lease,
    )


def browse_group_call(
    keys: GroupKeys, after: str, sequence: int, last: str, *, max_values: int, max_bytes: int, whole: bool
) -> Call[GroupPage]:
    """Prepare the call that reads a page of what a group has not read, or finds where the page ends.

    Args:
        keys: the keys of the group.
        after: the id before the page, "" for the id that the group read last; the page begins no earlier.
        sequence: the sequence number of the message with that id.
        last: the greatest id that may be on the page, "" for any.
        max_values: the largest number of messages.
        max_bytes: stop reading once this much is read.
        whole: whether to return the messages.
    """
    return Call(
        scripts.load("browse_group"),
        (keys.stream, keys.counters),
        (keys.group.encode(), after.encode(), sequence, last.encode(), max_values, max_bytes, int(whole)),
        _group_page,
    )


def stage_rows_call(
    keys: QueueKeys, name: bytes, expected: int, parts: Sequence[bytes], *, life_seconds: float
) -> Call[int]:
    """Prepare the call that adds up to 1,000 parts to a stage which holds `expected` of them."""
    return Call(scripts.load("stage_rows"), (keys.stage(name),), (expected, ceil(life_seconds * 1000), *parts), int)


def staged_rows_call(keys: QueueKeys, name: bytes, first: int, count: int) -> Call[list[bytes]]:
    """Prepare the call that reads `count` parts of a stage from the position `first` on."""
    return Call(
        scripts.load("peek"), (keys.stage(name), keys.dead_records, keys.counters), (b"list", count, first, b""), list
    )


def commit_write_call(
    keys: QueueKeys, write: bytes, verb: WriteVerb, stages: Mapping[str, str], *, life_seconds: float
) -> Call[WriteRecord]:
    """Prepare the call that reads or changes the record of a staged write.

    Args:
        keys: the keys of the queue.
        write: the write, as part of its key.
        verb: what to do with the record.
        stages: descriptions of stages by their names.
        life_seconds: how long the record is kept.
    """
    described = [text.encode() for pair in stages.items() for text in pair]
    return Call(
        scripts.load("commit_write"),
        (keys.leases, keys.write(write), *(keys.stage(name.encode()) for name in stages)),
        (verb.encode(), ceil(life_seconds * 1000), *described),
        _write_record,
    )


def _consumer_lease(reply: list[Any]) -> ConsumerLease:
    if not reply[0]:
        return ConsumerLease(False, reply[1])
    spans = re.findall(r"(?<!\S)(\d+):(\d+)-(\d+)(?!\S)", reply[4].decode(errors="replace"), re.ASCII)
    left = tuple(Span(int(epoch), int(floor), int(top)) for epoch, floor, top in spans)
    return ConsumerLease(True, reply[1], reply[2], reply[3], left)


def _group_page(reply: list[Any]) -> GroupPage:
    sequence, last_id, ended, count, *messages = reply
    return GroupPage(sequence, last_id.decode(), bool(ended), count, tuple(messages))


def _write_record(reply: list[Any]) -> WriteRecord:
    if reply[0] < 0:
        return WriteRecord(False, gone=reply[1])
    known, waiting, *described = reply
    left = {
        name.decode(errors="replace"): text.decode(errors="replace")
        for name, text in zip(described[::2], described[1::2], strict=True)
    }
    return WriteRecord(known == 1, waiting, left)
