"""The prepared calls of batch work: fixed manifests, consumers and runs. Pure functions from values to `Call`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = [
    "ConsumerLease",
    "LeaseView",
    "Span",
    "WriteRecord",
    "WriteVerb",
    "acquire_consumer",
    "commit_write",
    "manifest",
    "remember_returned",
    "stage_rows",
    "staged_rows",
]


_MAX_MANIFEST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a read-only look at a lease says.

    Attributes:
        state: `open`; `ended`, when the record of its end is kept; `unknown` without either.
        token: of the holder, or of the last one; empty for an unknown lease.
        takeovers: of an open lease.
        size: messages that were claimed.
        held: of an open lease: messages without a verdict.
        left_seconds: of an open lease: until it runs out unless extended; 0 or less when it has.
        how: how an ended lease ended, such as `acked` or `returned`.
        acked: of an ended lease.
        returned: of an ended lease.
        buried: of an ended lease.
        slots: those asked for that are still held.
        entries: of these slots.
    """

    state: Literal["open", "ended", "unknown"]
    token: bytes = b""
    takeovers: int = 0
    size: int = 0
    held: int = 0
    left_seconds: float = 0
    how: str = ""
    acked: int = 0
    returned: int = 0
    buried: int = 0
    slots: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list, repr=False)

    @property
    def opening(self) -> str:
        """Which opening is open, or was the last to end; "" for an unknown lease."""
        return self.token.rpartition(b":")[2].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Span:
    """Leases of one epoch of a consumer.

    Attributes:
        epoch: theirs.
        floor: the last number before them.
        top: the last number among them.
    """

    epoch: int
    floor: int
    top: int


@dataclass(frozen=True, slots=True)
class ConsumerLease:
    """Who claims for a consumer.

    Attributes:
        acquired: whether the reader that asked does.
        epoch: of the consumer.
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
    """The record of a staged write.

    Attributes:
        known: whether there is one.
        waiting: stages that are still to be published; none of a known write: it is done.
        left: of these, by name what is told of each that was asked about; all of them for `open`.
        gone: number of a stage that could not be opened because it is gone, 0 for none.
    """

    known: bool
    waiting: int = 0
    left: dict[str, str] = field(default_factory=dict)
    gone: int = 0


WriteVerb = Literal["look", "open", "finish", "drop", "cancel"]


def manifest(
    keys: QueueKeys, name: bytes, first: int = 1, last: int = 0, *, max_bytes: int = _MAX_MANIFEST_BYTES
) -> Call[LeaseView]:
    """Show a lease (`name` as made by `keys.lease_name`) and the entries of its slots from `first` to `last`."""
    return Call(
        scripts.load("manifest"),
        (keys.lease(name), keys.leases, keys.closed(name)),
        (name, first, last, max_bytes),
        _manifest,
    )


def acquire_consumer(
    keys: QueueKeys,
    consumer: str,
    nonce: bytes,
    epoch: int,
    *,
    floor: int = -1,
    top: int = -1,
    life_seconds: float = 30 * 86_400,
) -> Call[ConsumerLease]:
    """Acquire a consumer for a reader in its epoch, or in a new one (0); with a floor, keep it and its progress."""
    return Call(
        scripts.load("acquire_consumer"),
        (keys.leases, keys.consumer(consumer)),
        (nonce, epoch, floor, top, math.ceil(life_seconds * 1000)),
        _consumer_lease,
    )


def remember_returned(
    keys: QueueKeys, run: bytes, members: Sequence[bytes], *, life_seconds: float = 86_400
) -> Call[tuple[bool, ...]]:
    """Remember what a run returns (`run` as made by `keys.run`), and answer which of it was remembered before.

    With a life of 0 only ask.
    """
    return Call(
        scripts.load("remember_returned"),
        (keys.leases, run),
        (math.ceil(life_seconds * 1000), *members),
        lambda reply: tuple(found == 1 for found in reply),
    )


def stage_rows(
    keys: QueueKeys, name: bytes, expected: int, parts: Sequence[bytes], *, life_seconds: float
) -> Call[int]:
    """Stage at most 1,000 parts under the name of a stage that holds `expected` parts."""
    return Call(
        scripts.load("stage_rows"), (keys.stage(name),), (expected, math.ceil(life_seconds * 1000), *parts), int
    )


def staged_rows(keys: QueueKeys, name: bytes, first: int, count: int) -> Call[list[bytes]]:
    """Show parts of a stage, from the position `first` on."""
    return Call(scripts.load("peek"), (keys.stage(name), keys.dead_records), (b"list", count, first), list)


def commit_write(
    keys: QueueKeys, write: bytes, verb: WriteVerb, stages: Mapping[str, str], *, life_seconds: float
) -> Call[WriteRecord]:
    """Keep the record of a staged write (`write` as part of its key); `stages` by name with what is told of each."""
    told = [text.encode() for pair in stages.items() for text in pair]
    return Call(
        scripts.load("commit_write"),
        (keys.leases, keys.write(write), *(keys.stage(name.encode()) for name in stages)),
        (verb.encode(), math.ceil(life_seconds * 1000), *told),
        _write_record,
    )


def _write_record(reply: list[Any]) -> WriteRecord:
    if reply[0] < 0:
        return WriteRecord(False, gone=reply[1])
    known, waiting, *told = reply
    left = {
        name.decode(errors="replace"): text.decode(errors="replace")
        for name, text in zip(told[::2], told[1::2], strict=True)
    }
    return WriteRecord(known == 1, waiting, left)


def _manifest(reply: list[Any]) -> LeaseView:
    state, *rest = reply
    if state == b"open":
        token, takeovers, size, held, left_ms, slots, entries = rest
        return LeaseView("open", token, takeovers, size, held, left_ms / 1000, slots=slots, entries=entries)
    if state == b"ended":
        token, how, size, acked, returned, buried = rest
        return LeaseView(
            "ended", token, size=size, how=how.decode(errors="replace"), acked=acked, returned=returned, buried=buried
        )
    return LeaseView("unknown")


def _consumer_lease(reply: list[Any]) -> ConsumerLease:
    if not reply[0]:
        return ConsumerLease(False, reply[1])
    spans = re.findall(r"(?<!\S)(\d+):(\d+)-(\d+)(?!\S)", reply[4].decode(errors="replace"), re.ASCII)
    left = tuple(Span(int(epoch), int(floor), int(top)) for epoch, floor, top in spans)
    return ConsumerLease(True, reply[1], reply[2], reply[3], left)
