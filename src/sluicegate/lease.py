# Made from src/sluicegate/asyncio/lease.py by `make format`; edit there.
"""A lease: a batch of messages that one holder works on, settled message by message or whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType

from sluicegate._lease_base import LeaseBase, OnBatchError, Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import replies
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import ClaimRequest, QueueRules
from sluicegate.errors import LeaseLostError, RedisMessageQueueError
from sluicegate.heartbeat import scheduler
from sluicegate.message import Message
from sluicegate.operation_runner import OperationRunner
from sluicegate.runtime import current_owner, notify

__all__ = ["Lease"]

_log = logging.getLogger("sluicegate")


class Lease(LeaseBase):
    """A batch of messages leased to this holder.

    Falsy unless it holds messages; `state` tells why. As a context manager it beats in the background, and leaving
    the block acks what has no
    verdict yet. When the block raises an `Exception`, the message in hand is nacked with the error, messages already
    yielded
    are released or acked as `on_batch_error` says, those not yet yielded are released; a block that never iterated
    has its whole batch
    nacked. Any other `BaseException` releases everything.

    A message has one verdict per lease. Verdicts raise `LeaseLostError` when they came too late.
    """

    def __init__(
        self,
        runner: OperationRunner,
        keys: QueueKeys,
        config: QueueConfig,
        rules: QueueRules,
        request: ClaimRequest,
        reply: replies.ClaimReply,
        *,
        lease_id: str,
        chosen: bool,
        asked_at: float,
        on_batch_error: OnBatchError,
        heartbeat: bool,
    ) -> None:
        super().__init__(
            keys,
            config,
            rules,
            request,
            reply,
            lease_id=lease_id,
            chosen=chosen,
            asked_at=asked_at,
            on_batch_error=on_batch_error,
            emits_events=runner.emits_events,
        )
        self.holder = current_owner()
        self._runner = runner
        self._heartbeat = heartbeat
        self._heartbeat_seconds: float | None = None
        self._beats = False

    @property
    def beats_through(self) -> object:
        """What its heartbeats are sent through: those of one gateway wait for each other, and for no other's."""
        return self._runner.gateway

    def ack(self, *messages: Message | Iterable[Message]) -> None:
        """The messages are done; without arguments, all that have no verdict."""
        self.settle(*(Verdict("ack", message) for message in messages) if messages else (Verdict("ack"),))

    def nack(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        delay_seconds: float = 0,
        error: BaseException | str | None = None,
    ) -> None:
        """The messages failed: claimable again, after a delay if given; counts as a delivery and may bury them for
        their count.
        """
        self.settle(Verdict("nack", messages, delay_seconds, error))

    def release(self, messages: Message | Iterable[Message] | None = None) -> None:
        """The messages were not worked on: claimable again, not counted up to three times."""
        self.settle(Verdict("release", messages))

    def bury(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        error: BaseException | str | None = None,
        reason: str = "buried",
    ) -> None:
        """The messages are hopeless: dead, with reason and error."""
        self.settle(Verdict("bury", messages, error=error, reason=reason))

    def settle(self, *verdicts: Verdict) -> None:
        """Give several verdicts at once: all of them take effect, or the error names the slots that did not.

        It is one call to Redis unless it takes back, buries or discards more than 1,000 messages (4 MB). Then it is
        several, the acks all in the last, and a call that fails leaves the rest for the same verdicts given again.

        Raises:
            LeaseLostError: some verdicts came too late.
            AlreadySettledError: a message has another verdict, or is not of this lease.
        """
        self._runner.run(self._settling(self._groups(verdicts)))

    def _settle_ahead(self) -> None:
        """At most once: ack all of it before any of it is handled."""
        self._runner.run(self._settling(self._ack_ahead()))

    def extend(self, lease_seconds: float | None = None) -> None:
        """Move the deadline to now plus `lease_seconds` (default: as claimed or last extended).

        Raises:
            LeaseLostError: the lease is gone, in another hand, or has reached its longest life.
        """
        extended = self._runner.run(self._extending(lease_seconds))
        if extended is not replies.Extended.OK:
            what = "over its longest life" if extended is replies.Extended.OVER else "lost"
            raise LeaseLostError(
                f"lease {self.id!r} cannot be extended: it is {what}",
                lease_id=self.id,
                lost=self._ledger.open,
            ).locate(queue=self._keys.name, operation="extend", message_id=self._only(self._ledger.open))

    def start_heartbeat(self, interval_seconds: float | None = None) -> None:
        """Extend in the background until `stop_heartbeat`.

        Args:
            interval_seconds: between extensions. None: as the queue's `heartbeat_interval_seconds` says, a third of the
                lease by default, and nothing when that is 0.

        Raises:
            ConfigurationError: an interval that is not less than half of the lease.
        """
        self._check_interval(interval_seconds)
        interval = interval_seconds or self._heartbeat_seconds or self._configured_interval()
        if not self.messages or interval is None:
            return
        self._heartbeat_seconds = interval
        self._beats = True
        scheduler().watch(self, interval)

    def stop_heartbeat(self) -> None:
        """No extension begins after this."""
        if self._beats:
            self._beats = False
            scheduler().unwatch(self)

    def beat(self) -> float | None:
        """One heartbeat, for the scheduler: extends once without retries; returns the seconds to the next, None for
        no more.
        """
        if self._finished:
            return None
        interval = self._heartbeat_seconds or self._lease_seconds / 3
        try:
            extended = self._runner.run(self._extending(), retry=False)
        except RedisMessageQueueError as error:
            _log.warning("heartbeat of lease %r failed: %s", self.id, type(error).__name__)
            if self._silence() <= 2 * self._lease_seconds:
                return min(interval, 1.0)
            self._report_stopped("Redis could not be reached for twice its life")
            return None
        if self._finished:
            return None
        if extended is not replies.Extended.OK:
            self._report_stopped("it is lost or over its longest life")
            return None
        return interval

    def _report_stopped(self, why: str) -> None:
        _log.warning("the heartbeat of lease %r stops: %s", self.id, why)
        if self._config.on_heartbeat_failure is not None:
            notify(self._config.on_heartbeat_failure)

    def __enter__(self) -> Lease:
        if self._heartbeat:
            self.start_heartbeat()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop_heartbeat()
        finally:  # an interruption leaves no message in a lease that nobody holds
            self._settle_at_exit(error)

    def _settle_at_exit(self, error: BaseException | None) -> None:
        if not self.messages:
            return
        retry = error is None or isinstance(error, Exception)  # what interrupts a block goes on after one attempt
        if self._acked_ahead:
            self._conclude(error, retry)
            return
        try:
            self._runner.run(self._settling(self._groups(self._exit_verdicts(error))), retry=retry)
        except RedisMessageQueueError as failure:
            if error is None:
                raise
            _log.warning("lease %r could not be settled after its block failed: %s", self.id, failure)

    def _conclude(self, error: BaseException | None, retry: bool) -> None:
        """A history that cannot be written fails no handler: its message will not be delivered again."""
        try:
            self._runner.run(self._concluding(error), retry=retry)
        except RedisMessageQueueError as failure:
            _log.warning("how the handling of lease %r ended could not be recorded: %s", self.id, failure)
