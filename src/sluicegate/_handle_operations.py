"""What an attachment asks of Redis: generators that adopt an open lease by its handle, and extend it. No I/O."""

from __future__ import annotations

from typing import Any

from sluicegate import checks
from sluicegate._arguments import claim_of
from sluicegate._lease_base import Claim, ClaimedBatch
from sluicegate._session import QueueSession
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import Operation
from sluicegate.core.transitions.claim import ClaimReply, Opened, claim_known_call
from sluicegate.core.transitions.extend import Extended, extend_call
from sluicegate.core.transitions.manifest import LeaseView, manifest_call
from sluicegate.errors import ConfigurationError, LeaseEndedError, LeaseLostError, QueueDrainedError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.lease_handle import LeaseHandle

__all__ = ["attach", "attached_claim", "extend_detached"]


def attached_claim(
    session: QueueSession[Any],
    handle: LeaseHandle,
    *,
    lease_seconds: float | None,
    retention_seconds: float | None,
    heartbeat: bool,
) -> Claim:
    """Return the claim that a handle stands for: its repeat finds the open lease and opens no other.

    Raises:
        ConfigurationError: an argument that cannot work, or a handle of another queue.
        QueueDrainedError: this queue object was closed.
    """
    check_handle(session, handle)
    if session.activity.closed:
        raise QueueDrainedError(f"queue {session.keys.name!r} was drained here; make a new object to attach a lease")
    if session.config.at_most_once:
        raise ConfigurationError(
            f"queue {session.keys.name!r} has visibility_timeout_seconds=None: it acks what it claims, so nothing "
            "stays in a lease to attach"
        )
    return claim_of(
        session,
        1,
        lease_seconds=handle.lease_seconds if lease_seconds is None else lease_seconds,
        wait_seconds=0,
        lease_id=handle.id,
        take_over_after_seconds=None,
        retention_seconds=retention_seconds,
        remember_empty=False,
        heartbeat=heartbeat,
        on_batch_error="release",
        exclude_run=None,
        nonce=handle.nonce,
    )


def check_handle(session: QueueSession[Any], handle: LeaseHandle) -> None:
    """Refuse what is no handle of this queue.

    Raises:
        ConfigurationError: says what was given instead.
    """
    if not isinstance(handle, LeaseHandle):
        raise ConfigurationError(
            f"attach takes a LeaseHandle, not a {type(handle).__name__}; read one with LeaseHandle.from_json()"
        )
    if handle.queue != session.keys.full_name:
        raise ConfigurationError(
            f"the handle is of queue {handle.queue!r}, and this is queue {session.keys.full_name!r}"
        )


def attach(session: QueueSession[Any], handle: LeaseHandle, claim: Claim) -> Operation[ClaimedBatch]:
    """Adopt the open lease of a handle: the messages that it still holds, without counting a delivery.

    Raises:
        LeaseEndedError: all of its messages have verdicts.
        LeaseLostError: it expired, or another consumer holds it.
    """
    asked_at = elapsed_clock()
    reply: ClaimReply = yield claim_known_call(session.keys, session.rules, claim.request)
    adopted = isinstance(reply, Opened) and reply.opening.decode(errors="replace") == handle.opening
    if not adopted:
        error = yield from _why_gone(session, handle, claim.request.name, "attached")
        if session.runner.emits_events:
            yield _event(session, handle, EventOutcome.LOST, 0, error)
        raise error
    batch = ClaimedBatch(session, claim, reply, asked_at)
    if session.runner.emits_events:
        yield _event(session, handle, EventOutcome.SUCCESS, len(batch.leased))
    return batch


def extend_detached(
    session: QueueSession[Any], handle: LeaseHandle, lease_seconds: float | None = None
) -> Operation[None]:
    """Move the deadline of a handle's lease without reading its messages.

    Raises:
        LeaseEndedError: all of its messages have verdicts.
        LeaseLostError: it expired, another consumer holds it, or it has reached `max_lease_seconds`.
    """
    check_handle(session, handle)
    seconds = handle.lease_seconds if lease_seconds is None else lease_seconds
    checks.positive("lease_seconds", seconds)
    name = session.keys.lease_name(handle.id)
    extended: Extended = yield extend_call(
        session.keys,
        name,
        handle.token.encode(),
        lease_seconds=seconds,
        max_lease_seconds=session.rules.max_lease_seconds,
    )
    if extended is not Extended.OK:
        error = yield from _why_gone(session, handle, name, "extended")
        raise error


def _why_gone(session: QueueSession[Any], handle: LeaseHandle, name: bytes, verb: str) -> Operation[LeaseLostError]:
    """Return the error that says what became of a handle's lease."""
    view: LeaseView = yield manifest_call(session.keys, name)
    begin = f"lease {handle.id!r} cannot be {verb}"
    operation = "attach" if verb == "attached" else "extend"
    if view.state != "unknown" and view.opening != handle.opening:
        why = "this opening of it has ended or expired, and its id was claimed anew"
    elif view.state == "open":
        held_here = view.token == handle.token.encode()
        why = "it has reached its longest life" if held_here else "another consumer has taken it over"
    elif view.how == "reaped":
        why = "it has expired, and its messages are or will be delivered again"
    elif view.state == "unknown":
        why = "it has expired, or its end is no longer remembered"
    else:
        ended = f"{view.acked} messages acked, {view.returned} returned, {view.buried} buried"
        return LeaseEndedError(
            f"{begin}: it has ended: {ended}",
            lease_id=handle.id,
            acked=view.acked,
            returned=view.returned,
            buried=view.buried,
        ).locate(queue=session.keys.name, operation=operation)
    error = LeaseLostError(f"{begin}: {why}", lease_id=handle.id, lost=())
    return error.locate(queue=session.keys.name, operation=operation)


def _event(
    session: QueueSession[Any],
    handle: LeaseHandle,
    outcome: EventOutcome,
    count: int,
    error: LeaseLostError | None = None,
) -> QueueEvent:
    return QueueEvent(EventOperation.ATTACH, outcome, session.keys.name, count, lease_id=handle.id, error=error)
