# Made from src/sluicegate/asyncio/consumer.py by `make format`; edit there.
"""What a consumer does with messages, whatever they wait in: claim them, process them, and end with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import ClassVar, Self

from sluicegate import spans
from sluicegate._arguments import Handler, claim_of
from sluicegate._handle_operations import attach, attached_claim, extend_detached
from sluicegate._lease_base import Claim, ClaimedBatch, OnBatchError, Verdict
from sluicegate._lease_operations import ack_ahead, settle
from sluicegate.administration import QueueAdministration
from sluicegate.batches import Batch
from sluicegate.clock import elapsed_clock
from sluicegate.config import QueueSpec
from sluicegate.core.transitions.claim import ClaimReply, Empty, claim_operation
from sluicegate.errors import ConfigurationError
from sluicegate.lease import Lease, one_message, shown
from sluicegate.lease_handle import LeaseHandle
from sluicegate.message import Message
from sluicegate.message_loop import MessageLoop
from sluicegate.runtime import current_owner, ensure_result, give_way, is_unawaited
from sluicegate.session import Session, close_session, shut_down_session
from sluicegate.spec import SpecKind
from sluicegate.steps import Steps

__all__ = ["QueueConsumer"]


class QueueConsumer(QueueAdministration):
    """Something that messages are claimed from: a queue, a group of a stream, or a queue of jobs.

    The drain engine, the worker and the adapters take any of them.

    Attributes:
        kind: which of them it is; its spec carries it.
    """

    kind: ClassVar[SpecKind] = "queue"

    def __init__(self, session: Session, *, owns_gateway: bool) -> None:
        super().__init__(session)
        self._owns_gateway = owns_gateway
        self._idle_steps: list[Steps] = []  # those that no thread or task uses now

    @property
    def group_name(self) -> str | None:
        """Return the name of the group of a stream; None for anything else."""
        return None

    # ------------------------------------------------------------------ claim

    def claim(
        self,
        limit: int = 1,
        *,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        lease_id: str | None = None,
        take_over_after_seconds: float | None = None,
        retention_seconds: float | None = None,
        remember_empty: bool = False,
        heartbeat: bool = True,
        on_batch_error: OnBatchError = "release",
        exclude_run: str | None = None,
    ) -> Lease:
        """Lease up to `limit` messages, oldest first, after expired and due ones have been returned to the queue.

        A claim that is repeated under its `lease_id` finds its own lease, open or ended. It never takes a second batch
        while the first is remembered, so a retried task continues where it stopped.

        Args:
            limit: the most messages to lease, up to 10,000. A lease takes no more once it has 8 MB, or 512 kB with
                `enable_completed_queue`. Messages that failed before come in smaller batches, the last time alone.
            lease_seconds: the lease's life without a heartbeat; default `visibility_timeout_seconds`.
            wait_seconds: how long to wait for a first message; 0 never blocks.
            lease_id: a name that a retry would use again; made by the library when left out.
            take_over_after_seconds: what to do when another consumer holds the lease of this id. None answers `HELD`;
                otherwise the lease is taken over once that consumer has been silent for this long (0: at once). A
                takeover counts as a delivery.
            retention_seconds: how long the end of this lease is remembered; at least an hour and ten leases.
            remember_empty: remember an `EMPTY` answer under this `lease_id` for ten minutes, so that a retry gets it
                again.
            heartbeat: extend in the background inside the `with` block, as `heartbeat_interval_seconds` says.
            on_batch_error: what happens to messages already yielded when the block raises: `release` or `ack`.
            exclude_run: a run that does not claim again what it returned itself: such messages are put off for the life
                of this lease, 30 s at most, uncounted.

        Raises:
            ConfigurationError: an argument that cannot work.
            RedisUnavailableError: Redis cannot be reached.
        """
        session = self.session
        claim = claim_of(
            session,
            limit,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            lease_id=lease_id,
            take_over_after_seconds=take_over_after_seconds,
            retention_seconds=retention_seconds,
            remember_empty=remember_empty,
            heartbeat=heartbeat,
            on_batch_error=on_batch_error,
            exclude_run=exclude_run,
        )
        lease, _ = self._open(claim, wait_seconds, take_over_after_seconds)
        return lease

    def _open(
        self, claim: Claim, wait_seconds: float, take_over_after_seconds: float | None = None
    ) -> tuple[Lease, ClaimedBatch]:
        """Claim as asked; see `claim`."""
        session = self.session
        begun = asked_at = elapsed_clock()

        def clock() -> float:  # the operation reads it before each claim, and a lease's life begins no later
            nonlocal asked_at
            asked_at = elapsed_clock()
            return asked_at

        reply: ClaimReply = Empty()
        if session.activity.stopping():
            give_way()
        else:
            reply = session.runner.run(
                claim_operation(
                    session.keys,
                    session.rules,
                    claim.request,
                    clock=clock,
                    wait_seconds=wait_seconds,
                    take_over_after_seconds=take_over_after_seconds,
                    emits_events=session.runner.emits_events,
                    lease_id=claim.lease_id if claim.is_named else None,
                )
            )
        batch = ClaimedBatch(session, claim, reply, asked_at)
        if not batch.leased:
            return self._lease_of(batch), batch
        if spans.tracer is not None:
            spans.tracer.claimed(session, batch, begun)
        if session.activity.stopping():  # the queue stopped while claiming, so release the lease
            released = batch.verdicts.record((Verdict("release"),))
            session.runner.run(settle(session, batch, released))
            batch.give_up()
            return self._lease_of(batch), batch
        if session.config.visibility_timeout_seconds is None:
            session.runner.run(ack_ahead(session, batch))
            return self._lease_of(batch), batch
        lease = self._lease_of(batch)
        session.activity.hold(lease, batch, current_owner())
        return lease, batch

    def attach(
        self,
        handle: LeaseHandle,
        *,
        lease_seconds: float | None = None,
        retention_seconds: float | None = None,
        heartbeat: bool = True,
    ) -> Lease:
        """Continue with a lease that `lease.detach()` handed over: the messages that have no verdict yet.

        It is the same lease: the same opening and token, no new delivery, and no other messages. It is extended in the
        background from here on, and leaving its block settles it as after a claim; `detach` hands it on again. Several
        attachments hold the same token. The first verdict of a message takes effect; the same one again counts as done,
        and another one raises `LeaseLostError`.

        Args:
            handle: from `lease.detach()`.
            lease_seconds: the lease's life without a heartbeat; default: as when it was detached.
            retention_seconds: how long the end of this lease is remembered, as for `claim`.
            heartbeat: extend in the background, as `heartbeat_interval_seconds` says.

        Raises:
            ConfigurationError: the handle is of another queue, or an argument cannot work.
            LeaseEndedError: every message of the lease has a verdict; the error has their counts.
            LeaseLostError: the lease expired, or another consumer took it over.
            QueueDrainedError: this queue object was closed.
        """
        session = self.session
        claim = attached_claim(
            session,
            handle,
            lease_seconds=lease_seconds,
            retention_seconds=retention_seconds,
            heartbeat=heartbeat,
        )
        batch = session.runner.run(attach(session, handle, claim))
        lease = self._lease_of(batch)
        session.activity.hold(lease, batch, current_owner())
        if heartbeat:
            lease.start_heartbeat()
        return lease

    def extend(self, handle: LeaseHandle, lease_seconds: float | None = None) -> None:
        """Move the deadline of a detached lease to now plus `lease_seconds`, without reading its messages.

        It is one small call, for a task that keeps a lease alive between others.

        Args:
            handle: from `lease.detach()`.
            lease_seconds: default: as when it was detached.

        Raises:
            LeaseEndedError: every message of the lease has a verdict.
            LeaseLostError: the lease expired, another consumer took it over, or it has reached `max_lease_seconds`.
        """
        self.session.runner.run(extend_detached(self.session, handle, lease_seconds))

    @contextmanager
    def process_message(self) -> Iterator[str | bytes | None]:
        """Wait for one message and yield its payload, or None when none came in time.

        Leaving the block acks the message. An exception nacks it with a growing delay, or as `on_error` says, and
        propagates. A lost lease is logged and emitted as an event, never raised. The payload is a str when the client
        has `decode_responses=True` and the payload is UTF-8, else bytes.

        A heartbeat keeps the message for as long as the block takes; `heartbeat_interval_seconds=0` turns it off, and
        `max_lease_seconds` bounds it.
        """
        with self._one_message() as found:
            if found is None:
                yield None
            else:
                yield shown(found[0].payload, decodes=self.session.runner.gateway.decodes_responses)

    def process_message_callback(self, handler: Handler) -> bool:
        """Claim at most one message as `process_message` does, and call `handler` with its payload.

        Returns:
            True when a message was handled and acked, False when none came in time.

        Raises:
            TypeError: the handler returned an awaitable, which this queue cannot await; the message was released.
        """
        with self._one_message() as found:
            if found is None:
                return False
            message, release = found
            result = handler(shown(message.payload, decodes=self.session.runner.gateway.decodes_responses))
            if is_unawaited(result):
                release()
            ensure_result(result)
        return True

    def consume(
        self,
        limit: int | None = None,
        *,
        wait_seconds: float | None = None,
        lease_seconds: float | None = None,
    ) -> MessageLoop:
        """Return an iterator over messages, one at a time, which acks each message in the call that claims the next.

        It does what a loop around `process_message` does, in half the calls. Each step of the loop means that the
        message before was handled. A heartbeat keeps a message that takes long. An ack that came too late is logged.
        The loop ends at the limit, when the queue object is closed or interrupted, and when no message came in time. As
        a context manager it also learns how the loop ended:

            with queue.consume() as messages:
                for message in messages:
                    handle(message.json())

        An exception nacks the current message, or does as `on_error` says, and propagates. Leaving the block otherwise
        acks it. Without the block nothing reports an exception: leaving the loop early, by `break` or by an exception,
        releases the current message, uncounted. `messages.nack()`, `release()`, `bury()` and `ack()` give the current
        message its verdict, and the loop continues.

        Args:
            limit: how many messages; None for no limit.
            wait_seconds: how long to wait for each; 0 ends at an empty queue, None waits until the queue object stops.
            lease_seconds: the life of each lease without a heartbeat; default `visibility_timeout_seconds`.

        Raises:
            ConfigurationError: an argument that cannot work.
        """
        steps = Steps(self.session, lease_seconds, may_be_short=self._may_be_short)
        return MessageLoop(steps, partial(self._claim_next, lease_seconds), limit, wait_seconds)

    @contextmanager
    def _one_message(self) -> Iterator[tuple[Message, Callable[[], None]] | None]:
        """Claim a message, and yield it with a function that releases it; yield None when none came in time."""
        try:
            steps = self._idle_steps.pop()
        except IndexError:
            steps = Steps(self.session, None, may_be_short=self._may_be_short)
        try:
            if (plain := steps.claim_plain()) is not None:
                try:
                    yield plain, steps.release
                except BaseException as error:
                    steps.fail(error)
                    raise
                steps.advance(None)
                return
            with one_message(self.session, self.claim) as lease:
                if lease:
                    (message,) = lease
                    steps.expect_like(message)
                    yield message, lease.release
                else:
                    yield None
        finally:
            steps.rest()
            self._idle_steps.append(steps)

    def _claim_next(self, lease_seconds: float | None, nonce: bytes, wait_seconds: float) -> tuple[Lease, ClaimedBatch]:
        """Claim one message under a nonce, the usual way."""
        claim = claim_of(
            self.session,
            1,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            lease_id=None,
            take_over_after_seconds=None,
            retention_seconds=None,
            remember_empty=False,
            heartbeat=True,
            on_batch_error="release",
            exclude_run=None,
            nonce=nonce,
        )
        return self._open(claim, wait_seconds)

    @property
    def _may_be_short(self) -> bool:
        """Return whether messages may be claimed and acked by one small script: not those of groups, nor jobs."""
        return self.kind == "queue"

    def get_batch(self, batch_id: str) -> Batch:
        """Return a batch by its id, to read its status or wait for it; no I/O.

        Raises:
            ConfigurationError: an id that no batch may have.
        """
        return Batch(self.session, batch_id)

    def _lease_of(self, batch: ClaimedBatch) -> Lease:
        """Return a lease over what was claimed; what consumes more than messages has leases of its own."""
        return Lease(self.session, batch)

    # ------------------------------------------------------------------ spec and end

    def spec(self) -> QueueSpec:
        """This queue as executors and triggers get it: JSON, without its secret.

        Raises:
            ConfigurationError: the queue was made from a client, or its URL carries a password.
        """
        address = self.session.runner.gateway.address
        if address is None:
            raise ConfigurationError(
                f"queue {self.name!r} was made from a client, which cannot be serialized; make it from a URL"
            )
        return QueueSpec(self.name, address.portable_url(), self.session.config.portable(), self.kind, self.group_name)

    def shutdown(self, timeout: float | None = 30.0) -> bool:
        """Stop publishing and claiming with this object, and release what it holds.

        Waits for other threads or tasks to settle their leases and end their publishes, then releases what they still
        hold, uncounted. The caller's own leases are left to it, so that a signal handler may call this: it would
        otherwise wait for itself. The queue in Redis and other objects are not touched.

        Args:
            timeout: seconds to wait; 0 only stops and reports, None waits until the others have ended.

        Returns:
            True when nothing is held and nothing is being published any more.

        Raises:
            ConfigurationError: a timeout that is neither None nor a number of 0 or more; then nothing was stopped.
        """
        return shut_down_session(self.session, timeout)

    def drain(self, timeout: float | None = 30.0) -> bool:
        """Do the same as `shutdown`, under its name in redis-message-queue; nothing is drained from the queue."""
        return self.shutdown(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop publishing and claiming, release the leases made here, and close the connections made here.

        A lease object without references is not released; it expires.
        """
        close_session(self.session, owns_gateway=self._owns_gateway)
