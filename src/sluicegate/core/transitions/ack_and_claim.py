"""One call acks the message that a consumer has handled and claims its next one, where both are plain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import ClaimRequest, undo_claim
from sluicegate.core.transitions.settle import SettleRequest, settle_operation

__all__ = ["SLOW", "OpenLease", "Stepped", "ack_and_claim_call", "ack_and_claim_operation", "is_plain"]

_PLAIN = ord("1")  # neither tracked nor the owner of a deduplication marker that ends with it
_WHOLE = (VerdictGroup("ack", "1", named=False),)


@dataclass(frozen=True, slots=True)
class OpenLease:
    """A lease of one plain message, under an id that the library made: its nonce.

    Attributes:
        name: its id, which is also the nonce of its claim.
        token: the consumer's proof that it holds it.
        confirmed_at: when Redis last confirmed that, by the clock of its consumer.
        entry: the message.
    """

    name: bytes
    token: bytes
    confirmed_at: float
    entry: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one call did.

    Attributes:
        how: `open` when the last lease was acked and the next one is open; `acked` when the last one was acked and the
            usual call must claim; `slow` when nothing was done.
        opening: of the next lease.
        entry: its message.
    """

    how: Literal["open", "acked", "slow"]
    opening: bytes = b""
    entry: bytes = field(default=b"", repr=False)


def is_plain(entry: bytes) -> bool:
    """Return whether a message may take the short way: its ack frees and records nothing."""
    return entry[0] == _PLAIN


def ack_and_claim_call(
    keys: QueueKeys,
    request: ClaimRequest,
    last: OpenLease | None,
    *,
    claims: bool,
    max_lease_seconds: float,
    held_seconds: float,
) -> Call[Stepped]:
    """Prepare the call that acks one lease and opens another.

    Args:
        keys: the keys of the queue.
        request: the claim, of one message, under its nonce as its name.
        last: the lease to ack; None for none.
        claims: False: only ack.
        max_lease_seconds: the longest life of a lease, 0 for no bound.
        held_seconds: the time since Redis last confirmed that the caller holds the last lease.
    """
    name = request.name if claims else b""
    last_name, last_token = (last.name, last.token) if last is not None else (b"", b"")
    lease_ms, max_lease_ms = ceil(request.lease_seconds * 1000), ceil(max_lease_seconds * 1000)
    return Call(
        scripts.load("ack_and_claim"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.counters,
            keys.wakeup,
            keys.lease(last_name),
            keys.closed(last_name),
        ),
        (
            name,
            request.nonce,
            min(lease_ms, max_lease_ms) if max_lease_ms else lease_ms,
            ceil(request.keep_seconds * 1000),
            max_lease_ms,
            request.consumer,
            last_name,
            last_token,
            ceil(held_seconds * 1000),
        ),
        _decode,
        elapsed_arg=8,
    )


def ack_and_claim_operation(
    keys: QueueKeys,
    rules: QueueRules,
    request: ClaimRequest,
    last: OpenLease | None,
    *,
    claims: bool,
    clock: Callable[[], float],
) -> Operation[Stepped]:
    """Send the call, once; the caller does the usual way what it left undone, under the same nonce.

    That nonce makes every order of executions converge, also of those whose reply was lost and of those that come late:

    - Executed twice: the second finds the last lease gone and without a record, which proves the ack as long as the
      lease's consumer was confirmed recently, and the next lease open under the nonce.
    - The next lease expired between two executions, and was reaped: the second finds the record of its end, and leaves
      the claim to `claim_call`, which opens the id anew.
    - The last lease was lost before the first execution: its end is on record, or it is open under another token. The
      call does nothing. `settle_operation` then raises `LeaseLostError`, and the claim that follows opens the next one.
    - The last lease was lost and an earlier execution, of a claim without an ack, opened the next one: as before, and
      the claim finds the next lease under its nonce. Its message is kept.
    - Executed late, after the usual calls: it finds the next lease open and gives it a new deadline; or, when that was
      acked too, opens a lease without a consumer, which expires. A late `claim_call` does the same.

    An interruption, such as a cancellation, propagates after one attempt to ack the last lease and to release the next.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue.
        request: the claim, of one message, under its nonce as its name.
        last: the lease to ack; None for none.
        claims: False: only ack.
        clock: a monotonic clock in seconds.
    """
    held = clock() - last.confirmed_at if last is not None else 0.0
    longest = rules.max_lease_seconds
    call = ack_and_claim_call(keys, request, last, claims=claims, max_lease_seconds=longest, held_seconds=held)
    try:
        stepped: Stepped = yield call
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(Exception):  # the lease that stays open expires
            if last is not None:
                yield from _settle(keys, rules, request, last, clock)
        if claims:
            with suppress(Exception):
                yield from undo_claim(keys, rules, request, request.name.decode(), False)
        raise
    return stepped


def _settle(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, last: OpenLease, clock: Callable[[], float]
) -> Operation[None]:
    """Ack the last lease, of which it is not known whether it was acked."""
    ack = SettleRequest(last.name, last.token, request.keep_seconds, False, _WHOLE, (), 1)
    yield from settle_operation(
        keys,
        rules,
        ack,
        clock=clock,
        confirmed_at=last.confirmed_at,
        lease_seconds=request.lease_seconds,
        lease_id=last.name.decode(),
    )


def _decode(reply: list[bytes]) -> Stepped:
    if len(reply) == 3:
        return Stepped("open", reply[1], reply[2])
    return _ACKED if reply[0] == b"acked" else SLOW


_ACKED = Stepped("acked")
SLOW = Stepped("slow")
"""Nothing was done; the usual calls decide."""
