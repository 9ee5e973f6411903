# Made from src/sluicegate/asyncio/lease.py by `make format`; edit there.
"""A lease: a batch of messages that one consumer works on, with its heartbeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Self

from sluicegate import _lease_operations, checks, spans
from sluicegate._lease_base import ClaimedBatch, LeaseBase, Verdict
from sluicegate.config import QueueConfig
from sluicegate.core.keys import text_of
from sluicegate.core.transitions.extend import Extended
from sluicegate.errors import (
    AlreadySettledError,
    CleanupFailedError,
    ConfigurationError,
    LeaseLostError,
    RedisMessageQueueError,
)
from sluicegate.heartbeat import HeartbeatScheduler, scheduler
from sluicegate.lease_handle import LeaseHandle
from sluicegate.message import Message
from sluicegate.operation_runner import OperationRunner
from sluicegate.runtime import notify
from sluicegate.session import Session

__all__ = ["Lease", "LeaseHeartbeat", "current_scheduler", "interval_for", "one_message", "shown"]

_log = logging.getLogger("sluicegate")


class LeaseHeartbeat:
    """Extends one lease in the background; the scheduler of the process calls `beat` when it is due.

    Only the lease refers to it: a lease that its consumer has dropped is extended no more, and expires.

    Args:
        session: of the queue.
        batch: the lease's batch.
        interval_seconds: between extensions.
    """

    def __init__(self, session: Session, batch: ClaimedBatch, interval_seconds: float) -> None:
        self.lease_id = batch.claim.lease_id
        self.beats_through = session.runner.gateway
        self.is_running = False
        self.interval_seconds = interval_seconds
        self._session = session
        self._batch = batch

    def start(self, interval_seconds: float, *, first_after: float | None = None) -> None:
        """Extend the lease at this interval until `stop`, for the first time after as long, or `first_after`."""
        self.interval_seconds = interval_seconds
        self.is_running = True
        scheduler().watch(self, interval_seconds if first_after is None else first_after)

    def stop(self, *, wait: bool = True) -> None:
        """Begin no extension after this; `wait` for one that is under way."""
        if self.is_running:
            self.is_running = False
            scheduler().unwatch(self, wait=wait)

    def beat(self) -> float | None:
        """Extend the lease once, without retries; returns the seconds to the next beat, None for no more."""
        batch = self._batch
        if batch.is_finished:
            return None
        try:
            extended = self._session.runner.run(_lease_operations.extend(self._session, batch), retry=False)
        except RedisMessageQueueError as error:
            _log.warning("heartbeat of lease %r failed: %s", self.lease_id, type(error).__name__)
            if batch.silent_for_seconds <= 2 * batch.lease_seconds:
                return min(self.interval_seconds, 1.0)
            self._report_stopped("Redis could not be reached for twice its life")
            return None
        if batch.is_finished:
            return None
        if extended is not Extended.OK:
            self._report_stopped("it is lost or over its longest life")
            return None
        return self.interval_seconds

    def _report_stopped(self, why: str) -> None:
        _log.warning("the heartbeat of lease %r stops: %s", self.lease_id, why)
        if self._session.config.on_heartbeat_failure is not None:
            notify(self._session.config.on_heartbeat_failure)


def current_scheduler() -> HeartbeatScheduler:
    """Return the scheduler that leases are watched by: that of this process, or of the running event loop."""
    return scheduler()


def interval_for(config: QueueConfig, lease_seconds: float, asked: float | None, last: float | None) -> float | None:
    """Return the seconds between the heartbeats of a lease; None for no heartbeat.

    Args:
        config: the queue's options.
        lease_seconds: the lease's life.
        asked: what the caller asked for, which comes first.
        last: the interval that this lease had before, which comes next.

    Raises:
        ConfigurationError: an interval that is not less than half of the lease.
    """
    if asked is not None:
        checks.positive("interval_seconds", asked)
        if asked >= lease_seconds / 2:
            raise ConfigurationError(
                f"interval_seconds={asked:g} must be less than half of the lease's {lease_seconds:g} s"
            )
        return asked
    if last is not None:
        return last
    configured = config.heartbeat_interval_seconds
    if configured == 0 or config.at_most_once:
        return None
    third = lease_seconds / 3
    return third if configured is None else min(configured, third)


class Lease(LeaseBase[OperationRunner]):
    """A batch of messages leased to this consumer.

    It is falsy unless it holds messages; `state` says why. As a context manager it extends itself in the background,
    and leaving the block acks the messages without a verdict.

    When the block raises an `Exception`, the current message is nacked with the error. Messages already yielded are
    released or acked, depending on `on_batch_error`, and those not yet yielded are released. If a block never iterated,
    its whole batch is nacked. Any other `BaseException` releases everything.

    A message has one verdict per lease. A verdict that comes too late raises `LeaseLostError`. `detach` hands the lease
    to another object, process or task.
    """

    _heartbeat: LeaseHeartbeat | None = None
    _trace: AbstractContextManager[None] | None = None

    def ack(self, *messages: Message | Iterable[Message]) -> None:
        """Mark messages as done; without arguments, all that have no verdict."""
        self.settle(*(Verdict("ack", message) for message in messages) if messages else (Verdict("ack"),))

    def nack(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        delay_seconds: float = 0,
        error: BaseException | str | None = None,
    ) -> None:
        """Mark messages as failed: they become claimable again, after the delay if one is given.

        A nack counts as a delivery, so it may bury a message that reaches `max_delivery_count`.
        """
        self.settle(Verdict("nack", messages, delay_seconds, error))

    def release(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Return messages that were not worked on: claimable again, and up to three times not counted as a delivery."""
        self.settle(Verdict("release", messages))

    def bury(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        error: BaseException | str | None = None,
        reason: str = "buried",
    ) -> None:
        """Turn messages into dead letters, with this reason and error."""
        self.settle(Verdict("bury", messages, error=error, reason=reason))

    def settle(self, *verdicts: Verdict) -> None:
        """Give several verdicts at once: all of them take effect, or the error names the slots that did not.

        This is one call to Redis unless it returns, buries or discards more than 1,000 messages (256 kB). Then it takes
        several, with all acks in the last, and a call that fails leaves the rest for the same verdicts given again.

        Raises:
            LeaseLostError: some verdicts came too late.
            AlreadySettledError: a message has another verdict, or belongs to another lease.
        """
        self._batch.refuse_detached()
        groups = self._batch.verdicts.record(verdicts)
        self._session.runner.run(_lease_operations.settle(self._session, self._batch, groups))

    def extend(self, lease_seconds: float | None = None) -> None:
        """Move the deadline to now plus `lease_seconds` (default: as claimed or last extended).

        Raises:
            LeaseLostError: the lease is gone, another consumer holds it, or it has reached `max_lease_seconds`.
        """
        session, batch = self._session, self._batch
        batch.refuse_detached()
        extended = session.runner.run(_lease_operations.extend(session, batch, lease_seconds))
        if extended is not Extended.OK:
            what = "over its longest life" if extended is Extended.OVER else "lost"
            lost = batch.verdicts.open
            raise LeaseLostError(
                f"lease {self.id!r} cannot be extended: it is {what}", lease_id=self.id, lost=lost
            ).locate(queue=session.keys.name, operation="extend", message_id=batch.verdicts.only_id(lost))

    def detach(self, lease_seconds: float | None = None) -> LeaseHandle:
        """Let the lease continue without this object, and return the handle that `queue.attach` takes.

        The lease is extended once, and nothing extends it after that until somebody attaches it: what is not attached
        or extended by its handle in time is delivered again. `close`, `shutdown` and leaving the block of this object
        leave the lease alone, and its other methods raise.

        Args:
            lease_seconds: how long the lease lives from now; default: as claimed or last extended.

        Raises:
            AlreadySettledError: no message is without a verdict, or the lease was detached before.
            LeaseLostError: the lease is lost; it stays with this object.
        """
        session, batch = self._session, self._batch
        batch.refuse_detached()
        if not batch.leased or batch.is_finished:
            raise AlreadySettledError(
                f"lease {self.id!r} holds no message without a verdict ({self.state.value}), so there is nothing to "
                "detach"
            ).locate(queue=session.keys.name)
        self.extend(lease_seconds)
        self.stop_heartbeat()
        batch.is_detached = True  # last: after an interruption the lease is still this object's to release
        return LeaseHandle(session.keys.full_name, self.id, text_of(batch.token), batch.lease_seconds)

    def start_heartbeat(self, interval_seconds: float | None = None) -> None:
        """Extend in the background until `stop_heartbeat`.

        Args:
            interval_seconds: between extensions. None: as the queue's `heartbeat_interval_seconds` says, a third of the
                lease by default, and nothing when that is 0.

        Raises:
            ConfigurationError: an interval that is not less than half of the lease.
        """
        heartbeat, batch = self._heartbeat, self._batch
        batch.refuse_detached()
        last = None if heartbeat is None else heartbeat.interval_seconds
        interval = interval_for(self._session.config, batch.lease_seconds, interval_seconds, last)
        if not self or interval is None:
            return
        if heartbeat is None:
            heartbeat = self._heartbeat = LeaseHeartbeat(self._session, batch, interval)
        heartbeat.start(interval)

    def stop_heartbeat(self, *, wait: bool = True) -> None:
        """End the background extensions: none begins after this.

        Args:
            wait: for an extension that is under way. False suits a lease that is left to expire.
        """
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=wait)

    def __enter__(self) -> Self:
        if self._batch.claim.heartbeat:
            self.start_heartbeat()
        if spans.tracer is not None:
            self._trace = self.traced()
            self._trace.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop_heartbeat()
        finally:  # an interruption must leave no message in a lease that nobody holds
            try:
                self._settle_at_exit(error)
            finally:
                if self._trace is not None:
                    self._trace.__exit__(kind, error, traceback)

    def _settle_at_exit(self, error: BaseException | None) -> None:
        session, batch = self._session, self._batch
        if not self or batch.is_detached:
            return
        retry = error is None or isinstance(error, Exception)  # an interruption propagates after one attempt
        if batch.is_acked_ahead:
            self._conclude(error, retry)
            return
        try:
            groups = batch.verdicts.record(_lease_operations.exit_verdicts(session.config, batch, error))
            session.runner.run(_lease_operations.settle(session, batch, groups), retry=retry)
        except RedisMessageQueueError as failure:
            if error is None:
                raise
            _log.warning("lease %r could not be settled after its block failed: %s", self.id, failure)

    def _conclude(self, error: BaseException | None, retry: bool) -> None:
        """Record how the handling ended. A failure here fails no handler: its message is not delivered again."""
        try:
            operation = _lease_operations.conclude(self._session, self._batch, error)
            self._session.runner.run(operation, retry=retry)
        except RedisMessageQueueError as failure:
            _log.warning("how the handling of lease %r ended could not be recorded: %s", self.id, failure)


@contextmanager
def one_message(session: Session, claim: Callable[..., Lease]) -> Iterator[Lease]:
    """Claim a message and yield its lease, which is empty when none came in time.

    A handler's error propagates. That the lease was lost is logged and never raised.

    Args:
        session: of the queue.
        claim: the queue's method.

    Raises:
        CleanupFailedError: the handler finished, but its message could not be acked.
    """
    lease = claim(wait_seconds=session.config.message_wait_interval_seconds)
    handled = False
    try:
        with lease:
            yield lease
            handled = True
    except LeaseLostError as lost:
        if lost.lease_id != lease.id:
            raise
        _log.warning("queue %r: %s", session.keys.name, lost)
    except RedisMessageQueueError as failure:
        if not handled:
            raise
        name = session.keys.name
        raise CleanupFailedError(
            f"queue {name!r}: the handler finished, but its message could not be acked "
            f"({type(failure).__name__}); it will be delivered again",
            queue=name,
            operation="settle",
            message_id=lease.messages[0].id,
        ) from failure


def shown(payload: bytes, *, decodes: bool) -> Any:
    """Return a payload as handlers get it: a str if the client decodes and it is UTF-8, otherwise bytes."""
    if not decodes:
        return payload
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
