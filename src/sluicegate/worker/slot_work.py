# Made from src/sluicegate/asyncio/worker/slot_work.py by `make format`; edit there.
"""What each slot of a worker does: claim a message, have it handled, and settle it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sluicegate.clock import elapsed_clock
from sluicegate.core import policies
from sluicegate.errors import InvalidPayloadError, RedisMemoryError, RedisMessageQueueError, RedisUnavailableError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.handling.assignment import Assignment
from sluicegate.handling.delivery import Delivery
from sluicegate.handling.middleware import Middleware
from sluicegate.handling.report import End
from sluicegate.handling.routes import Route, Routes, UnawaitedError
from sluicegate.handling.run import Run
from sluicegate.handling.verdicts import Limits, Outcome, Policy
from sluicegate.lease import Lease
from sluicegate.options import RetryBackoff
from sluicegate.runtime import pause
from sluicegate.worker.chain import run_chain
from sluicegate.worker.slots import Slots, make_turn

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer

__all__ = ["SlotWork"]

_MAX_NAMED_TYPES = 100  # unhandled types that are logged, so that a publisher's random ones fill no memory
_log = logging.getLogger("sluicegate")
_OUTCOMES = {
    End.HANDLED: EventOutcome.SUCCESS,
    End.FAILED: EventOutcome.FAILURE,
    End.REJECTED: EventOutcome.REFUSED,
    End.INVALID: EventOutcome.REFUSED,
    End.UNHANDLED: EventOutcome.UNHANDLED,
}


class SlotWork:
    """Claims messages and has them handled, in as many slots as call it.

    Every message has a lease of its own. While messages come, the slots claim side by side; when none does, one of them
    waits for the next and the others wait for their turn, so that an idle worker has one waiting connection.

    Args:
        run: the run under way.
        queue: the queue as the run uses it.
        routes: the handlers.
        policy: what the end of a delivery means.
        middleware: the hooks around the handlers.
        name: of the worker.
        lease_seconds: the life of each lease without a heartbeat; None for the queue's.
        restart_backoff: the pause after Redis stayed away, one of tenacity's wait strategies.
    """

    def __init__(
        self,
        run: Run[Lease],
        queue: QueueConsumer,
        routes: Routes,
        policy: Policy,
        middleware: Sequence[Middleware],
        name: str,
        lease_seconds: float | None,
        restart_backoff: RetryBackoff,
    ) -> None:
        self._run = run
        self._queue = queue
        self._routes = routes
        self._policy = policy
        self._middleware = middleware
        self._name = name
        self._lease_seconds = lease_seconds
        self._restart_backoff = restart_backoff
        self._limits = Limits.of(queue.session.config)
        self._turn = make_turn()
        self._outages = 0
        self._named: set[str | None] = set()

    def __call__(self, slots: Slots) -> None:
        """Claim and handle messages, one after the other, until the run ends."""
        run, busy = self._run, True
        while run.may_claim():
            lease = self._claim(busy)
            busy = lease is not None
            if lease is not None:
                self._deliver(slots, lease)
            elif run.is_bounded:
                run.finds_nothing()

    # ------------------------------------------------------------------ claim

    def _claim(self, busy: bool) -> Lease | None:
        """Return the lease of one message; None when none came in time.

        Args:
            busy: whether this slot's last claim found a message, so that another one is likely.
        """
        if busy and (lease := self._claim_once(0)):
            return lease
        if busy and not self._run.wait_seconds:
            return None
        with self._turn:
            if self._run.stopping() or self._run.is_dry:
                return None
            return self._claim_once(self._run.wait_seconds)

    def _claim_once(self, wait_seconds: float) -> Lease | None:
        """Claim one message; while Redis is away, pause instead.

        Raises:
            RedisUnavailableError: Redis is away, and the run does not wait for its return.
        """
        try:
            lease = self._queue.claim(1, lease_seconds=self._lease_seconds, wait_seconds=wait_seconds)
        except (RedisUnavailableError, RedisMemoryError) as error:
            if self._run.is_bounded:
                raise
            self._outages += 1
            seconds = policies.pause_seconds(self._restart_backoff, self._outages, error)
            _log.warning("worker %r: %s; it claims again in %.1f s", self._name, type(error).__name__, seconds)
            pause(seconds, self._run.stopping)
            return None
        self._outages = 0
        return lease or None

    # ------------------------------------------------------------------ deliver

    def _deliver(self, slots: Slots, lease: Lease) -> None:
        """Have the message of a lease handled, and settle it."""
        run = self._run
        (message,) = lease
        run.hold(lease)
        try:
            with lease:
                try:
                    outcome = self._handle(slots, Assignment.of(lease, message, self._limits))
                except UnawaitedError:
                    lease.release()
                    raise
                if lease.unsettled:  # a handler may have settled a job itself
                    lease.settle(outcome.verdict)
        except RedisMessageQueueError as failure:
            _log.warning(
                "worker %r: message %r was handled, and its verdict was not accepted (%s); it is delivered again",
                self._name,
                message.id,
                type(failure).__name__,
            )
            run.end(lease, End.LOST)
        except BaseException:  # leaving the block has released the message
            run.end(lease, End.RELEASED)
            raise
        else:
            run.end(lease, outcome.end, buried=lease.counts.buried > 0)

    def _handle(self, slots: Slots, given: Assignment) -> Outcome:
        """Call the handler of a message, and return what follows for the message."""
        begun, message = elapsed_clock(), given.message
        route = self._routes.find(given.message_type)
        if route is None:
            outcome = self._policy.unhandled(message, given.message_type, given.limits)
            self._warn_of(given.message_type)
        else:
            outcome = self._call(slots, route, given)
            if outcome.error is not None:
                _log.warning(
                    "worker %r: attempt %d of message %r of type %r failed with %s",
                    self._name,
                    message.delivery_count,
                    message.id,
                    given.message_type,
                    type(outcome.error).__name__,
                )
        runner = self._queue.session.runner
        if runner.emits_events:
            event = QueueEvent(
                EventOperation.HANDLE,
                _OUTCOMES[outcome.end],
                self._queue.name,
                lease_id=given.lease.id,
                message_id=message.id,
                delivery_count=message.delivery_count,
                error=outcome.error,
                message_type=given.message_type,
            )
            runner.emit(event, begun)
        return outcome

    def _call(self, slots: Slots, route: Route, given: Assignment) -> Outcome:
        message, policy = given.message, self._policy
        try:
            payload = route.read(given.incoming)
        except InvalidPayloadError as error:
            return policy.invalid(message, error)
        except Exception as error:  # noqa: BLE001  (a model's own code, whatever it raises)
            return policy.raised(message, error, route.retry, given.limits)
        most = policy.max_attempts(route.retry, given.limits)
        delivery = Delivery(message, given.message_type, payload, self._name, most, given.lease, given.job)
        arguments: tuple[Any, ...] = (payload, delivery) if route.takes_delivery else (payload,)
        call = partial(slots.call, route.function, route.is_async, *arguments)
        try:
            result = run_chain(self._middleware, delivery, call, false_fails=given.job is None)
            return policy.handled(message, given.stored_result(result))
        except UnawaitedError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever a handler raises is its failure)
            return policy.raised(message, error, route.retry, given.limits)

    def _warn_of(self, message_type: str | None) -> None:
        """Log that nothing handles a type, once per type; the event comes with each message."""
        if message_type not in self._named and len(self._named) < _MAX_NAMED_TYPES:
            self._named.add(message_type)
            _log.warning(
                "worker %r of queue %r has no handler for type %r; on_unhandled is %r",
                self._name,
                self._queue.name,
                message_type,
                self._policy.on_unhandled,
            )
