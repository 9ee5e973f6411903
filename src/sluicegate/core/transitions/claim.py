"""A claim opens, adopts or takes over a lease, after it has made expired and due messages claimable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, Wait
from sluicegate.core.entry import read_prefix, split_entry
from sluicegate.core.event_helpers import buried_events, set_aside_events
from sluicegate.core.keys import QueueKeys, lease_id_of, text_of
from sluicegate.core.leased import LeasedEntries
from sluicegate.core.ledger import VerdictGroup, format_ranges, parse_ranges
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.adopt import adopt_operation
from sluicegate.core.transitions.promote import promote_operation
from sluicegate.core.transitions.reap import reap_operation
from sluicegate.core.transitions.settle import SettleRequest, settle_call, settle_fully, split_settle
from sluicegate.errors import MalformedStoredMessageError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = [
    "Acked",
    "Changed",
    "ClaimReply",
    "ClaimRequest",
    "Empty",
    "Expired",
    "Foreign",
    "Held",
    "Known",
    "MaintenanceNeeded",
    "Opened",
    "Paused",
    "claim_call",
    "claim_known_call",
    "claim_operation",
    "undo_claim",
]

_MAX_EXCLUDE_SECONDS = 30.0  # other consumers wait that long, too, for what a run excludes
_MAX_SLEEP_SECONDS = 10.0
_MAX_GROUP_SLEEP_SECONDS = 1.0  # nothing wakes a group when another client appends to its stream
_MIN_SLEEP_SECONDS = 0.01
_MAX_MAINTENANCE_CALLS = 10
_LATE_SECONDS = 600.0  # how late a claim may still arrive that its caller has given up


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a claim asks for; see `RedisMessageQueue.claim`.

    Attributes:
        name: the lease's id as it stands in keys.
        nonce: identifies this claim; its repeats carry the same.
        limit: the largest number of messages.
        lease_seconds: life of the lease without a heartbeat.
        keep_seconds: life of the record of its end.
        empty_seconds: how long an empty answer is remembered, 0 for not at all.
        run: the key that lists what a run returned itself and must not get again; empty for none.
        consumer: who claims, as the lease shows it; empty for a consumer without a name.
    """

    name: bytes
    nonce: bytes
    limit: int
    lease_seconds: float
    keep_seconds: float
    empty_seconds: float = 0
    run: bytes = b""
    consumer: bytes = b""


@dataclass(frozen=True, slots=True)
class Opened:
    """The caller holds the lease.

    Attributes:
        opening: identifies this opening of the lease.
        takeovers: how often this opening was taken over.
        slots: the slots of the entries; empty when they are 1 to n.
        entries: the stored messages.
        buried: foreign values that the claim buried.
        dropped: dead letters that the cap dropped.
        set_aside: values that only a newer version can read.
    """

    opening: bytes
    takeovers: int
    slots: list[int]
    entries: list[bytes] = field(repr=False)
    buried: int = 0
    dropped: int = 0
    set_aside: int = 0

    def leased(self) -> LeasedEntries:
        """Return the stored messages by position and slot."""
        return LeasedEntries(self.entries, self.slots, 1 + self.takeovers)


@dataclass(frozen=True, slots=True)
class Known:
    """The lease is open under this claim's nonce, or under the token to take over: `claim_known_call` answers."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The lease is no longer as `Known` said: `claim_call` answers."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another consumer holds the lease."""

    token: bytes
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Acked:
    """The lease has ended; the counts say what became of its messages."""

    acked: int
    returned: int
    buried: int


@dataclass(frozen=True, slots=True)
class Empty:
    """The queue has nothing to claim.

    Attributes:
        next_seconds: until a message falls due or a lease expires, None when neither is in sight.
        buried, dropped, set_aside: as in `Opened`.
        remembered: whether an earlier claim under this id found nothing, so that the queue was not looked at again.
    """

    next_seconds: float | None = None
    buried: int = 0
    dropped: int = 0
    set_aside: int = 0
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class Paused:
    """The queue is paused and gives out no new messages."""


@dataclass(frozen=True, slots=True)
class MaintenanceNeeded:
    """Expired or due messages must become claimable before any are taken.

    Attributes:
        due: whether delayed messages are due.
        adopt: whether a group must look for stale entries of consumers of other libraries.
        expired: names of expired leases.
        buried, dropped, set_aside: as in `Opened`.
    """

    due: bool
    expired: list[bytes] = field(default_factory=list)
    buried: int = 0
    dropped: int = 0
    set_aside: int = 0
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A strict queue holds foreign values and nothing else to claim.

    Attributes:
        count: values that the claim moved to the tail.
        more: whether messages may lie behind them.
        next_seconds, set_aside: as in `Empty`.
    """

    count: int
    more: bool = False
    next_seconds: float | None = None
    set_aside: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """The lease of this id has expired and must be reaped first."""


ClaimReply = Opened | Known | Changed | Held | Acked | Empty | Paused | MaintenanceNeeded | Expired | Foreign


def claim_call(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, *, takeover: bytes = b"", maintain: bool = True
) -> Call[ClaimReply]:
    """Prepare the call that opens, adopts or takes over a lease.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue.
        request: what to claim.
        takeover: the token of the consumer to take the lease over from; `?` to learn its token; empty for no takeover.
        maintain: whether the script may answer `MaintenanceNeeded`.
    """
    name = request.name
    run = (request.run,) if request.run else ()
    return Call(
        scripts.load("claim"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.counters,
            keys.wakeup,
            keys.dead,
            keys.dead_records,
            keys.set_aside,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            *run,
        ),
        (
            name,
            request.nonce,
            request.limit,
            ceil(request.lease_seconds * 1000),
            ceil(request.keep_seconds * 1000),
            ceil(request.empty_seconds * 1000),
            rules.max_delivery_count,
            takeover,
            int(maintain),
            rules.claim_bytes,
            ceil(rules.max_lease_seconds * 1000),
            rules.max_dead_length,
            int(rules.strict),
            request.consumer,
            keys.group.encode(),
            *((ceil(min(request.lease_seconds, _MAX_EXCLUDE_SECONDS) * 1000),) if run else ()),
        ),
        _decode,
    )


def claim_known_call(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, *, takeover: bytes = b""
) -> Call[ClaimReply]:
    """Prepare the call that adopts a lease that is open under the claim's nonce, or takes it over.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue.
        request: what to claim.
        takeover: the token of the consumer to take the lease over from.
    """
    name = request.name
    return Call(
        scripts.load("claim_known"),
        (
            keys.lease(name),
            keys.leases,
            keys.counters,
            keys.dead,
            keys.dead_records,
            keys.set_aside,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
        ),
        (
            name,
            request.nonce,
            ceil(request.lease_seconds * 1000),
            takeover,
            ceil(rules.max_lease_seconds * 1000),
            rules.max_dead_length,
            request.consumer,
        ),
        _decode,
    )


def claim_operation(
    keys: QueueKeys,
    rules: QueueRules,
    request: ClaimRequest,
    *,
    clock: Callable[[], float],
    wait_seconds: float = 0,
    take_over_after_seconds: float | None = None,
    emits_events: bool = False,
    lease_id: str | None = None,
) -> Operation[ClaimReply]:
    """Do the maintenance that the claim needs, in at most ten calls, then claim, and wait if asked to.

    A wait that ends without a wake-up is followed by no other claim, unless the claim shall remember an empty answer.
    An interruption, such as a cancellation, propagates after one attempt to release what was claimed.

    Raises:
        MalformedStoredMessageError: the queue keeps foreign values and holds nothing else to claim.
    """
    who = lease_id_of(request.name) if lease_id is None else lease_id
    try:
        return (
            yield from _claim(keys, rules, request, who, clock, wait_seconds, take_over_after_seconds, emits_events)
        )
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(Exception):  # the messages become claimable again when the lease expires
            yield from undo_claim(keys, rules, request, who, emits_events)
        raise


def _claim(
    keys: QueueKeys,
    rules: QueueRules,
    request: ClaimRequest,
    who: str,
    clock: Callable[[], float],
    wait_seconds: float,
    take_over_after_seconds: float | None,
    emits_events: bool,
) -> Operation[ClaimReply]:
    deadline = clock() + wait_seconds
    takeover = b"" if take_over_after_seconds is None else b"?"
    calls_left, foreign, known = _MAX_MAINTENANCE_CALLS, 0, False
    patient = replace(request, empty_seconds=0) if request.empty_seconds else request
    while True:
        remaining = deadline - clock()
        asked = request if remaining <= 0 else patient  # only the last answer of a waiting claim may be remembered
        reply: ClaimReply = yield (
            claim_known_call(keys, rules, asked, takeover=takeover)
            if known
            else claim_call(keys, rules, asked, takeover=takeover, maintain=calls_left > 0)
        )
        known = isinstance(reply, Known)
        if emits_events:
            yield from _side_events(keys.name, reply)
        match reply:
            case Known() | Changed():
                continue
            case MaintenanceNeeded():
                calls_left = yield from _maintain(keys, rules, reply, calls_left, emits_events)
                continue
            case Expired():
                yield from reap_operation(keys, rules, request.name, emits_events=emits_events)
                continue
            case Held(token, silent_seconds) if (
                take_over_after_seconds is not None and silent_seconds >= take_over_after_seconds
            ):
                takeover, known = token, True
                continue
            case Foreign(count, more):
                foreign, calls_left = foreign + count, calls_left - 1
                if more and calls_left > 0:
                    continue
        if remaining <= 0 or not _may_change(reply):
            break
        woken: bool | None = yield _wait(keys, remaining, getattr(reply, "next_seconds", None))
        over = not woken and deadline - clock() <= _MIN_SLEEP_SECONDS
        if woken is None or (over and request.empty_seconds == 0):  # None: the queue is stopping
            break
        calls_left, foreign = _MAX_MAINTENANCE_CALLS, 0
    if emits_events:
        yield _event(keys.name, who, reply, taken_over=takeover not in (b"", b"?"))
    if isinstance(reply, Foreign):
        raise MalformedStoredMessageError(
            f"queue {keys.name!r} holds {foreign} stored values that are no Sluicegate messages, and nothing else to "
            "claim; they stay, at its tail. Find who writes them, and remove them from the queue's `pending` list or "
            "leave strict_envelope_decoding off to have them buried"
        )
    return reply


def _maintain(
    keys: QueueKeys, rules: QueueRules, needed: MaintenanceNeeded, calls_left: int, emits_events: bool
) -> Operation[int]:
    """Make what is due or expired claimable; returns how many calls are left for maintenance."""
    calls_left -= 1
    if needed.due and calls_left > 0:
        yield from promote_operation(keys, emits_events=emits_events)
        calls_left -= 1
    if needed.adopt and calls_left > 0:
        yield from adopt_operation(keys, rules, emits_events=emits_events)
        calls_left -= 1
    for name in needed.expired:
        if calls_left <= 0:
            break
        calls_left -= yield from reap_operation(keys, rules, name, max_calls=calls_left, emits_events=emits_events)
    return calls_left


def _may_change(reply: ClaimReply) -> bool:
    """Return whether a wait may end in another answer.

    A remembered empty answer stays, whatever is published. A wait for it would take wake-ups meant for others.
    """
    if isinstance(reply, Empty):
        return not reply.remembered
    return isinstance(reply, Foreign | Paused)


def _wait(keys: QueueKeys, remaining: float, next_seconds: float | None) -> Wait:
    """Wait for a wake-up, the next due message or the deadline, whichever comes first.

    The wait is never shorter than 10 ms, because an old server takes less than 1 ms for "forever".
    """
    soon = _MAX_SLEEP_SECONDS if next_seconds is None else next_seconds
    longest = _MAX_GROUP_SLEEP_SECONDS if keys.group else _MAX_SLEEP_SECONDS
    return Wait(keys.wakeup, max(_MIN_SLEEP_SECONDS, min(longest, remaining, soon)))


def undo_claim(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, who: str, emits_events: bool
) -> Operation[None]:
    """Undo an interrupted claim: release what it opened, and keep it from opening anything later.

    Its wait may have consumed a wake-up. The claim for no messages passes the wake-up on where something is claimable.
    """
    nothing = replace(request, limit=0, empty_seconds=_LATE_SECONDS)
    reply: ClaimReply = yield claim_call(keys, rules, nothing)
    if isinstance(reply, Known):
        reply = yield claim_known_call(keys, rules, nothing)
    if not isinstance(reply, Opened):
        return
    leased = reply.leased()
    everything = VerdictGroup("release", format_ranges(leased.slots), named=False)
    token = request.nonce + b":" + reply.opening
    release = SettleRequest(request.name, token, request.keep_seconds, True, (everything,), leased.bound())
    for part in split_settle(rules, release, leased.size_at):
        settled = yield from settle_fully(settle_call(keys, rules, part, held_seconds=0))
        if emits_events:
            count = len(parse_ranges(part.groups[0].slots)) - len(settled.lost)
            yield QueueEvent(EventOperation.RELEASE, EventOutcome.SUCCESS, keys.name, count, lease_id=who)


def _decode(reply: list[Any]) -> ClaimReply:
    kind = reply[0]
    if kind == b"open":
        return Opened(*reply[1:8])
    if kind == b"held":
        return Held(reply[1], max(0, reply[2]) / 1000)
    if kind == b"acked":
        return Acked(*reply[1:4])
    if kind == b"maintain":
        return MaintenanceNeeded(bool(reply[1] & 1), reply[5:], reply[2], reply[3], reply[4], bool(reply[1] & 2))
    if kind == b"empty":
        return Empty(_seconds(reply[1]), reply[2], reply[3], reply[4], len(reply) > 5)
    if kind == b"foreign":
        return Foreign(reply[1], bool(reply[2]), _seconds(reply[3]), reply[4])
    if kind in _BARE:
        return _BARE[kind]
    return Expired()


_BARE: dict[bytes, ClaimReply] = {b"paused": Paused(), b"known": Known(), b"changed": Changed()}


def _seconds(ms: int) -> float | None:
    return ms / 1000 if ms >= 0 else None


def _side_events(queue: str, reply: ClaimReply) -> Iterator[QueueEvent]:
    """Report foreign values that the claim buried or set aside."""
    if isinstance(reply, Opened | Empty | MaintenanceNeeded):
        yield from buried_events(queue, buried=reply.buried, dropped=reply.dropped)
    if isinstance(reply, Opened | Empty | MaintenanceNeeded | Foreign):
        yield from set_aside_events(queue, EventOperation.CLAIM, reply.set_aside)


def _event(queue: str, lease_id: str, reply: ClaimReply, *, taken_over: bool) -> QueueEvent:
    """Report how the claim ended."""
    operation, outcome, count = EventOperation.CLAIM, EventOutcome.EMPTY, 0
    message_id, deliveries = None, None
    match reply:
        case Opened():
            leased = reply.leased()
            operation = EventOperation.TAKE_OVER if taken_over else EventOperation.CLAIM
            outcome, count = EventOutcome.SUCCESS, len(leased)
            if count == 1:
                message_id = text_of(split_entry(leased.entry(0))[0])
                deliveries = read_prefix(leased.entry(0)).deliveries + leased.begun
        case Held():
            outcome = EventOutcome.HELD
        case Paused():
            outcome = EventOutcome.PAUSED
        case Acked(acked, returned, buried):
            outcome, count = EventOutcome.DUPLICATE, acked + returned + buried
        case Foreign(count=count):
            outcome = EventOutcome.REFUSED
        case _:
            pass
    return QueueEvent(
        operation, outcome, queue, count, lease_id=lease_id, message_id=message_id, delivery_count=deliveries
    )
