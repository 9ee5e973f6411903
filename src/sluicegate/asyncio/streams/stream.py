"""A stream: what is published to it and kept in it, beside its groups, which consume."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from sluicegate import checks
from sluicegate._arguments import ABSENT, Absent, ids_of, one_payload, refuse_unfit_gateway
from sluicegate._session import new_id
from sluicegate.asyncio.gateway import Client, Gateway, RedisGateway
from sluicegate.asyncio.publisher import Publisher
from sluicegate.asyncio.session import close_session, open_session, shut_down_session
from sluicegate.asyncio.streams.group import ConsumerGroup, GroupOptions
from sluicegate.asyncio.streams.replay import ReplayGroup
from sluicegate.clock import elapsed_clock
from sluicegate.config import OPTIONS_ELSEWHERE, QueueConfig, QueueSpec
from sluicegate.core.call import Operation, alone
from sluicegate.core.deduplication import DeduplicationPolicy, KeySource
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.keys import StreamKeys
from sluicegate.core.publishing import MAX_PER_CALL, Payload
from sluicegate.core.stream_ids import Start, StreamId, StreamPlace, parse_from
from sluicegate.core.transitions.cancel_in_stream import cancel_in_stream_operation
from sluicegate.core.transitions.forget import forget_operation
from sluicegate.core.transitions.groups import (
    TEMPORARY_PREFIX,
    create_group_operation,
    delete_group_operation,
    stream_info_call,
)
from sluicegate.core.transitions.peek_in_stream import peek_in_stream_call
from sluicegate.core.transitions.publish import Batch, Published
from sluicegate.core.transitions.publish_to_stream import Upkeep, publish_to_stream_operation
from sluicegate.core.transitions.replay import replay_operation
from sluicegate.core.transitions.trim import TrimReport, TrimRules, trim_operation
from sluicegate.errors import ConfigurationError, PublishUnknownError
from sluicegate.events import QueueEvent
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.json_default import JsonDefault
from sluicegate.message import Message
from sluicegate.report import PublishReport, StreamInfo
from sluicegate.signatures import explains_unknown_options
from sluicegate.spec import SpecKind

if TYPE_CHECKING:
    from sluicegate.tables.rows import TableLike

__all__ = ["RedisStreamQueue"]


class RedisStreamQueue:
    """A stream of messages on Redis: deduplicated publishes, a history, and any number of independent groups.

    Every group gets every message. Constructing a stream does no I/O. Objects are safe to share between threads or
    tasks. `async with` closes it at the end.

    Args:
        name: of the stream; any text with a visible character in it.
        client: a `redis.asyncio.Redis` or `RedisCluster`; it stays the caller's to close.
        url: instead of a client: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `redis+cluster://` or
            `embedded:///folder`; the password by reference as `?password_env=NAME`.
        gateway: instead of both, a configured `RedisGateway` or another `Gateway`.
        max_length: messages that stay for a replay. A publish beyond it removes the oldest that every group has
            finished, in steps, so that the stream is at times longer by a hundred messages or one per cent.
        max_age_seconds: age up to which messages stay for a replay.
        trim_unfinished: remove messages beyond these limits even if a group has not finished them; each is counted in
            the report, in an event and in `info()`.
        get_deduplication_key: what makes two messages the same: a callable, a field name, a list of fields, or a
            template such as `{tenant}:{order_id}`.
        deduplication: redundant; deduplication is on when `get_deduplication_key` is set.
        deduplication_policy: how long a key refuses further messages: for a time from the publish, or until every group
            has ended its message.
        deduplication_window_seconds: how long `window` refuses a key; for `until_acked` a safety bound of seven days at
            least.
        strict_payload_types: refuse payloads that JSON would change, such as tuples, and name the path.
        max_payload_bytes: largest payload as stored; a larger one is a `PayloadTooLargeError`.
        max_payload_depth: deepest nesting of dicts and lists; a deeper one is a `PayloadTooDeepError`.
        sort_keys: store dicts in the order of their keys, so that equal payloads are the same bytes.
        json_default: how to write values that JSON cannot carry: `"iso"`, or a function; `None` refuses them.
        require_noeviction: publish only to a server that evicts no keys when it is full; `False`: the first publish of
            the object warns.
        retry_budget_seconds: how long a call is retried while Redis is away, attempts included; 0 makes one attempt.
        retry_initial_delay_seconds: first pause between attempts; pauses double, with jitter.
        retry_max_delay_seconds: longest pause between attempts.
        interrupt: ends publishes once it is interrupted.
        on_event: called with a `QueueEvent` after every transition; what it raises is logged and changes nothing.

    Attributes:
        name: the stream's name.
        session: what the parts of the stream share. Internal: this distribution's adapters use it, and it may change.

    Raises:
        ConfigurationError: an option that cannot work as given.
    """

    kind: ClassVar[SpecKind] = "stream"

    @explains_unknown_options(
        {
            **OPTIONS_ELSEWHERE,
            "max_len": "its name is max_length",
            "maxlen": "its name is max_length",
            "max_age": "its name is max_age_seconds",
            "visibility_timeout_seconds": "give it to stream.group(name, …): each group has its own",
            "max_delivery_count": "give it to stream.group(name, …): each group has its own",
            "max_pending_length": "a stream refuses nothing; max_length says how much of its history stays",
        }
    )
    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        url: str | None = None,
        gateway: Gateway | None = None,
        max_length: int | None = None,
        max_age_seconds: float | None = None,
        trim_unfinished: bool = False,
        get_deduplication_key: KeySource | None = None,
        deduplication: bool | None = None,
        deduplication_policy: DeduplicationPolicy = "window",
        deduplication_window_seconds: float = 3600,
        strict_payload_types: bool = False,
        max_payload_bytes: int | None = None,
        max_payload_depth: int | None = None,
        sort_keys: bool = False,
        json_default: JsonDefault | None = None,
        require_noeviction: bool = False,
        retry_budget_seconds: float = 120,
        retry_initial_delay_seconds: float = 0.01,
        retry_max_delay_seconds: float = 5.0,
        interrupt: BaseGracefulInterruptHandler | None = None,
        on_event: Callable[[QueueEvent], Any] | None = None,
    ) -> None:
        self._rules = TrimRules(max_length, max_age_seconds, trim_unfinished)
        config = QueueConfig(
            get_deduplication_key=get_deduplication_key,
            deduplication=deduplication,
            deduplication_policy=deduplication_policy,
            deduplication_window_seconds=deduplication_window_seconds,
            strict_payload_types=strict_payload_types,
            max_payload_bytes=max_payload_bytes,
            max_payload_depth=max_payload_depth,
            sort_keys=sort_keys,
            json_default=json_default,
            require_noeviction=require_noeviction,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
            interrupt=interrupt,
            on_event=on_event,
        )
        if sum(place is not None for place in (client, url, gateway)) != 1:
            raise ConfigurationError(f"stream {name!r} needs exactly one of client, url and gateway")
        if gateway is not None:
            refuse_unfit_gateway(gateway, ("execute", "send", "wait", "aclose"))
        self._owns_gateway = gateway is None
        gateway = gateway or RedisGateway(
            redis_client=client,
            url=url,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
        )
        self.name = name
        self._keys = StreamKeys(name)
        self.session = open_session(name, config, gateway, self._keys)
        self._upkeep = Upkeep(self._keys, self._rules, elapsed_clock)
        self._publisher = Publisher(self.session, self._publish_operation)

    @property
    def key(self) -> SimpleNamespace:
        """Return the names of the stream's Redis keys, for use with `redis-cli` and clients of other languages."""
        names = ("stream", "counters", "groups")
        return SimpleNamespace(**{name: getattr(self._keys, name).decode() for name in names})

    @property
    def publisher(self) -> Publisher:
        """Return what publishes to this stream; adapters give it messages that they have encoded themselves."""
        return self._publisher

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # ------------------------------------------------------------------ publish

    async def publish(
        self,
        payload: Payload | Absent = ABSENT,
        *,
        message: Payload | Absent = ABSENT,
        headers: Mapping[str, str] | None = None,
        durability: DurabilityOption = "memory",
    ) -> bool:
        """Publish one message to all groups.

        Args:
            payload: a dict or list (stored as JSON), a str, or bytes.
            message: another name for `payload`, as for a queue.
            headers: a few names and texts that accompany the message.
            durability: what the publish waits for: `memory` (Redis has it), `fsync` (it is on disk; Redis 7.2), or
                `replicated(n)`.

        Returns:
            True, or False when its deduplication key is held.

        Raises:
            TypeError, ValueError: the payload or key cannot be stored; the text names the path.
            ConfigurationError: the deduplication key is missing, null or empty.
            RedisMemoryError: Redis is full; nothing was stored.
            EvictionPolicyError: `require_noeviction` is set, and the server may evict messages; nothing was stored.
            NotDurableError: the message is stored, but not confirmed to be as durable as asked.
            PublishUnknownError: Redis stayed away, and the outcome is unknown.
        """
        return await self._publisher.publish(one_payload(payload, message), headers, 0, None, durability)

    async def publish_many(
        self,
        payloads: Iterable[Payload],
        *,
        headers: Mapping[str, str] | None = None,
        durability: DurabilityOption = "memory",
    ) -> PublishReport:
        """Publish messages in calls of at most 1,000 and 4 MB, as a queue does; the report has their stream ids.

        Each call takes effect whole or not at all. When a call fails, those before it stay published, and a note on the
        error counts them. Raises as `publish` does.

        Args:
            payloads: the messages; see `publish`.
            headers: the same for all messages.
            durability: what each call waits for.
        """
        return await self._publisher.publish_many(payloads, headers, 0, None, durability, False)

    async def publish_table(
        self,
        table: TableLike,
        *,
        key: KeySource | None = None,
        headers: Mapping[str, str] | None = None,
        durability: DurabilityOption = "memory",
        batch_size: int = MAX_PER_CALL,
    ) -> PublishReport:
        """Publish each row of a table as a JSON object, by columns; see `RedisMessageQueue.publish_table`.

        Args:
            table: a pyarrow `Table`, `RecordBatch` or `RecordBatchReader`, or a pandas `DataFrame`.
            key: the deduplication key of these rows: a column, a list of columns, or a template; by default the
                stream's.
            headers: the same for all rows.
            durability: what each call waits for.
            batch_size: rows per call, from 1 to 1,000.
        """
        return await self._publisher.publish_table(table, key, headers, durability=durability, batch_size=batch_size)

    def publish_chunks(
        self,
        payloads: Iterable[Payload],
        *,
        batch_size: int = MAX_PER_CALL,
        headers: Mapping[str, str] | None = None,
        durability: DurabilityOption = "memory",
        ahead: bool = False,
    ) -> AsyncIterator[PublishReport]:
        """Publish as `publish_many` does, but yield a report per call and hold only one call's messages.

        Args:
            payloads: the messages; see `publish`.
            batch_size: messages per call, from 1 to 1,000.
            headers: the same for all messages.
            durability: what each call waits for.
            ahead: prepare the next call while Redis works on one, as `publish_many` does.
        """
        return self._publisher.publish_chunks(payloads, batch_size, headers, 0, None, durability, ahead)

    async def publish_again(self, unknown: PublishUnknownError) -> PublishReport:
        """Ask for the outcome of a publish that is unknown, and publish what was not published.

        This is harmless while the batch is young enough; the error's text says how long. After that it raises again,
        without `calls`.

        Raises:
            PublishUnknownError: it is too late, or Redis is still away.
        """
        return await self._publisher.publish_again(unknown)

    def _publish_operation(self, batch: Batch, born: float | None) -> Operation[Published]:
        eviction = self.session.eviction
        return publish_to_stream_operation(
            self._keys,
            batch,
            self._upkeep,
            clock=elapsed_clock,
            emits_events=self.session.runner.emits_events,
            born=born,
            eviction=None if eviction.done else eviction,
        )

    # ------------------------------------------------------------------ groups

    def group(
        self,
        name: str,
        *,
        consumer: str | None = None,
        start: StreamPlace | None = None,
        **options: Unpack[GroupOptions],
    ) -> ConsumerGroup:
        """Make a consumer of one of the stream's groups, over the stream's connections. It does no I/O.

        Args:
            name: of the group.
            consumer: name of the consumer, which its leases show; by default the host's name and the process id.
            start: where the group starts if it does not exist at its first use: `beginning`, `end`, the id of the first
                message, or an aware datetime. Without it, a group that does not exist is an error.
            options: of the consumer, see `ConsumerGroup`; `interrupt` and `on_event` are the stream's unless given.

        Raises:
            ConfigurationError: an option that cannot work as given.
        """
        gateway, given = self.session.runner.gateway, self._for_groups(options)
        return ConsumerGroup(self.name, name, gateway=gateway, consumer=consumer, start=start, **given)

    async def groups(self) -> list[str]:
        """List the names of the stream's groups, those of other programs included."""
        return [group.name for group in (await self.info()).groups]

    async def replay(
        self,
        *,
        from_id: str | None = None,
        from_time: datetime | None = None,
        to: str | None = None,
        expires_seconds: float = 3600,
        consumer: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> ConsumerGroup:
        """Deliver a part of the history again: to a temporary group, or to an existing one.

        A temporary group deletes itself at the end of its `with` block, keeps no message from being trimmed, and
        expires when its process died. An existing group is moved back; what it holds may be delivered twice.

        Args:
            from_id: the first message, which need not exist any more.
            from_time: instead, the time of the first message: an aware datetime.
            to: name of an existing group; None for a temporary one.
            expires_seconds: how long a temporary group lives without a claim.
            consumer: name of this consumer.
            options: of the group's consumers.

        Raises:
            ConfigurationError: not exactly one of `from_id` and `from_time`, or an existing group has not read so far.
        """
        checks.positive("expires_seconds", expires_seconds)
        first = parse_from(from_id, from_time)
        runner, given = self.session.runner, self._for_groups(options)
        if to is not None:
            group = self.group(to, consumer=consumer, **options)
            keys = self._keys.of_group(to)
            await runner.run(replay_operation(keys, new_id(), first, emits_events=runner.emits_events))
            return group
        await self._delete_expired()
        keys = self._keys.of_group(TEMPORARY_PREFIX + new_id().decode())
        made = ReplayGroup(keys, runner.gateway, expires_seconds=expires_seconds, consumer=consumer, **given)
        start = Start(str(first), str(first.before))
        await runner.run(create_group_operation(keys, new_id(), start, life_seconds=expires_seconds))
        return made

    def _for_groups(self, options: GroupOptions) -> GroupOptions:
        """Add what a group shares with its stream unless it is given."""
        config = self.session.config
        return {"interrupt": config.interrupt, "on_event": config.on_event, **options}

    async def _delete_expired(self) -> None:
        """Delete the temporary groups of processes that have died."""
        for group in (await self.info()).groups:
            if group.expires_in_seconds == 0:
                keys = self._keys.of_group(group.name)
                await self.session.runner.run(delete_group_operation(keys, expired=True))

    async def delete_group(self, name: str) -> bool:
        """Delete a group with all that it holds: messages in flight, returned and delayed ones, dead letters, totals.

        Its consumers lose their leases. The stream and its other groups stay.

        Returns:
            Whether there was such a group.
        """
        return await self.session.runner.run(delete_group_operation(self._keys.of_group(name)))

    # ------------------------------------------------------------------ look

    async def info(self) -> StreamInfo:
        """Describe the stream and each of its groups."""
        found = await self.session.runner.run(alone(stream_info_call(self._keys)))
        return StreamInfo.of(self.name, found)

    async def peek(
        self, count: int = 10, *, from_id: str | None = None, from_time: datetime | None = None
    ) -> list[Message]:
        """Show messages of the history, the oldest first, whoever has finished them; at most 8 MB of them.

        Args:
            count: maximum number of messages.
            from_id: where to begin; the first message by default. To continue, give the last id with its number
                increased by 1.
            from_time: instead, the time of the first message: an aware datetime.
        """
        checks.count("count", count)
        first = StreamId(0, 0) if from_id is None and from_time is None else parse_from(from_id, from_time)
        found = await self.session.runner.run(alone(peek_in_stream_call(self._keys, str(first.before), count)))
        return [Message(value) for value in found]

    async def depth(self) -> int:
        """Return the number of messages in the stream, whoever has finished them; groups have depths of their own."""
        return (await self.info()).length

    # ------------------------------------------------------------------ administer

    async def trim(self) -> TrimReport:
        """Remove what lies beyond `max_length` and `max_age_seconds` now, to the very message, in bounded calls.

        A message that a group has not been delivered yet, or that a consumer of another library holds, stays with
        those behind it, unless `trim_unfinished=True`.

        Raises:
            ConfigurationError: the stream has neither limit.
        """
        if not self._rules:
            raise ConfigurationError(f"stream {self.name!r} has neither max_length nor max_age_seconds to trim by")
        return await self.session.runner.run(trim_operation(self._keys, self._rules))

    async def cancel(self, ids: Iterable[str]) -> list[str]:
        """Delete messages by id for all groups that have not been delivered them yet, and free their keys.

        A group that has one in flight, returned, delayed or dead keeps its copy.

        Returns:
            The ids that were deleted.
        """
        wanted = ids_of(ids) or ()
        return await self.session.runner.run(
            cancel_in_stream_operation(self._keys, new_id(), wanted, emits_events=self.session.runner.emits_events)
        )

    async def forget(self, key: str) -> bool:
        """Free a deduplication key, whichever message holds it; return whether one did."""
        return await self.session.runner.run(
            forget_operation(self._keys, key, emits_events=self.session.runner.emits_events)
        )

    # ------------------------------------------------------------------ spec and end

    def spec(self) -> QueueSpec:
        """This stream as executors and triggers get it: JSON, without its secret.

        Raises:
            ConfigurationError: the stream was made from a client, or its URL carries a password.
        """
        address = self.session.runner.gateway.address
        if address is None:
            raise ConfigurationError(
                f"stream {self.name!r} was made from a client, which cannot be serialized; make it from a URL"
            )
        return QueueSpec(
            self.name, address.portable_url(), self.session.config.portable() | self._rules.portable(), self.kind
        )

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> RedisStreamQueue:
        """Make the stream that a spec describes. It connects at its first command.

        Raises:
            ConfigurationError: the spec is that of something else; `open_spec` makes any consumer.
        """
        if spec.kind != cls.kind:
            raise ConfigurationError(f"the spec of {spec.name!r} is of kind {spec.kind!r}, not {cls.kind!r}")
        options = dict(spec.options)
        publishes = options.pop("publishes", True)
        stream = cls(spec.name, url=spec.url, **options)
        stream.session.publishes = publishes
        return stream

    async def shutdown(self, timeout: float | None = 30.0) -> bool:
        """Stop publishing with this object, after waiting for publishes under way; see `RedisMessageQueue.shutdown`."""
        return await shut_down_session(self.session, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop publishing, and close the connections made here, those of its groups included."""
        await close_session(self.session, owns_gateway=self._owns_gateway)

    close = aclose  # asyncio only
