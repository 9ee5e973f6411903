"""A settle gives messages of a lease their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.event_helpers import buried_events, set_aside_events
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import VerdictGroup, format_ranges, parse_ranges
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.extend import Extended, extend_call
from sluicegate.errors import LeaseLostError
from sluicegate.events import EventOperation

__all__ = [
    "BLOCKS_OPENED",
    "MAX_BYTES",
    "MAX_SLOTS",
    "SettleRequest",
    "Settled",
    "ack_whole_call",
    "join_settled",
    "settle_call",
    "settle_fully",
    "settle_operation",
    "split_settle",
]

MAX_SLOTS = 1000
"""Messages that one call takes back, buries or discards."""
MAX_BYTES = 256 * 1024
"""Bytes of these messages and of their errors. A single larger message still fits."""


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """Verdicts for one lease.

    Attributes:
        name: the lease's id as it stands in keys.
        token: the consumer's proof that it holds this opening of the lease.
        keep_seconds: life of the record of the lease's end.
        recorded: False for a lease of one message with an id made by the library, whose ack leaves no record.
        groups: the verdicts.
        bound: slot and deduplication key, ascending, of the messages whose marker ends with them.
        size: messages that the lease was opened with, 0 when that is not known.
    """

    name: bytes
    token: bytes
    keep_seconds: float
    recorded: bool
    groups: tuple[VerdictGroup, ...]
    bound: tuple[tuple[int, bytes], ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a settle.

    Attributes:
        lost: slots whose verdict did not take effect.
        held: messages that the lease still holds.
        buried: slots whose message is dead.
        dropped: dead letters that the cap dropped.
        set_aside: values that only a newer version can read.
    """

    lost: list[int]
    held: int
    buried: list[int]
    dropped: int = 0
    set_aside: int = 0


BLOCKS_OPENED = Settled([], -1, [])
"""The reply of a settle that only turned blocks of its lease into single messages: the same call must be made again."""


def settle_call(keys: QueueKeys, rules: QueueRules, request: SettleRequest, *, held_seconds: float) -> Call[Settled]:
    """Prepare the call that gives slots of a lease their verdicts.

    `held_seconds` is the time since Redis last confirmed that the caller holds the lease. The reply may be
    `BLOCKS_OPENED`; `settle_fully` makes the call again then.
    """
    name = request.name
    bound = _ending_with_their_markers(request) if request.bound else ()
    markers = keys.markers.locate([key for _, key in bound])
    args: list[bytes | int] = [
        name,
        request.token,
        ceil(request.keep_seconds * 1000),
        int(request.recorded),
        ceil(held_seconds * 1000),
        rules.max_delivery_count,
        rules.max_dead_length,
        -1 if rules.completed_cap is None else rules.completed_cap,
        -1 if rules.failed_cap is None else rules.failed_cap,
        format_ranges(slot for slot, _ in bound).encode(),
        keys.group.encode(),
        markers.chain,
        markers.plan,
        markers.fields,
    ]
    for group in request.groups:
        delay_ms = ceil(group.delay_seconds * 1000)
        args += (group.verb.encode(), group.slots.encode(), delay_ms, int(group.named), group.why)
    return Call(
        scripts.load("settle"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.returned,
            keys.delayed,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.wakeup,
            keys.completed,
            keys.failed,
            keys.set_aside,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            keys.pending,
            keys.marker_counters,
            *markers.buckets,
        ),
        args,
        or_chain(keys.markers, _decode),
        elapsed_arg=4,
        again=lambda: settle_call(keys, rules, request, held_seconds=held_seconds),
    )


def ack_whole_call(keys: QueueKeys, request: SettleRequest, *, held_seconds: float) -> Call[Settled | None]:
    """Prepare the call that acks all messages of a lease, if it holds all of them; else `settle_call` must decide."""
    name = request.name
    return Call(
        scripts.load("ack_whole"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.counters,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
        ),
        (
            name,
            request.token,
            request.size,
            ceil(request.keep_seconds * 1000),
            int(request.recorded),
            ceil(held_seconds * 1000),
        ),
        _decode_ack,
        elapsed_arg=5,
    )


def settle_operation(
    keys: QueueKeys,
    rules: QueueRules,
    request: SettleRequest,
    *,
    clock: Callable[[], float],
    confirmed_at: float,
    lease_seconds: float,
    lease_id: str,
    size_of: Callable[[int], int] = lambda slot: 0,
    emits_events: bool = False,
) -> Operation[Settled]:
    """Send the verdicts, in several calls when there are many.

    The ack of an unrecorded lease does not prove afterwards that the lease was still held. When Redis has not confirmed
    the lease for long, the operation therefore extends it first.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue.
        request: the verdicts.
        clock: a monotonic clock in seconds.
        confirmed_at: when Redis last confirmed that the caller holds the lease, by that clock.
        lease_seconds: life of the lease without a heartbeat.
        lease_id: the lease, for errors and events.
        size_of: the bytes of the message in a slot.
        emits_events: whether to emit events.

    Raises:
        LeaseLostError: the lease is gone and nothing is left to settle.
    """
    if not request.recorded and clock() - confirmed_at > request.keep_seconds / 4:
        asked_at = clock()
        extended: Extended = yield extend_call(keys, request.name, request.token, lease_seconds=lease_seconds)
        if extended is not Extended.OK:
            raise LeaseLostError(
                f"lease {lease_id!r} expired before its verdict; its message is or will be delivered again",
                lease_id=lease_id,
                lost=(1,),
            )
        confirmed_at = asked_at
    answers: list[Settled] = []
    for part in split_settle(rules, request, size_of):
        settled: Settled | None = None
        if _acks_whole(rules, part):
            settled = yield ack_whole_call(keys, part, held_seconds=clock() - confirmed_at)
        if settled is None:
            call = settle_call(keys, rules, part, held_seconds=clock() - confirmed_at)
            settled = yield from settle_fully(call, clock)
        answers.append(settled)
        if emits_events:
            yield from buried_events(keys.name, buried=0, dropped=settled.dropped)
            yield from set_aside_events(keys.name, EventOperation.SETTLE, settled.set_aside, lease_id)
    return join_settled(answers)


def settle_fully(call: Call[Settled], clock: Callable[[], float] | None = None) -> Operation[Settled]:
    """Make a call of `settle_call` until it has applied its verdicts."""
    while True:
        settled = yield from with_markers(call, clock)
        if settled is not BLOCKS_OPENED:
            return settled


def split_settle(rules: QueueRules, request: SettleRequest, size_of: Callable[[int], int]) -> list[SettleRequest]:
    """Split a settle into calls: one, unless it takes back, buries or discards more than one call should.

    All acks go together in the last call. A consumer may write one output per lease from the messages it acks. Until
    the acks take effect, a lease that is taken over still holds all of these messages. A crash between two calls
    therefore leaves no output that lacks an acked message.
    """
    acks = [group for group in request.groups if group.verb == "ack"]
    planned, slots, size = [list[VerdictGroup]()], 0, 0
    for group in request.groups:
        part: list[int] = []
        for slot in parse_ranges(group.slots) if group.verb != "ack" else ():
            weight = size_of(slot) + len(group.why)
            if slots and (slots >= MAX_SLOTS or size + weight > MAX_BYTES):
                planned[-1] += _with_slots(group, part)
                planned.append([])
                part, slots, size = [], 0, 0
            part.append(slot)
            slots, size = slots + 1, size + weight
        planned[-1] += _with_slots(group, part)
    # Acks that free a marker or are recorded read their messages, too.
    acks_read = bool(request.bound) or rules.completed_cap is not None
    if acks_read and slots and slots + sum(len(parse_ranges(group.slots)) for group in acks) > MAX_SLOTS:
        planned.append(acks)
    elif len(planned) == 1:
        return [request]  # in the order in which the verdicts were given
    else:
        planned[-1] += acks
    return [replace(request, groups=tuple(groups)) for groups in planned if groups]


def join_settled(answers: Sequence[Settled]) -> Settled:
    """Join the answers to all calls of one settle."""
    if len(answers) == 1:
        return answers[0]
    return Settled(
        lost=[slot for answer in answers for slot in answer.lost],
        held=answers[-1].held,
        buried=list(dict.fromkeys(slot for answer in answers for slot in answer.buried)),
        dropped=sum(answer.dropped for answer in answers),
        set_aside=sum(answer.set_aside for answer in answers),
    )


def _acks_whole(rules: QueueRules, request: SettleRequest) -> bool:
    """Return whether a settle acks every message of its lease, and nothing is recorded or freed for them."""
    if len(request.groups) != 1 or request.bound or rules.completed_cap is not None:
        return False
    (group,) = request.groups
    return group.verb == "ack" and group.slots == ("1" if request.size == 1 else f"1-{request.size}")


def _decode_ack(reply: bytes) -> Settled | None:
    return Settled([], 0, []) if reply == b"acked" else None


def _decode(reply: list[Any]) -> Settled:
    if reply[0] == b"opened":
        return BLOCKS_OPENED
    return Settled(parse_ranges(reply[0].decode()), reply[1], parse_ranges(reply[2].decode()), reply[3], reply[4])


def _ending_with_their_markers(request: SettleRequest) -> Sequence[tuple[int, bytes]]:
    """Return the slots with a marker whose verdict may end the message or delay it.

    A release ends at most a message that is alone in its lease.
    """
    groups = [group for group in request.groups if group.verb != "release" or len(request.bound) == 1]
    given = {slot for group in groups for slot in parse_ranges(group.slots)}
    return [pair for pair in request.bound if pair[0] in given]


def _with_slots(group: VerdictGroup, slots: Sequence[int]) -> list[VerdictGroup]:
    return [replace(group, slots=format_ranges(slots))] if slots else []
