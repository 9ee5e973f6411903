"""What a lease asks of Redis: generators that settle it, extend it, and record how the handling of it ended. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sluicegate import checks, spans
from sluicegate._lease_base import ClaimedBatch, Verdict
from sluicegate._session import QueueSession
from sluicegate.clock import elapsed_clock
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.core.call import Operation
from sluicegate.core.ledger import VerdictGroup, slots_of
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.conclude import Conclusion, conclude_operation
from sluicegate.core.transitions.extend import Extended, extend_call
from sluicegate.core.transitions.settle import Settled, SettleRequest, settle_operation
from sluicegate.errors import LeaseLostError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.message import Message

__all__ = ["ack_ahead", "conclude", "exit_verdicts", "extend", "settle"]

_OPERATIONS = {
    "ack": EventOperation.ACK,
    "nack": EventOperation.NACK,
    "release": EventOperation.RELEASE,
    "bury": EventOperation.BURY,
    "discard": EventOperation.ACK,
}


def settle(
    session: QueueSession[Any],
    batch: ClaimedBatch,
    groups: Sequence[VerdictGroup],
    rules: QueueRules | None = None,
) -> Operation[None]:
    """Send verdicts and record what became of them.

    Args:
        session: of the queue.
        batch: whose messages they are for.
        groups: the verdicts, as the batch's book gave them.
        rules: instead of the queue's.

    Raises:
        LeaseLostError: some verdicts came too late.
    """
    if not groups:
        return
    sent = slots_of(groups)
    request = SettleRequest(
        batch.claim.request.name,
        batch.token,
        batch.claim.request.keep_seconds,
        batch.is_recorded,
        tuple(groups),
        batch.verdicts.bound_among(sent),
        len(batch.leased) if batch.acks_whole else 0,
    )
    rules = rules or session.rules
    send = _send if spans.tracer is None else _send_traced
    try:
        yield from send(session, batch, request, rules, sent)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        if not batch.verdicts.is_confirmed(sent):  # an interruption: no later call may settle this lease: send again
            with suppress(Exception):
                yield from send(session, batch, request, rules, sent)
        raise


def ack_ahead(session: QueueSession[Any], batch: ClaimedBatch) -> Operation[None]:
    """Ack a batch before any of it is handled: at most once. Nothing is recorded as completed yet.

    Where the queue keeps histories, the ack leaves a record, so that `conclude` takes effect once.
    """
    batch.is_acked_ahead = True
    batch.is_recorded = batch.is_recorded or _keeps_history(session)
    groups = batch.verdicts.record((Verdict("ack"),))
    yield from settle(session, batch, groups, replace(session.rules, completed_cap=None))


def extend(session: QueueSession[Any], batch: ClaimedBatch, lease_seconds: float | None = None) -> Operation[Extended]:
    """Move the lease's deadline; the default is the life that it had."""
    seconds = batch.lease_seconds if lease_seconds is None else lease_seconds
    checks.positive("lease_seconds", seconds)
    asked_at = elapsed_clock()
    extended: Extended = yield extend_call(
        session.keys,
        batch.claim.request.name,
        batch.token,
        lease_seconds=seconds,
        max_lease_seconds=session.rules.max_lease_seconds,
    )
    if extended is Extended.OK:
        batch.renew(asked_at, seconds)
        if batch.after_extend is not None:
            yield from batch.after_extend()
    elif extended is Extended.LOST and not batch.is_finished:
        batch.is_gone = True
    if session.runner.emits_events and not batch.is_finished:
        ok = extended is Extended.OK
        outcome = EventOutcome.SUCCESS if ok else EventOutcome.LOST
        yield _event(session, batch, EventOperation.EXTEND, outcome, batch.verdicts.open)
    return extended


def conclude(session: QueueSession[Any], batch: ClaimedBatch, error: BaseException | None) -> Operation[None]:
    """Record once how the handling of messages that were acked ahead ended; record nothing for an interruption.

    When a block raised, the current message failed, and so did those that it did not reach: they are not redelivered.
    """
    interrupted = error is not None and not isinstance(error, Exception)
    if batch.is_concluded or interrupted or (error is None and not _keeps_history(session)):
        return
    batch.is_concluded = True
    stored = batch.leased.stored
    handled = len(stored) if error is None else max(batch.yielded, 0)
    if session.runner.emits_events and error is not None:
        slots = stored.slots[handled:]
        yield _event(session, batch, EventOperation.SETTLE, EventOutcome.FAILURE, slots, error)
    entries = stored.entries()
    conclusion = Conclusion(
        batch.claim.request.name,
        batch.token,
        batch.claim.request.keep_seconds,
        batch.is_recorded,
        batch.claim.is_named,
        done=entries[:handled] if session.config.enable_completed_queue else (),
        failed=entries[handled:],
        why=policies.why("", error),
    )
    yield from conclude_operation(session.keys, session.rules, conclusion)


def _send(
    session: QueueSession[Any],
    batch: ClaimedBatch,
    request: SettleRequest,
    rules: QueueRules,
    sent: Sequence[int],
) -> Operation[None]:
    emits_events, verdicts = session.runner.emits_events, batch.verdicts
    asked_at = elapsed_clock()
    try:
        settled = yield from settle_operation(
            session.keys,
            rules,
            request,
            lease_seconds=batch.lease_seconds,
            clock=elapsed_clock,
            confirmed_at=batch.confirmed_at,
            lease_id=batch.claim.lease_id,
            size_of=verdicts.size_at,
            emits_events=emits_events,
        )
    except LeaseLostError as error:
        error.locate(operation="settle", message_id=verdicts.only_id(error.lost))
        batch.is_gone = True
        if emits_events:
            yield _event(session, batch, EventOperation.SETTLE, EventOutcome.LOST, error.lost, error)
        raise
    done = verdicts.confirm(sent, settled.lost, settled.buried)
    if emits_events:
        yield from _events_of(session, batch, request.groups, settled)
    if settled.lost:
        batch.is_gone = True
        raise LeaseLostError(
            f"lease {batch.claim.lease_id!r} is no longer held: {len(settled.lost)} of {len(sent)} verdicts came too "
            "late, and their messages are or will be delivered again",
            lease_id=batch.claim.lease_id,
            lost=settled.lost,
            settled=done,
        ).locate(operation="settle", message_id=verdicts.only_id(settled.lost))
    batch.confirmed_at = asked_at
    if settled.held == 0:
        batch.is_finished, batch.is_gone = True, False


def _send_traced(
    session: QueueSession[Any],
    batch: ClaimedBatch,
    request: SettleRequest,
    rules: QueueRules,
    sent: Sequence[int],
) -> Operation[None]:
    begun, failure = elapsed_clock(), None
    try:
        yield from _send(session, batch, request, rules, sent)
    except Exception as error:
        failure = error
        raise
    finally:
        if spans.tracer is not None:
            spans.tracer.settled(session, batch, request.groups, begun, failure)


def _events_of(
    session: QueueSession[Any], batch: ClaimedBatch, groups: Sequence[VerdictGroup], settled: Settled
) -> Iterator[QueueEvent]:
    """Return one event per verb for the result of a settle."""
    lost, buried = set(settled.lost), set(settled.buried)
    done: dict[EventOperation, Sequence[int]] = {}
    errors: dict[EventOperation, BaseException | None] = {}
    for group in groups:
        error = batch.verdicts.pop_error(group.verb)
        slots = slots_of((group,))
        kept = [slot for slot in slots if slot not in lost and slot not in buried] if lost or buried else slots
        dead = [slot for slot in slots if slot not in lost and slot in buried] if buried else ()
        for verb, found in ((_OPERATIONS[group.verb], kept), (EventOperation.BURY, dead)):
            if found:
                done[verb] = (*done[verb], *found) if verb in done else found
                errors[verb] = error or errors.get(verb)
    for operation, slots in done.items():
        yield _event(session, batch, operation, EventOutcome.SUCCESS, slots, errors[operation])
    if lost:
        yield _event(session, batch, EventOperation.SETTLE, EventOutcome.LOST, list(lost))


def _event(
    session: QueueSession[Any],
    batch: ClaimedBatch,
    operation: EventOperation,
    outcome: EventOutcome,
    slots: Sequence[int],
    error: BaseException | None = None,
) -> QueueEvent:
    """Return an event about the messages in these slots, with the id of a single message."""
    single = batch.verdicts.message_at(slots[0]) if len(slots) == 1 else None
    is_no_end = operation is EventOperation.EXTEND or batch.is_acked_ahead
    return QueueEvent(
        operation,
        outcome,
        session.keys.name,
        len(slots),
        lease_id=batch.claim.lease_id,
        message_id=single.id if single is not None else None,
        delivery_count=single.delivery_count if single is not None else None,
        error=error,
        held_seconds=None if is_no_end else batch.held_for_seconds,
    )


def _keeps_history(session: QueueSession[Any]) -> bool:
    return session.config.enable_completed_queue or session.config.enable_failed_queue


def exit_verdicts(config: QueueConfig, batch: ClaimedBatch, error: BaseException | None) -> list[Verdict]:
    """Return the verdicts for the rest of a batch, as its `at_exit` changes them.

    Args:
        config: the queue's options, of which `on_error` and the backoff count.
        batch: the lease's batch.
        error: what the block raised, None when it ended normally.
    """
    verdicts = _exit_verdicts(config, batch, error)
    return verdicts if batch.at_exit is None else batch.at_exit(verdicts)


def _exit_verdicts(config: QueueConfig, batch: ClaimedBatch, error: BaseException | None) -> list[Verdict]:
    """Return the verdicts for the rest of a batch by the queue's options.

    Args:
        config: the queue's options, of which `on_error` and the backoff count.
        batch: the lease's batch.
        error: what the block raised, None when it ended normally.
    """
    if error is None:
        return [Verdict("ack")]
    if not isinstance(error, Exception):
        return [Verdict("release")]
    open_slots = set(batch.verdicts.open)
    if batch.yielded < 0:  # the handler took the batch whole, so any message may be the one that failed
        worst = max((message.delivery_count for message in batch.messages), default=1)
        on_error = config.on_error if len(batch.leased) == 1 else "retry"
        return [_failed(config, None, worst, error, on_error)]
    in_hand = batch.messages[batch.yielded]
    earlier = [message for message in batch.messages[: batch.yielded] if message.slot in open_slots]
    later = [message for message in batch.messages[batch.yielded + 1 :] if message.slot in open_slots]
    verdicts = [Verdict(batch.claim.on_batch_error, earlier), Verdict("release", later)]
    if in_hand.slot in open_slots:
        verdicts.append(_failed(config, in_hand, in_hand.delivery_count, error, config.on_error))
    return [verdict for verdict in verdicts if verdict.messages != []]


def _failed(
    config: QueueConfig, message: Message | None, deliveries: int, error: Exception, on_error: policies.OnError
) -> Verdict:
    failure = policies.after_error(on_error, config.backoff, deliveries, error)
    return Verdict(failure.verb, message, failure.delay_seconds, error, failure.reason)
