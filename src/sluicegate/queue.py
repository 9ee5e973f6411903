# Made from src/sluicegate/asyncio/queue.py by `make format`; edit there.
"""The queue: what it publishes, beside what every consumer does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from sluicegate._arguments import ABSENT, Absent, one_payload, refuse_unfit_gateway
from sluicegate._session import new_id
from sluicegate.batches import Batch
from sluicegate.config import OPTIONS_ELSEWHERE, QueueConfig, QueueSpec
from sluicegate.consumer import QueueConsumer
from sluicegate.core.deduplication import DeduplicationPolicy, KeySource
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.publishing import MAX_PER_CALL, Payload
from sluicegate.errors import ConfigurationError, PublishUnknownError
from sluicegate.events import QueueEvent
from sluicegate.gateway import Client, Gateway, RedisGateway
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.json_default import JsonDefault
from sluicegate.options import OnError, OverloadPolicy, RetryBackoff
from sluicegate.publisher import Publisher
from sluicegate.report import PublishReport
from sluicegate.session import open_session
from sluicegate.signatures import explains_unknown_options

if TYPE_CHECKING:
    from sluicegate.tables.rows import TableLike

__all__ = ["RedisMessageQueue"]


class RedisMessageQueue(QueueConsumer):
    """A queue of messages on Redis: deduplicated publishes, leased batches, at-least-once delivery.

    Constructing one does no I/O. Objects are safe to share between threads or tasks. `with` closes it at the end.

    Args:
        name: of the queue; any text with a visible character in it.
        client: a `redis.Redis` or `RedisCluster`; it stays the caller's to close.
        url: instead of a client: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `redis+cluster://` or
            `embedded:///folder`; the password by reference as `?password_env=NAME`.
        gateway: instead of both, a configured `RedisGateway` or another `Gateway`.
        get_deduplication_key: what makes two messages the same: a callable, a field name, a list of fields, or a
            template such as `{tenant}:{order_id}`.
        deduplication: redundant; kept for compatibility with redis-message-queue. Deduplication is on when
            `get_deduplication_key` is set.
        deduplication_policy: how long a key refuses further messages: for a time from the publish, or while its message
            is waiting or in flight.
        deduplication_window_seconds: how long `window` refuses a key; for `until_acked` a safety bound of seven days at
            least.
        visibility_timeout_seconds: a lease's life without a heartbeat; `None` is at-most-once: messages are acked
            before their handler starts.
        heartbeat_interval_seconds: the time between extensions of a lease whose messages are worked on; `None`: a third
            of the lease, 0: never.
        on_heartbeat_failure: called when a heartbeat stops because its lease cannot be extended.
        max_delivery_count: deliveries after which a message is buried; crashes, takeovers and errors count.
        max_lease_seconds: longest life of a lease, however often it is extended; enforced by the server.
        on_error: what happens to a message whose handler raised: redelivered later, buried, or deleted; the exception
            always propagates.
        retry_backoff: how long such a message waits for its next delivery; `None`: exponential from 1 s to 300 s with
            jitter.
        max_pending_length: most waiting messages (pending, returned and delayed) that a publish may leave.
        pending_overload_policy: what a publish beyond that does: raise `QueueBackpressureError`, wait for room, or drop
            the oldest messages.
        pending_overload_block_timeout_seconds: how long `block` waits for room, retries included.
        enable_completed_queue: keep a record per acked message, for `peek(state="completed")`.
        max_completed_length: completed records kept, the newest.
        enable_failed_queue: keep a record per failed attempt, for `peek(state="failed")`.
        max_failed_length: failed records kept, the newest.
        max_dead_length: dead letters kept, the newest; `None` loses none, and every drop is an event.
        strict_payload_types: refuse payloads that JSON would change, such as tuples, and name the path.
        max_payload_bytes: largest payload as stored; a larger one is a `PayloadTooLargeError`.
        max_payload_depth: deepest nesting of dicts and lists; a deeper one is a `PayloadTooDeepError`.
        sort_keys: store dicts in the order of their keys, so that equal payloads are the same bytes.
        json_default: how to write values that JSON cannot carry: `"iso"` writes dates and times as ISO 8601 text and
            `Decimal` as text; `None` refuses them with their path.
        strict_envelope_decoding: raise for values that something else put into the queue and leave them there, instead
            of burying them as `foreign`.
        require_noeviction: publish only to a server that evicts no keys when it is full; `False`: the first publish of
            the object warns.
        message_wait_interval_seconds: how long `process_message` waits for a message; 0 does not wait.
        retry_budget_seconds: how long a call is retried while Redis is away, attempts included; 0 makes one attempt.
        retry_initial_delay_seconds: first pause between attempts; pauses double, with jitter.
        retry_max_delay_seconds: longest pause between attempts.
        interrupt: ends claims, waits and blocked publishes once it is interrupted.
        on_event: called with a `QueueEvent` after every transition; what it raises is logged and changes nothing.

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
        get_deduplication_key: KeySource | None = None,
        deduplication: bool | None = None,
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
        json_default: JsonDefault | None = None,
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
            json_default=json_default,
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
            refuse_unfit_gateway(gateway, ("execute", "send", "wait", "close"))
        owns_gateway = gateway is None
        gateway = gateway or RedisGateway(
            redis_client=client,
            url=url,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
        )
        super().__init__(open_session(name, config, gateway), owns_gateway=owns_gateway)
        self._publisher = Publisher(self.session)

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> RedisMessageQueue:
        """Make the queue that a spec describes. It connects at its first command.

        Raises:
            ConfigurationError: the spec is that of a stream, a group or a queue of jobs; `open_spec` makes any of them.
        """
        if spec.kind != cls.kind:
            raise ConfigurationError(
                f"the spec of {spec.name!r} is of kind {spec.kind!r}, not {cls.kind!r}; use sluicegate.open_spec(spec)"
            )
        options = dict(spec.options)
        publishes = options.pop("publishes", True)
        queue = cls(spec.name, url=spec.url, **options)
        queue.session.publishes = publishes
        return queue

    # ------------------------------------------------------------------ publish

    @overload
    def publish(
        self,
        payload: Payload,
        *,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool: ...

    @overload
    def publish(
        self,
        *,
        message: Payload,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool: ...

    def publish(
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
            payload: a dict or list (stored as JSON), a str, or bytes.
            message: another name for `payload`, as in redis-message-queue.
            headers: a few names and texts that accompany the message.
            delay_seconds: how long nobody may claim it.
            due_at: instead, when it becomes claimable: an aware datetime.
            durability: what the publish waits for: `memory` (Redis has it), `fsync` (it is on disk; Redis 7.2), or
                `replicated(n)`.

        Returns:
            True, or False when its deduplication key is held.

        Raises:
            TypeError, ValueError: the payload or key cannot be stored; the text names the path.
            ConfigurationError: the deduplication key is missing, null or empty.
            QueueBackpressureError: `max_pending_length` is reached; nothing was stored.
            RedisMemoryError: Redis is full; nothing was stored.
            EvictionPolicyError: `require_noeviction` is set, and the server may evict messages; nothing was stored.
            NotDurableError: the message is stored, but not confirmed to be as durable as asked.
            PublishUnknownError: Redis stayed away, and the outcome is unknown.
        """
        return self._publisher.publish(one_payload(payload, message), headers, delay_seconds, due_at, durability)

    def publish_many(
        self,
        payloads: Iterable[Payload],
        *,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        partial: bool = False,
    ) -> PublishReport:
        """Publish messages in calls of at most 1,000 and 4 MB, reading `payloads` as they are needed.

        A single message of more than 4 MB goes in a call of its own. Each call takes effect whole or not at all. The
        next call is prepared while Redis works on one, and sent once that one has succeeded. When a call fails, those
        before it stay published, and a note on the error counts them. Raises as `publish` does.

        Args:
            payloads: the messages; see `publish`.
            headers: the same for all messages.
            delay_seconds: the same for all messages.
            due_at: the same for all messages.
            durability: what each call waits for.
            partial: when `max_pending_length` leaves room for some messages only, publish the first that fit and list
                the others in `refused_positions`, instead of refusing the whole call.
        """
        return self._publisher.publish_many(payloads, headers, delay_seconds, due_at, durability, partial)

    def publish_table(
        self,
        table: TableLike,
        *,
        key: KeySource | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        partial: bool = False,
        batch_size: int = MAX_PER_CALL,
        batch_id: str | None = None,
        retention_seconds: float = 7 * 86400,
    ) -> PublishReport:
        """Publish each row of a table as a JSON object, as `publish_many(table.to_pylist())` does, but by columns.

        Messages, keys, errors and their positions are the same. About 3,000 rows at a time are encoded, so that a
        `RecordBatchReader` of any length takes little memory. Raises as `publish_many` does.

        Args:
            table: a pyarrow `Table`, `RecordBatch` or `RecordBatchReader`, or a pandas `DataFrame` without its index,
                whose NaN are null.
            key: the deduplication key of these rows: a column, a list of columns, or a template such as
                `{tenant}:{order_id}`; by default the queue's.
            headers: the same for all rows.
            delay_seconds: the same for all rows.
            due_at: the same for all rows.
            durability: what each call waits for.
            partial: as for `publish_many`.
            batch_size: rows per call, from 1 to 1,000.
            batch_id: publish the rows as this batch, as `batch` does; a repeat needs the same `batch_size` too.
            retention_seconds: how long the batch is known after it has completed.

        Raises:
            OptionTypeError: `table` is none of these.
            ConfigurationError: two columns have the same name.
        """
        return self._publisher.publish_table(
            table,
            key,
            headers,
            delay_seconds,
            due_at,
            durability,
            partial=partial,
            batch_size=batch_size,
            batch_id=batch_id,
            retention_seconds=retention_seconds,
        )

    def batch(
        self,
        payloads: Iterable[Payload],
        *,
        batch_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        retention_seconds: float = 7 * 86400,
    ) -> Batch:
        """Publish messages as a unit that is complete once all of them have ended, and return it.

        A repeat under the same `batch_id` rejoins the batch: it publishes only what an earlier attempt did not, in
        whichever process, and then seals the batch, so that it can complete. The messages and their order must be the
        same. Messages whose deduplication key is held belong to the batch that published them. Raises as `publish_many`
        does; what was published by then stays, and a repeat continues.

        Args:
            payloads: the messages; see `publish`.
            batch_id: a name that a retry would use again, up to 1,000 characters; made by the library when left out.
            headers: the same for all messages.
            delay_seconds: the same for all messages.
            due_at: the same for all messages.
            durability: what each call waits for.
            retention_seconds: how long the batch is known after it has completed. An open batch is known without limit.

        Raises:
            BatchChangedError: the batch was published before with other messages.
        """
        name = new_id().decode() if batch_id is None else batch_id
        report = self._publisher.publish_batch(
            name, payloads, headers, delay_seconds, due_at, durability, retention_seconds
        )
        return Batch(self.session, name, report)

    def publish_chunks(
        self,
        payloads: Iterable[Payload],
        *,
        batch_size: int = MAX_PER_CALL,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        ahead: bool = False,
        batch_id: str | None = None,
        retention_seconds: float = 7 * 86400,
    ) -> Iterator[PublishReport]:
        """Publish as `publish_many` does, but yield a report per call and hold only one call's messages.

        With a `batch_id` it publishes a batch, as `batch` does, and seals it after the last report was used.

        Args:
            payloads: the messages; see `publish`.
            batch_size: messages per call, from 1 to 1,000.
            headers: the same for all messages.
            delay_seconds: the same for all messages, counted from the time of each call.
            due_at: the same for all messages.
            durability: what each call waits for.
            ahead: prepare the next call while Redis works on one, as `publish_many` does. Two calls' messages are in
                memory then, and the report of a call follows once the messages of the next one were read, so that it
                suits payloads that never wait.
            batch_id: publish the messages as this batch; a repeat needs the same `batch_size` too.
            retention_seconds: how long the batch is known after it has completed.
        """
        return self._publisher.publish_chunks(
            payloads, batch_size, headers, delay_seconds, due_at, durability, ahead, batch_id, retention_seconds
        )

    def publish_again(self, unknown: PublishUnknownError) -> PublishReport:
        """Ask for the outcome of a publish that is unknown, and publish what was not published.

        This is harmless while the batch is young enough; the error's text says how long. After that it raises again,
        without `calls`.

        Raises:
            PublishUnknownError: it is too late, or Redis is still away.
        """
        return self._publisher.publish_again(unknown)
