"""The queue: a thin shell over the prepared calls."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, overload

from sluicegate import checks
from sluicegate._gateway_base import elapsed_clock
from sluicegate._lease_base import OnBatchError
from sluicegate._queue_base import ABSENT, Absent, Handler, refuse_unfit_gateway
from sluicegate.asyncio.administration import QueueAdministration
from sluicegate.asyncio.gateway import Client, Gateway, RedisGateway
from sluicegate.asyncio.lease import Lease
from sluicegate.asyncio.runtime import current_owner, ensure_result, give_way, is_unawaited, pause
from sluicegate.cancellation import heeds_cancellation  # asyncio only
from sluicegate.config import OPTIONS_ELSEWHERE, OnError, OverloadPolicy, QueueConfig, QueueSpec, RetryBackoff
from sluicegate.core import operations, replies
from sluicegate.core.call import Operation
from sluicegate.core.deduplication import DeduplicationPolicy, KeySource, PendingKey
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.publishing import MAX_PER_CALL, Batches, Payload
from sluicegate.core.values import Batch
from sluicegate.errors import (
    CleanupFailedError,
    ConfigurationError,
    LeaseLostError,
    NotDurableError,
    PublishUnknownError,
    QueueDrainedError,
    RedisMessageQueueError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.report import PublishReport
from sluicegate.signatures import explains_unknown_options

__all__ = ["RedisMessageQueue"]

_log = logging.getLogger("sluicegate")
_LOOK_SECONDS = 0.01  # between looks of a drain at what others still hold


@heeds_cancellation  # asyncio only
async def _key_of(pending: PendingKey) -> Any:  # asyncio only
    """What an async key function returns."""  # asyncio only
    return await pending.awaitable  # asyncio only


class RedisMessageQueue(QueueAdministration):
    """A queue of messages on Redis: deduplicated publishes, leased batches, at-least-once delivery.

    Constructing one does no I/O. Objects are safe to share between threads or tasks. `async with` closes it at the end.

    Args:
        name: of the queue; any text with a visible character in it.
        client: a `redis.asyncio.Redis` or `RedisCluster`; it stays the caller's to close.
        url: instead of a client: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `redis+cluster://` or
            `embedded:///folder`; the password by reference as `?password_env=NAME`.
        gateway: instead of both, a configured `RedisGateway` or another `Gateway`.
        deduplication: on if and only if a key function is given; saying so again is allowed, contradicting it is an
            error.
        get_deduplication_key: a callable from payload to key, a field name, a list of fields, or a template such as
            `"{tenant}:{order_id}"`. Called once per message per publish, never on a retry. What a callable of the
            asyncio queue returns may be awaitable; the keys of a call are awaited one after the other.
        deduplication_policy: `window`: a key refuses further messages for a time from the publish; `until_acked`: for
            as long as its message is waiting or in flight.
        deduplication_window_seconds: that time; default one hour. For `until_acked` a safety bound, seven days at
            least.
        visibility_timeout_seconds: life of a lease without a heartbeat; default 300. None, together with
            `max_delivery_count=None`, is at-most-once: messages are acked before their handler starts.
        heartbeat_interval_seconds: less than half of the visibility timeout. None, the default: a third of the
            lease, wherever messages are worked on; 0: no heartbeat.
        on_heartbeat_failure: called without arguments when a heartbeat stops because its lease could not be extended.
        max_delivery_count: deliveries after which a message is buried, crashes, takeovers and errors counted; None
            for no cap.
        max_lease_seconds: longest life of a lease, however often it is extended, kept by the server; None for no
            bound.
        on_error: what becomes of a message whose handler raised: `retry`, `bury` or `discard`. The exception always
            propagates.
        retry_backoff: how long it waits before its next delivery: a wait strategy of tenacity; default exponential
            from 1 s to 300 s with jitter.
        max_pending_length: most waiting messages (pending, returned, delayed) that a publish may leave; None for no
            bound.
        pending_overload_policy: what a publish beyond it does: `raise`, `block` or `drop_oldest`.
        pending_overload_block_timeout_seconds: how long `block` waits for room.
        enable_completed_queue: keep a record per acked message.
        max_completed_length: of so many, None for no bound.
        enable_failed_queue: keep a record per failed attempt.
        max_failed_length: of so many, None for no bound.
        max_dead_length: most dead letters; None, the default, loses none.
        strict_payload_types: refuse what JSON would change, such as tuples.
        max_payload_bytes: largest payload as stored.
        max_payload_depth: deepest nesting of dicts and lists.
        sort_keys: store dicts in the order of their keys, so that equal ones are the same bytes.
        strict_envelope_decoding: raise for values that something else put into the queue, and leave them there,
            instead of burying them as `foreign`.
        require_noeviction: publish only to a server that evicts no keys when it is full; otherwise one that does is
            warned of in the log, once per object.
        message_wait_interval_seconds: how long `process_message` waits for a message; 0 for not at all.
        retry_budget_seconds: how long a call is retried when Redis goes away; 0 disables.
        retry_initial_delay_seconds: first pause between attempts.
        retry_max_delay_seconds: longest pause.
        interrupt: stops claims, waits and blocked publishes once it is interrupted.
        on_event: told a `QueueEvent` after every transition; what it raises is logged and alters nothing.

    Raises:
        ConfigurationError: an option that cannot work as given.
    """

    @explains_unknown_options(OPTIONS_ELSEWHERE)
    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        url: str | None = None,
        gateway: Gateway | None = None,
        deduplication: bool | None = None,
        get_deduplication_key: KeySource | None = None,
        deduplication_policy: DeduplicationPolicy = "window",
        deduplication_window_seconds: float = 3600,
        visibility_timeout_seconds: float | None = 300,
        heartbeat_interval_seconds: float | None = None,
        on_heartbeat_failure: Callable[[], Any] | None = None,
        max_delivery_count: int | None = 10,
        max_lease_seconds: float | None = None,
        on_error: OnError = "retry",
        retry_backoff: RetryBackoff | None = None,
        max_pending_length: int | None = None,
        pending_overload_policy: OverloadPolicy = "raise",
        pending_overload_block_timeout_seconds: float = 1.0,
        enable_completed_queue: bool = False,
        max_completed_length: int | None = 1000,
        enable_failed_queue: bool = False,
        max_failed_length: int | None = 1000,
        max_dead_length: int | None = None,
        strict_payload_types: bool = False,
        max_payload_bytes: int | None = None,
        max_payload_depth: int | None = None,
        sort_keys: bool = False,
        strict_envelope_decoding: bool = False,
        require_noeviction: bool = False,
        message_wait_interval_seconds: float = 5,
        retry_budget_seconds: float = 120,
        retry_initial_delay_seconds: float = 0.01,
        retry_max_delay_seconds: float = 5.0,
        interrupt: BaseGracefulInterruptHandler | None = None,
        on_event: Callable[[QueueEvent], Any] | None = None,
    ) -> None:
        config = QueueConfig(
            get_deduplication_key=get_deduplication_key,
            deduplication=deduplication,
            deduplication_policy=deduplication_policy,
            deduplication_window_seconds=deduplication_window_seconds,
            visibility_timeout_seconds=visibility_timeout_seconds,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            on_heartbeat_failure=on_heartbeat_failure,
            max_delivery_count=max_delivery_count,
            max_lease_seconds=max_lease_seconds,
            on_error=on_error,
            retry_backoff=retry_backoff,
            max_pending_length=max_pending_length,
            pending_overload_policy=pending_overload_policy,
            pending_overload_block_timeout_seconds=pending_overload_block_timeout_seconds,
            enable_completed_queue=enable_completed_queue,
            max_completed_length=max_completed_length,
            enable_failed_queue=enable_failed_queue,
            max_failed_length=max_failed_length,
            max_dead_length=max_dead_length,
            strict_payload_types=strict_payload_types,
            max_payload_bytes=max_payload_bytes,
            max_payload_depth=max_payload_depth,
            sort_keys=sort_keys,
            strict_envelope_decoding=strict_envelope_decoding,
            require_noeviction=require_noeviction,
            message_wait_interval_seconds=message_wait_interval_seconds,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
            interrupt=interrupt,
            on_event=on_event,
        )
        if sum(place is not None for place in (client, url, gateway)) != 1:
            raise ConfigurationError(f"queue {name!r} needs exactly one of client, url and gateway")
        if gateway is not None:
            refuse_unfit_gateway(gateway, ("execute", "wait", "aclose"))
        self._owns_gateway = gateway is None
        super().__init__(
            name,
            config,
            gateway
            or RedisGateway(
                redis_client=client,
                url=url,
                retry_budget_seconds=retry_budget_seconds,
                retry_initial_delay_seconds=retry_initial_delay_seconds,
                retry_max_delay_seconds=retry_max_delay_seconds,
            ),
        )

    # ------------------------------------------------------------------ publish

    @overload
    async def publish(
        self,
        payload: Payload,
        *,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool: ...

    @overload
    async def publish(
        self,
        *,
        message: Payload,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool: ...

    async def publish(
        self,
        payload: Payload | Absent = ABSENT,
        *,
        message: Payload | Absent = ABSENT,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool:
        """Publish one message.

        Args:
            payload: a dict or list (JSON), a str, or bytes.
            message: another name for `payload`, as redis-message-queue has it.
            headers: a few names and texts that travel with it.
            delay_seconds: how long nobody may claim it.
            due_at: instead, from when on it may be claimed: an aware datetime.
            durability: what the publish waits for: `memory` (Redis has it), `fsync` (it is on disk; Redis 7.2), or
                `replicated(n)`.

        Returns:
            True, or False when its deduplication key is held.

        Raises:
            TypeError, ValueError: a payload or key that cannot be stored; names the path.
            ConfigurationError: a deduplication key that is missing, null or empty.
            QueueBackpressureError: `max_pending_length` is reached; nothing was stored.
            RedisMemoryError: Redis is full; nothing was stored.
            EvictionPolicyError: `require_noeviction` is set, and the server may evict messages; nothing was stored.
            NotDurableError: stored, but not confirmed as durable as asked.
            PublishUnknownError: Redis stayed away and the outcome is unknown.
        """
        given = self._one_payload(payload, message)
        with self._publishing_by(current_owner()):
            ahead = self._batches([given], headers, delay_seconds=delay_seconds, due_at=due_at, durability=durability)
            begun = elapsed_clock()
            try:
                batch = await self._next(ahead)
            except Exception as error:
                await self._tell_refused(error, begun)
                raise
            assert batch is not None
            return (await self._send(batch)).accepted == 1

    async def publish_many(
        self,
        payloads: Iterable[Payload],
        *,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        partial: bool = False,
    ) -> PublishReport:
        """Publish messages in calls of at most 1,000 and 8 MB, reading `payloads` as they are needed.

        A single message of more than 8 MB goes in a call of its own.

        Each call takes effect whole or not at all; the next is prepared while Redis works on one, and sent once it has
        succeeded. When one fails, those before it stay published, and a note on the error counts them. Raises as
        `publish`.

        Args:
            payloads: see `publish`.
            headers: the same for all.
            delay_seconds: the same for all.
            due_at: the same for all.
            durability: what each call waits for.
            partial: where `max_pending_length` leaves room for a part only, publish the first that fit and tell the
                others in `refused_positions`, instead of refusing the call whole.
        """
        report = PublishReport()
        ahead = self._batches(
            payloads, headers, delay_seconds=delay_seconds, due_at=due_at, durability=durability, partial=partial
        )
        try:
            with self._publishing_by(current_owner()):
                async for done in self._publish_ahead(ahead):
                    report.add(done)
        except Exception as error:
            error.add_note(f"{len(report.ids)} messages before these were handled: {report}")
            raise
        return report

    async def publish_chunks(
        self,
        payloads: Iterable[Payload],
        *,
        batch_size: int = MAX_PER_CALL,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[PublishReport]:
        """As `publish_many`, but yields a report per call and holds no more than one call's messages."""
        checks.count("batch_size", batch_size, MAX_PER_CALL)
        ahead = self._batches(payloads, headers, most=batch_size)
        while True:
            begun = elapsed_clock()
            try:
                batch = await self._next(ahead)
            except Exception as error:
                await self._tell_refused(error, begun)
                raise
            if batch is None:
                return
            with self._publishing_by(current_owner()):
                try:
                    self._refuse_closed()
                except QueueDrainedError as error:
                    await self._tell_refused(error, begun)
                    raise
                report = await self._send(batch)
            yield report

    async def publish_again(self, unknown: PublishUnknownError) -> PublishReport:
        """Ask for the outcome of a publish that is unknown, publishing what was not.

        Harmless while the batch is young enough, which the error's text tells; after that it raises again, without
        `calls`.

        Raises:
            PublishUnknownError: it is too late, or Redis is still away.
        """
        if not unknown.calls:
            await give_way()
            await self._tell_refused(unknown, elapsed_clock())
            raise unknown
        assert unknown.batch is not None
        with self._publishing_by(current_owner()):
            return await self._send(unknown.batch, unknown.born)

    async def _next(self, ahead: Batches) -> Batch | None:
        """Read and encode the messages of the next call; keys that are awaitable are awaited one after the other."""
        if self._drained:
            await give_way()
        self._refuse_closed()
        made = next(ahead, None)
        while isinstance(made, PendingKey):  # asyncio only
            made = ahead.send(await _key_of(made))  # asyncio only
        assert not isinstance(made, PendingKey)
        return made

    async def _tell_refused(self, error: Exception, begun: float) -> None:
        """A publish ended before anything was sent for it: the message, a key or the queue was not fit for it."""
        if isinstance(error, RedisMessageQueueError):
            error.locate(queue=self.name, operation="publish")
        event = QueueEvent(EventOperation.PUBLISH, EventOutcome.FAILURE, self.name, error=error)
        await self._runner.emit(event, begun)

    async def _publish_ahead(self, ahead: Batches) -> AsyncIterator[PublishReport]:
        """While Redis works on one call the next is read and encoded."""
        finish: Callable[[], Awaitable[PublishReport]] | None = None
        while True:
            begun = elapsed_clock()
            try:
                batch = await self._next(ahead)
            except BaseException as error:
                if finish is not None:  # what was sent before the input failed stays published, and is told
                    yield await finish()
                if isinstance(error, Exception):
                    await self._tell_refused(error, begun)
                raise
            if finish is not None:
                yield await finish()
            if batch is None:
                if finish is None:
                    await give_way()
                return
            finish = await self._start(batch)

    async def _start(self, batch: Batch) -> Callable[[], Awaitable[PublishReport]]:
        """Send a batch; what is returned waits for its outcome."""
        receive = await self._runner.start(self._operation(batch))
        return lambda: self._outcome(batch, receive)

    async def _send(self, batch: Batch, born: float | None = None) -> PublishReport:
        return await self._outcome(batch, lambda: self._runner.run(self._operation(batch, born)))

    async def _outcome(self, batch: Batch, receive: Callable[[], Awaitable[replies.Published]]) -> PublishReport:
        try:
            return PublishReport.of(await receive(), batch.message_ids())
        except NotDurableError as error:
            if error.published is not None:
                error.report = PublishReport.of(error.published, list(error.ids))
            self._locate(error, batch)
            raise
        except RedisMessageQueueError as error:
            self._locate(error, batch)
            raise

    def _operation(self, batch: Batch, born: float | None = None) -> Operation[replies.Published]:
        config = self._config
        block = config.pending_overload_block_timeout_seconds if config.pending_overload_policy == "block" else None
        return operations.publish(
            self._keys,
            batch,
            clock=elapsed_clock,
            block_seconds=block,
            emits_events=self._runner.emits_events,
            born=born,
            eviction=None if self._eviction.looked else self._eviction,
        )

    # ------------------------------------------------------------------ claim

    async def claim(
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
        """Lease up to `limit` messages, oldest first, after letting expired and due ones come back.

        A claim that is repeated under its `lease_id` finds its own lease, open or ended, and never takes a second
        batch while the first is remembered: that is how a retried task goes on where it stopped.

        Args:
            limit: most messages, up to 10,000. What failed before comes in smaller batches, the last time alone.
            lease_seconds: life of the lease without a heartbeat; default `visibility_timeout_seconds`.
            wait_seconds: how long to wait for a first message; 0 never blocks.
            lease_id: a name that a retry would use again; made by the library when left out.
            take_over_after_seconds: when the lease of this id is open in another hand: None answers `HELD`;
                otherwise it is taken over once its holder has been silent so long (0: at once). A takeover counts as
                a delivery.
            retention_seconds: how long the end of this lease is remembered; at least an hour and ten leases.
            remember_empty: remember an `EMPTY` answer under this `lease_id` for ten minutes, so that a retry gets it
                again.
            heartbeat: extend in the background while inside the `with` block, as `heartbeat_interval_seconds` says.
            on_batch_error: what becomes of messages already yielded when the block raises: `release` or `ack`.
            exclude_run: a run that does not take again what it noted as given back: such messages are put off for the
                life of this lease, 30 s at most, uncounted.

        Raises:
            ConfigurationError: an argument that cannot work.
            RedisUnavailableError: Redis cannot be reached.
        """
        request = self._claim_request(
            limit,
            lease_seconds,
            wait_seconds,
            lease_id,
            take_over_after_seconds,
            retention_seconds,
            remember_empty,
            on_batch_error,
            exclude_run,
        )
        asked_at = elapsed_clock()

        def clock() -> float:  # the operation looks at it before each claim, and the life of a lease begins no later
            nonlocal asked_at
            asked_at = elapsed_clock()
            return asked_at

        reply: replies.ClaimReply = replies.Empty()
        if self._stopping():
            await give_way()
        else:
            reply = await self._runner.run(
                operations.claim(
                    self._keys,
                    self._rules,
                    request,
                    clock=clock,
                    wait_seconds=wait_seconds,
                    take_over_after_seconds=take_over_after_seconds,
                    emits_events=self._runner.emits_events,
                    lease_id=lease_id,
                )
            )
        lease = Lease(
            self._runner,
            self._keys,
            self._config,
            self._rules,
            request,
            reply,
            lease_id=lease_id if lease_id is not None else request.nonce.decode(),
            chosen=lease_id is not None,
            asked_at=asked_at,
            on_batch_error=on_batch_error,
            heartbeat=heartbeat,
        )
        if not lease:
            return lease
        if self._stopping():  # since this claim began: what came too late goes back
            await lease.release()
            lease._empty()
            return lease
        if self._config.at_most_once:
            await lease._settle_ahead()
            return lease
        self._hold(lease)
        return lease

    @asynccontextmanager
    async def process_message(self) -> AsyncIterator[str | bytes | None]:
        """Wait for one message and yield its payload, or None when none came in time.

        Leaving the block acks it; an exception nacks it with a growing delay, or as `on_error` says, and propagates.
        That the lease was lost is logged and told as an event, never raised. The payload is a str when the client has
        `decode_responses=True` and the payload is UTF-8, else bytes.

        A heartbeat keeps the message for as long as the block takes; `heartbeat_interval_seconds=0` leaves it out, and
        `max_lease_seconds` bounds it.
        """
        async with self._one_message() as lease:
            if not lease:
                yield None
                return
            (message,) = lease
            yield self._received(message.payload, self._gateway.decodes_responses)

    async def process_message_callback(self, handler: Handler) -> bool:
        """Claim at most one message as `process_message` does, and call `handler` with its payload.

        Returns:
            True when a message was handled and acked, False when none came in time.

        Raises:
            TypeError: the handler returned an awaitable that nobody would await; the message was released.
        """
        async with self._one_message() as lease:
            if not lease:
                return False
            (message,) = lease
            result = handler(self._received(message.payload, self._gateway.decodes_responses))
            if is_unawaited(result):
                await lease.release()
            await ensure_result(result)
        return True

    @asynccontextmanager
    async def _one_message(self) -> AsyncIterator[Lease]:
        lease = await self.claim(wait_seconds=self._config.message_wait_interval_seconds)
        handled = False
        try:
            async with lease:
                yield lease
                handled = True
        except LeaseLostError as lost:
            if lost.lease_id != lease.id:
                raise
            _log.warning("queue %r: %s", self.name, lost)
        except RedisMessageQueueError as failure:
            if not handled:
                raise
            raise CleanupFailedError(
                f"queue {self.name!r}: the handler finished, but its message could not be acked "
                f"({type(failure).__name__}); it will be delivered again",
                queue=self.name,
                operation="settle",
                message_id=lease.messages[0].id,
            ) from failure

    # ------------------------------------------------------------------ travel and end

    def spec(self) -> QueueSpec:
        """This queue as it may travel to executors and triggers: without its secret.

        Raises:
            ConfigurationError: the queue was made from a client, or its URL carries a password.
        """
        return self._spec(self._gateway.address)

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> RedisMessageQueue:
        """The queue that a spec describes. Connects at its first command."""
        options = dict(spec.options)
        publishes = options.pop("publishes", True)
        queue = cls(spec.name, url=spec.url, **options)
        queue._publishes = publishes
        return queue

    async def shutdown(self, timeout: float | None = 30.0) -> bool:
        """Stop publishing and claiming with this object, and let go of what it holds.

        Waits for other threads or tasks to settle their leases and end their publishes, then releases what they still
        hold, uncounted. What the caller itself holds is left to it, so that a signal handler may call this: it would
        wait for itself. The queue in Redis and other objects are not touched.

        Args:
            timeout: seconds to wait; 0 only stops and reports, None waits until the others have ended.

        Returns:
            True when nothing is held and nothing is being published any more.

        Raises:
            ConfigurationError: a timeout that is neither None nor a number of 0 or more; then nothing was stopped.
        """
        if timeout is not None:
            checks.not_negative("timeout", timeout)
        begun, self._drained = elapsed_clock(), True
        await self._runner.emit(QueueEvent(EventOperation.DRAIN, EventOutcome.START, self.name, 0, seconds=timeout))
        await give_way()
        me, deadline = current_owner(), math.inf if timeout is None else begun + timeout
        while elapsed_clock() < deadline and self._others_at_work(me):
            await pause(_LOOK_SECONDS, lambda: False)
        if timeout != 0:
            for lease in self._held():
                if lease.holder != me:
                    await self._let_go(lease)
        left = sum(len(lease.unsettled) for lease in self._held())
        clean = left == 0 and not self._publishers
        outcome = EventOutcome.SUCCESS if clean else EventOutcome.FAILURE
        await self._runner.emit(QueueEvent(EventOperation.DRAIN, outcome, self.name, left), begun)
        return clean

    async def drain(self, timeout: float | None = 30.0) -> bool:
        """The same as `shutdown`, by the name that it has in redis-message-queue; nothing is drained from the queue."""
        return await self.shutdown(timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop publishing and claiming here, release what leases made here still hold, and close our own connections.

        A lease object that nobody references any more is not released; it runs out.
        """
        self._drained = True
        for lease in self._held():
            await self._let_go(lease)
        if self._owns_gateway:
            await self._gateway.aclose()
        await give_way()

    close = aclose  # asyncio only

    async def _let_go(self, lease: Lease) -> None:
        await lease.stop_heartbeat()
        try:
            await lease.release()
        except RedisMessageQueueError as error:
            _log.warning("queue %r: lease %r could not be released: %s", self.name, lease.id, type(error).__name__)
