"""What takes more than one call: generators that yield prepared calls and waits, and are sent their replies.

The sync and the asyncio shell drive the same generators, so that nothing here is written twice.
"""

from __future__ import annotations

from collections.abc import Callable

from sluicegate.core import calls, replies
from sluicegate.core.call import Operation, Wait
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import Batch, ClaimRequest, SettleRequest, Terms
from sluicegate.errors import LeaseLostError, PublishUnknownError, RetryBudgetExhaustedError

__all__ = ["claim", "depth", "publish", "settle"]

Clock = Callable[[], float]
_LONGEST_SLEEP_SECONDS = 10.0
_SHORTEST_SLEEP_SECONDS = 0.01
_TIDY_CALLS = 10


def publish(keys: QueueKeys, batch: Batch, *, clock: Clock) -> Operation[replies.Published]:
    """Publish one batch.

    Raises:
        PublishUnknownError: Redis could not be asked for so long that a repeat would no longer be safe.
    """
    call, born = calls.publish(keys, batch, age_seconds=0), clock()
    try:
        published: replies.Published = yield call
    except RetryBudgetExhaustedError as error:
        raise PublishUnknownError(
            f"{error}; whether the {len(batch.parts)} messages were published is unknown, and the prepared calls in "
            f"`calls` tell: "
            f"running them within {batch.oldest_seconds:.0f} s of the publish repeats nothing",
            ids=batch.message_ids(),
            calls=(call,),
            born=born,
        ) from error
    if published.accepted < 0:
        raise PublishUnknownError(
            f"a publish of {len(batch.parts)} messages was retried for longer than {batch.oldest_seconds:.0f} s, after "
            "which a repeat could publish them twice; look for them by their ids before publishing again",
            ids=batch.message_ids(),
        )
    return published


def claim(
    keys: QueueKeys,
    terms: Terms,
    request: ClaimRequest,
    *,
    clock: Clock,
    wait_seconds: float = 0,
    take_over_after_seconds: float | None = None,
) -> Operation[replies.ClaimReply]:
    """Claim, after letting expired and due messages come back, in at most ten calls, and wait if told to."""
    deadline = clock() + wait_seconds
    takeover = b"" if take_over_after_seconds is None else b"?"
    tidies = _TIDY_CALLS
    patient = ClaimRequest(request.name, request.nonce, request.limit, request.lease_seconds, request.keep_seconds)
    while True:
        remaining = deadline - clock()
        asked = request if remaining <= 0 else patient  # only the last answer of a waiting claim may be remembered
        reply: replies.ClaimReply = yield calls.claim(keys, terms, asked, takeover=takeover, tidy=tidies > 0)
        match reply:
            case replies.Tidy():
                tidies = yield from _tidy(keys, terms, reply, tidies)
            case replies.Expired():
                yield from _reap(keys, terms, request.name, calls_left=None)
            case replies.Held(token, silent_seconds) if (
                take_over_after_seconds is not None and silent_seconds >= take_over_after_seconds
            ):
                takeover = token
            case replies.Empty(next_seconds) if remaining > 0:
                yield _sleep(keys, remaining, next_seconds)
                tidies = _TIDY_CALLS
            case replies.Paused() if remaining > 0:
                yield _sleep(keys, remaining, None)
            case _:
                return reply


def settle(
    keys: QueueKeys,
    terms: Terms,
    request: SettleRequest,
    *,
    clock: Clock,
    confirmed_at: float,
    lease_seconds: float,
    lease_id: str,
) -> Operation[replies.Settled]:
    """Settle; a holder that was silent for long asks first whether the lease is still its own.

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
    settled: replies.Settled = yield calls.settle(keys, terms, request, held_seconds=clock() - confirmed_at)
    return settled


def depth(keys: QueueKeys) -> Operation[replies.Counted]:
    """Count; a second call only when some lease has expired, for the messages in it."""
    counted: replies.Counted = yield calls.depth(keys)
    if counted.expired_leases:
        counted = yield calls.depth(keys, counted.expired_leases)
    return counted


def _sleep(keys: QueueKeys, remaining: float, next_seconds: float | None) -> Wait:
    """Until the bell rings, the next message falls due or time is up; an old server takes less than 1 ms for ever."""
    soon = _LONGEST_SLEEP_SECONDS if next_seconds is None else next_seconds
    return Wait(keys.bell, max(_SHORTEST_SLEEP_SECONDS, min(_LONGEST_SLEEP_SECONDS, remaining, soon)))


def _tidy(keys: QueueKeys, terms: Terms, tidy: replies.Tidy, calls_left: int) -> Operation[int]:
    """Let what has expired or is due come back; returns how many calls are left for it."""
    calls_left -= 1
    if tidy.due and calls_left > 0:
        yield calls.promote(keys)
        calls_left -= 1
    for name in tidy.expired:
        if calls_left <= 0:
            break
        calls_left = yield from _reap(keys, terms, name, calls_left)
    return calls_left


def _reap(keys: QueueKeys, terms: Terms, name: bytes, calls_left: int | None) -> Operation[int]:
    """Reap one lease, in so many calls at most; None for to the end."""
    made = 0
    while calls_left is None or made < calls_left:
        reaped: replies.Reaped = yield calls.reap(keys, terms, name)
        made += 1
        if reaped.finished:
            break
    return (calls_left or 0) - made
