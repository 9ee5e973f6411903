# Made from src/sluicegate/asyncio/steps.py by `make format`; edit there.
"""One message at a time, in as few calls as possible: the current message has a lease object only when it needs one."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TypeAlias
from weakref import WeakSet

from sluicegate import spans
from sluicegate._arguments import claim_of
from sluicegate._lease_base import Claim, ClaimedBatch
from sluicegate._redis.connection_io import HeldConnection
from sluicegate._session import new_id
from sluicegate.clock import elapsed_clock
from sluicegate.core.entry import was_delivered
from sluicegate.core.transitions.ack_and_claim import SLOW, OpenLease, Stepped, ack_and_claim_operation, is_plain
from sluicegate.core.transitions.claim import ClaimRequest, Opened
from sluicegate.errors import CleanupFailedError, LeaseLostError, RedisMessageQueueError, WrongKeyTypeError
from sluicegate.heartbeat import HeartbeatScheduler
from sluicegate.lease import Lease, LeaseHeartbeat, current_scheduler, interval_for
from sluicegate.message import Message
from sluicegate.runtime import current_owner
from sluicegate.session import Session

__all__ = ["ClaimOne", "Steps"]

_EARLY_SECONDS = 0.002  # a timer may fire that much before its time
_log = logging.getLogger("sluicegate")
ClaimOne: TypeAlias = Callable[[bytes, float], tuple[Lease, ClaimedBatch]]
"""Claims one message the usual way: under this nonce, waiting so many seconds for it."""


class _AgedLease(Lease):
    """A lease made for a message that was claimed without an object."""

    def keep_alive(self, interval_seconds: float) -> None:
        """Extend it now, and in the background from then on."""
        self._heartbeat = LeaseHeartbeat(self._session, self._batch, interval_seconds)
        self._heartbeat.start(interval_seconds, first_after=0)


class _Hand:
    """The current message. It refers to no consumer, so that one that was dropped is extended no more.

    Args:
        session: of the queue.
        lease_seconds: the life of its lease; None for the queue's.

    Attributes:
        request: the claim of a message, but for its nonce.
        plain: the lease of a message that may be acked the short way; None when there is none.
        lease: the lease object of the current message; None while it needs none.
        owner: the thread or task that works on it.
        interval_seconds: between the heartbeats of its lease; None for no heartbeat.
        watched_by: the scheduler that looks when its heartbeat is due; None for none.
        watched: the message whose heartbeat is due at that look.
    """

    def __init__(self, session: Session, lease_seconds: float | None) -> None:
        self._session = session
        self._lease_seconds = lease_seconds
        self._acked = False
        self._context: Context | None = None
        self.lock = threading.RLock()  # a shutdown releases what other threads hold; a signal handler may be one
        self.request: ClaimRequest = self._claim(b"_").request
        self.plain: OpenLease | None = None
        self.lease: Lease | None = None
        self.owner = 0
        self.interval_seconds = interval_for(session.config, self.request.lease_seconds, None, None)
        self.watched_by: HeartbeatScheduler | None = None
        self.watched: OpenLease | None = None
        _every_hand.add(self)

    @property
    def is_held(self) -> bool:
        """Return whether the current message has no lease object, which would answer for itself."""
        return self.plain is not None and not self._acked and self.lease is None

    def take(self, plain: OpenLease, watch: _Watch) -> None:
        """Take a current message, and see to it that its heartbeat starts when it is due."""
        self._context = copy_context()
        with self.lock:
            self.plain, self.lease, self._acked = plain, None, False
            # A forked child, and another event loop, has a scheduler of its own.
            if self.interval_seconds is not None and self.watched_by is not (watched_by := current_scheduler()):
                self.watched_by, self.watched = watched_by, plain
                watched_by.watch(watch, self.interval_seconds)

    def take_lease(self, lease: Lease) -> None:
        """Take a current message that needs its lease object."""
        with self.lock:
            self.plain, self.lease = None, lease

    def drop(self) -> None:
        """Have no current message."""
        with self.lock:
            self.plain = self.lease = None

    def begin_ack(self) -> OpenLease | None:
        """Give the message its verdict the short way; None when there is none or its lease object must ack it.

        An ack without a record is proved only for a time, so the lease object of an old message extends it first.
        """
        with self.lock:
            if self.lease is not None:
                return None
            plain = self.plain
            if plain is not None and elapsed_clock() - plain.confirmed_at > self.request.keep_seconds / 4:
                if self._acked:  # it took effect, or the message is delivered again: nothing can tell any more
                    self.plain = None
                return None
            self._acked = True
            return plain

    def as_lease(self, *, acked: bool = False) -> Lease | None:
        """Return the lease object of the current message, made if necessary; None without a message.

        Args:
            acked: also when an ack was sent the short way.
        """
        with self.lock:
            plain = self.plain
            if self.lease is None and plain is not None and (acked or not self._acked):
                claim = self._claim(plain.name)
                opening = plain.token.partition(b":")[2]
                batch = ClaimedBatch(self._session, claim, Opened(opening, 0, [], [plain.entry]), plain.confirmed_at)
                batch.yielded = 0
                self.lease = _AgedLease(self._session, batch)
                self._session.activity.hold(self.lease, batch, self.owner)
            return self.lease

    def keep_alive(self) -> float | None:
        """Start the heartbeat of the current message if it is due; returns the seconds to the next look, or None."""
        with self.lock:
            interval, plain = self.interval_seconds, self.plain
            if interval is None or (plain is None and self.lease is None):
                self.watched_by = None
                return None
            if not self.is_held or plain is None:
                return interval
            left = plain.confirmed_at + interval - elapsed_clock()
            if plain is not self.watched and left > _EARLY_SECONDS:
                self.watched = plain
                return left
            lease, context = self.as_lease(), self._context
            if isinstance(lease, _AgedLease) and context is not None:
                context.copy().run(lease.keep_alive, interval)
            return interval

    def _claim(self, nonce: bytes) -> Claim:
        return claim_of(
            self._session,
            1,
            lease_seconds=self._lease_seconds,
            wait_seconds=0,
            lease_id=None,
            take_over_after_seconds=None,
            retention_seconds=None,
            remember_empty=False,
            heartbeat=True,
            on_batch_error="release",
            exclude_run=None,
            nonce=nonce,
        )


_every_hand: WeakSet[_Hand] = WeakSet()


def _after_fork() -> None:
    for hand in list(_every_hand):
        hand.lock = threading.RLock()  # a thread that no longer exists may have held it


os.register_at_fork(after_in_child=_after_fork)


class _Watch:
    """Looks when the first heartbeat of a message is due. Messages that are handled sooner cost no timer each."""

    def __init__(self, hand: _Hand, beats_through: object) -> None:
        self.beats_through = beats_through
        self._hand = hand

    def beat(self) -> float | None:
        """Extend the current message if that is due; returns the seconds to the next look, None without a message."""
        return self._hand.keep_alive()


class Steps:
    """Claims one message after the other, and acks each in the call that claims the next.

    Where all is plain, that is one small call, and the message has no lease object. Everything else goes the usual way:
    messages that were returned, are due, tracked or own a marker until they are acked; queues with histories, events,
    tracing or at-most-once delivery; a message that is nacked, takes long, or lost its lease.

    The activity of the queue object keeps it like a lease, and releases its message when the object is shut down.

    Args:
        session: of the queue.
        lease_seconds: the life of a lease without a heartbeat; None for the queue's.
        may_be_short: whether its messages may go the short way at all.
    """

    def __init__(self, session: Session, lease_seconds: float | None, *, may_be_short: bool) -> None:
        config = session.config
        self._session = session
        self._hand = _Hand(session, lease_seconds)
        self._watch = _Watch(self._hand, session.runner.gateway)
        self._may_be_short = may_be_short and not config.at_most_once and not config.enable_completed_queue
        self._nonce: bytes | None = None
        self._held: HeldConnection | None = None
        self._expects_plain = True  # one that is not plain costs the short way a call for nothing

    # ------------------------------------------------------------------ what the activity of the queue object asks

    @property
    def id(self) -> str:
        """Return the id of the current lease."""
        plain = self._hand.plain
        return plain.name.decode() if plain is not None else ""

    @property
    def unsettled(self) -> list[int]:
        """Return the slots without a verdict that no lease object answers for."""
        return [1] if self._hand.is_held else []

    def release(self) -> None:
        """Return the current message to the queue, uncounted."""
        lease = self._hand.as_lease()
        if lease is not None:
            lease.stop_heartbeat()
            lease.release()

    def stop_heartbeat(self, *, wait: bool = True) -> None:
        """End the background extensions of the current message."""
        lease = self._hand.lease
        if lease is not None:
            lease.stop_heartbeat(wait=wait)

    # ------------------------------------------------------------------ steps

    @property
    def is_stopping(self) -> bool:
        """Return whether the queue object claims no more."""
        return self._session.activity.stopping()

    @property
    def is_short(self) -> bool:
        """Return whether a plain message would go the short way now: nothing observes what becomes of it."""
        return self._may_be_short and spans.tracer is None and not self._session.runner.emits_events

    def lease_in_hand(self) -> Lease | None:
        """Return the lease of the current message; None when there is none, or its ack was sent."""
        return self._hand.as_lease()

    def hold(self) -> None:
        """Let the queue object know that the caller's thread or task works on the current message from now on."""
        owner = self._hand.owner = current_owner()
        self._session.activity.hold(self, self._hand, owner)

    def keep_connection(self) -> None:
        """Use one connection for all steps until `rest`, if the gateway can."""
        if self._held is None:
            self._held = self._session.runner.hold()

    def advance(self, claim: ClaimOne | None, wait_seconds: float = 0) -> Message | None:
        """Ack the current message, if it has no verdict, and claim the next one; returns None when none came in time.

        When the ack failed, the next call sends it again. An ack that came too late is logged.

        Args:
            claim: claims the usual way; None to claim nothing.
            wait_seconds: how long it waits.

        Raises:
            CleanupFailedError: the current message could not be acked.
        """
        if claim is not None and self.is_stopping:
            claim = None
        message = self._step(claim is not None)
        if message is None and claim is not None:
            message = self._claim(claim, wait_seconds)
        return message

    def claim_plain(self) -> Message | None:
        """Claim a message in one small call, if one is at hand and the usual way is not necessary."""
        if self.is_stopping or not (self._expects_plain and self.is_short):
            return None
        self.hold()
        return self._step(True)

    @property
    def nonce(self) -> bytes:
        """Return the nonce of the next claim; an earlier execution of that claim may have opened a lease under it."""
        self._nonce = self._nonce or new_id()
        return self._nonce

    def expect_like(self, message: Message) -> None:
        """Expect the next message to be as plain as this one, which was claimed the usual way."""
        self._expects_plain = is_plain(message.entry) and not was_delivered(message.entry)

    def rest(self) -> None:
        """Have no current message, whatever became of it, no timer and no connection."""
        hand, held = self._hand, self._held
        self._held = None
        with hand.lock:
            hand.drop()
            watched_by, hand.watched_by = hand.watched_by, None
        if watched_by is not None and watched_by is current_scheduler():
            watched_by.unwatch(self._watch, wait=False)
        if held is not None:
            held.close()

    def fail(self, error: BaseException) -> None:
        """End with the current message as its lease does when its block raises this error.

        Any error but an `Exception` releases it, uncounted.
        """
        lease = self._hand.as_lease()
        try:
            if lease is not None:
                lease.__exit__(type(error), error, error.__traceback__)
        finally:
            self._hand.drop()

    def give_up(self) -> None:
        """Release the current message, if it has no verdict; a failure is logged, and its lease expires."""
        self.fail(GeneratorExit())

    def _step(self, claims: bool) -> Message | None:
        """Go the short way with the ack, the claim, or both, and the usual way with an ack that needs it."""
        hand, short = self._hand, self.is_short
        last = hand.begin_ack()
        if last is None or not short:
            self._end_lease(hand.as_lease(acked=True))
            last = None
        claims = claims and short and (self._expects_plain or last is not None)
        if last is None and not claims:
            return None
        stepped, asked_at = self._send(last, claims)
        if last is not None and stepped.how == "slow":
            self._end_lease(hand.as_lease(acked=True))
        self._expects_plain = stepped.how == "open" or not claims
        if stepped.how == "open":
            return self._take(self.nonce, stepped.opening, stepped.entry, asked_at)
        hand.drop()
        return None

    def _send(self, last: OpenLease | None, claims: bool) -> tuple[Stepped, float]:
        session, asked = self._session, self._hand.request
        nonce = self.nonce
        request = ClaimRequest(nonce, nonce, 1, asked.lease_seconds, asked.keep_seconds, consumer=session.consumer)
        asked_at = elapsed_clock()
        operation = ack_and_claim_operation(
            session.keys, session.rules, request, last, claims=claims, clock=elapsed_clock
        )
        try:
            return session.runner.run(operation, held=self._held), asked_at
        except WrongKeyTypeError:  # what is wrong may be at a key that the ack alone would not meet
            return SLOW, asked_at
        except RedisMessageQueueError as failure:
            if last is None:
                raise
            raise self._not_acked(failure, last.entry) from failure
        except BaseException:
            self._nonce = None  # the claim was undone, and its nonce claims no more
            raise

    def _take(self, name: bytes, opening: bytes, entry: bytes, asked_at: float) -> Message | None:
        """Take a plain message as the current one, unless the queue object stopped meanwhile."""
        self._nonce = None
        self._hand.take(OpenLease(name, name + b":" + opening, asked_at, entry), self._watch)
        if self.is_stopping:
            self.give_up()
            return None
        return Message(entry, 1, 1)

    def _claim(self, claim: ClaimOne, wait_seconds: float) -> Message | None:
        """Claim the usual way; the message needs its lease object unless it is plain."""
        nonce = self.nonce
        try:
            lease, batch = claim(nonce, wait_seconds)
        except RedisMessageQueueError:
            raise
        except BaseException:
            self._nonce = None
            raise
        if not lease:
            return None
        self._nonce = None
        (message,) = lease
        self.expect_like(message)
        if self.is_short and is_plain(message.entry) and batch.takeovers == 0:
            return self._take(nonce, batch.opening.encode(), message.entry, batch.confirmed_at)
        self._hand.take_lease(lease)
        lease.__enter__()
        return message

    def _end_lease(self, lease: Lease | None) -> None:
        """Ack the message of a lease object, unless it has a verdict; that the lease was lost is only logged.

        Raises:
            CleanupFailedError: it could not be acked.
        """
        if lease is None:
            return
        try:
            lease.__exit__(None, None, None)
        except LeaseLostError as lost:
            _log.warning("queue %r: %s", self._session.keys.name, lost)
        except RedisMessageQueueError as failure:
            raise self._not_acked(failure, lease.messages[0].entry) from failure
        finally:
            self._hand.drop()

    def _not_acked(self, failure: RedisMessageQueueError, entry: bytes) -> CleanupFailedError:
        name = self._session.keys.name
        return CleanupFailedError(
            f"queue {name!r}: the handler finished, but its message could not be acked "
            f"({type(failure).__name__}); it will be delivered again",
            queue=name,
            operation="settle",
            message_id=Message(entry).id,
        )
