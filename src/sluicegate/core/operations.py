"""What takes more than one call: generators that yield prepared calls and waits, and are sent their replies.

The sync and the asyncio shell drive the same generators, so that nothing here is written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from sluicegate.core import calls, event_builders, replies, settling
from sluicegate.core.call import Operation, Wait
from sluicegate.core.keys import QueueKeys
from sluicegate.core.markers import bound_markers
from sluicegate.core.publish_operation import publish
from sluicegate.core.ranges import format_ranges, parse_ranges
from sluicegate.core.values import ClaimRequest, QueueRules, SettleRequest, VerdictGroup
from sluicegate.errors import LeaseLostError, MalformedStoredMessageError
from sluicegate.events import EventOperation

__all__ = ["claim", "depth", "publish", "reap", "settle"]

Clock = Callable[[], float]
_MAX_SLEEP_SECONDS = 10.0
_SHORTEST_SLEEP_SECONDS = 0.01
_TIDY_CALLS = 10
_LATE_SECONDS = 600.0  # how late a claim may still arrive that its caller has given up


def claim(
    keys: QueueKeys,
    rules: QueueRules,
    request: ClaimRequest,
    *,
    clock: Clock,
    wait_seconds: float = 0,
    take_over_after_seconds: float | None = None,
    emits_events: bool = False,
    lease_id: str | None = None,
) -> Operation[replies.ClaimReply]:
    """Claim, after letting expired and due messages come back, in at most ten calls, and wait if told to.

    A wait that nothing ended is followed by no other claim, but for one whose empty answer is to be remembered. What
    interrupts it, such as a cancellation, goes through after one more attempt to give back what it took.

    Raises:
        MalformedStoredMessageError: the queue keeps values that are no messages, and holds nothing else to claim.
    """
    who = event_builders.lease_id_of(request.name) if lease_id is None else lease_id
    try:
        return (
            yield from _claim(keys, rules, request, who, clock, wait_seconds, take_over_after_seconds, emits_events)
        )
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(Exception):  # then it comes back when its lease runs out
            yield from _give_back(keys, rules, request, who, emits_events)
        raise


def _claim(
    keys: QueueKeys,
    rules: QueueRules,
    request: ClaimRequest,
    who: str,
    clock: Clock,
    wait_seconds: float,
    take_over_after_seconds: float | None,
    emits_events: bool,
) -> Operation[replies.ClaimReply]:
    deadline = clock() + wait_seconds
    takeover = b"" if take_over_after_seconds is None else b"?"
    maintenance_left, foreign = _TIDY_CALLS, 0
    patient = replace(request, empty_seconds=0) if request.empty_seconds else request
    while True:
        remaining = deadline - clock()
        asked = request if remaining <= 0 else patient  # only the last answer of a waiting claim may be remembered
        reply: replies.ClaimReply = yield calls.claim(
            keys, rules, asked, takeover=takeover, maintain=maintenance_left > 0
        )
        if emits_events and isinstance(reply, replies.Opened | replies.Empty | replies.MaintenanceNeeded):
            yield from event_builders.dead(keys.name, buried=reply.buried, dropped=reply.dropped)
        if emits_events and isinstance(
            reply, replies.Opened | replies.Empty | replies.MaintenanceNeeded | replies.Foreign
        ):
            yield from event_builders.set_aside(keys.name, EventOperation.CLAIM, reply.aside)
        match reply:
            case replies.MaintenanceNeeded():
                maintenance_left = yield from _maintain(keys, rules, reply, maintenance_left, emits_events)
                continue
            case replies.Expired():
                yield from reap(keys, rules, request.name, calls_left=None, emits_events=emits_events)
                continue
            case replies.Held(token, silent_seconds) if (
                take_over_after_seconds is not None and silent_seconds >= take_over_after_seconds
            ):
                takeover = token
                continue
            case replies.Foreign(count, more):
                foreign, maintenance_left = foreign + count, maintenance_left - 1
                if more and maintenance_left > 0:
                    continue
        if remaining <= 0 or not _may_change(reply):
            break
        rung: bool | None = yield _sleep(keys, remaining, getattr(reply, "next_seconds", None))
        over = not rung and deadline - clock() <= _SHORTEST_SLEEP_SECONDS
        if rung is None or (over and request.empty_seconds == 0):  # None: the queue is stopping
            break
        maintenance_left, foreign = _TIDY_CALLS, 0
    if emits_events:
        yield from event_builders.claimed(keys.name, who, reply, taken_over=takeover not in (b"", b"?"))
    if isinstance(reply, replies.Foreign):
        raise MalformedStoredMessageError(
            f"queue {keys.name!r} holds {foreign} stored values that are no Sluicegate messages, and nothing else to "
            "claim; they stay, at its tail. Find who writes them, and remove them from the queue's `pending` list or "
            "leave strict_envelope_decoding off to have them buried"
        )
    return reply


def _may_change(reply: replies.ClaimReply) -> bool:
    """Whether a wait may end in another answer: a remembered empty stays so whatever is published, and a wait for it
    would take wake-ups that are others'.
    """
    if isinstance(reply, replies.Empty):
        return not reply.remembered
    return isinstance(reply, replies.Foreign | replies.Paused)


def _give_back(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, who: str, emits_events: bool
) -> Operation[None]:
    """Undo a claim that was interrupted, wherever it was: release what it opened, and let it open nothing later.

    Its wait may have taken the bell's token, too: the claim for nothing rings it again where something is claimable.
    """
    nothing = replace(request, limit=0, empty_seconds=_LATE_SECONDS)
    reply: replies.ClaimReply = yield calls.claim(keys, rules, nothing)
    if not isinstance(reply, replies.Opened):
        return
    slots = reply.slots or range(1, len(reply.entries) + 1)
    everything = VerdictGroup("release", format_ranges(slots), named=False)
    token = request.nonce + b":" + reply.opening
    bound = bound_markers(keys, zip(slots, reply.entries, strict=True))
    release = SettleRequest(request.name, token, request.keep_seconds, True, (everything,), bound)
    sizes = dict(zip(slots, map(len, reply.entries), strict=True))
    for step in settling.steps(rules, release, sizes.__getitem__):
        settled: replies.Settled = yield calls.settle(keys, rules, step, held_seconds=0)
        if emits_events:
            count = len(parse_ranges(step.groups[0].slots)) - len(settled.lost)
            yield from event_builders.given_back(keys.name, who, count)


def settle(
    keys: QueueKeys,
    rules: QueueRules,
    request: SettleRequest,
    *,
    clock: Clock,
    confirmed_at: float,
    lease_seconds: float,
    lease_id: str,
    size_of: Callable[[int], int] = lambda slot: 0,
    emits_events: bool = False,
) -> Operation[replies.Settled]:
    """Settle, in several calls when it is much; a holder that was silent for long asks first whether the lease is
    still its own.

    Raises:
        LeaseLostError: the lease is gone and nothing is left to settle.
    """
    if not request.recorded and clock() - confirmed_at > request.keep_seconds / 4:
        asked_at = clock()
        extended: replies.Extended = yield calls.extend(keys, request.name, request.token, lease_seconds=lease_seconds)
        if extended is not replies.Extended.OK:
            raise LeaseLostError(
                f"lease {lease_id!r} ran out before its verdict; its message is or will be delivered again",
                lease_id=lease_id,
                lost=(1,),
            )
        confirmed_at = asked_at
    answers: list[replies.Settled] = []
    for step in settling.steps(rules, request, size_of):
        settled: replies.Settled = yield calls.settle(keys, rules, step, held_seconds=clock() - confirmed_at)
        answers.append(settled)
        if emits_events:
            yield from event_builders.dead(keys.name, buried=0, dropped=settled.dropped)
            yield from event_builders.set_aside(keys.name, EventOperation.SETTLE, settled.aside, lease_id)
    return settling.joined(answers)


def depth(keys: QueueKeys, *, page_size: int = 500) -> Operation[replies.Counted]:
    """Count in one call, and where leases have expired, in one more per page of them.

    All but the messages of expired leases is as the second call found it. Of a lease that comes back before its page is
    read nothing is counted now; the next count finds its messages among the returned.
    """
    counted: replies.Counted = yield calls.depth(keys, most=page_size)
    page, whole = counted.page, None
    named: set[bytes] = set()
    while page.names:
        fresh = [name for name in page.names if name not in named]
        named.update(fresh)
        counted = yield calls.depth(keys, replace(page, names=fresh), most=page_size)
        page, whole = counted.page, counted if whole is None else _joined(whole, counted)
    return whole or counted


def _joined(whole: replies.Counted, more: replies.Counted) -> replies.Counted:
    """A count with the expired leases of another page."""
    return replace(whole, expired=whole.expired + more.expired, oldest_ms=max(whole.oldest_ms, more.oldest_ms))


def _sleep(keys: QueueKeys, remaining: float, next_seconds: float | None) -> Wait:
    """Until the bell rings, the next message falls due or time is up; an old server takes less than 1 ms for ever."""
    soon = _MAX_SLEEP_SECONDS if next_seconds is None else next_seconds
    return Wait(keys.wakeup, max(_SHORTEST_SLEEP_SECONDS, min(_MAX_SLEEP_SECONDS, remaining, soon)))


def _maintain(
    keys: QueueKeys, rules: QueueRules, maintain: replies.MaintenanceNeeded, calls_left: int, emits_events: bool
) -> Operation[int]:
    """Let what has expired or is due come back; returns how many calls are left for it."""
    calls_left -= 1
    if maintain.due and calls_left > 0:
        promoted: int = yield calls.promote(keys)
        calls_left -= 1
        if emits_events:
            yield from event_builders.promoted(keys.name, promoted)
    for name in maintain.expired:
        if calls_left <= 0:
            break
        calls_left = yield from reap(keys, rules, name, calls_left, emits_events)
    return calls_left


def reap(keys: QueueKeys, rules: QueueRules, name: bytes, calls_left: int | None, emits_events: bool) -> Operation[int]:
    """Reap one lease, in so many calls at most; None for to the end."""
    made = 0
    wanted: tuple[bytes, ...] = ()
    while calls_left is None or made < calls_left:
        reaped: replies.Reaped = yield calls.reap(keys, rules, name, wanted=wanted)
        made += 1
        if emits_events:
            yield from event_builders.reaped(keys.name, name, reaped)
        if reaped.finished:
            break
        wanted = reaped.wanted
    return (calls_left or 0) - made
