"""A group of a stream: a queue consumer whose pending messages are what it has not read of the stream."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypedDict, Unpack

from sluicegate import checks
from sluicegate._arguments import ids_of, refuse_unfit_gateway
from sluicegate._redis.asyncio.connection_io import HeldConnection
from sluicegate._session import new_id
from sluicegate.asyncio.consumer import QueueConsumer
from sluicegate.asyncio.gateway import Client, Gateway, RedisGateway
from sluicegate.asyncio.operation_runner import OperationRunner
from sluicegate.asyncio.session import open_session
from sluicegate.config import OPTIONS_ELSEWHERE, QueueConfig, QueueSpec
from sluicegate.core.call import Call
from sluicegate.core.keys import GroupKeys, consumer_name
from sluicegate.core.stream_ids import Start, StreamPlace, parse_from, parse_start
from sluicegate.core.transitions.group_pending import (
    GroupConsumer,
    PendingMessage,
    PendingSummary,
    consumers_operation,
    pending_operation,
    remove_consumer_operation,
    summary_operation,
)
from sluicegate.core.transitions.groups import create_group_operation, delete_group_operation
from sluicegate.core.transitions.replay import replay_operation
from sluicegate.errors import ConfigurationError, GroupNotFoundError
from sluicegate.events import QueueEvent
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.options import OnError, RetryBackoff
from sluicegate.signatures import refuse_unknown_options
from sluicegate.spec import SpecKind

__all__ = ["ConsumerGroup", "GroupOptions"]


class GroupOptions(TypedDict, total=False):
    """The options of a group: those of a queue that concern its consumers."""

    visibility_timeout_seconds: float | None
    heartbeat_interval_seconds: float | None
    on_heartbeat_failure: Callable[[], Any] | None
    max_delivery_count: int | None
    max_lease_seconds: float | None
    on_error: OnError
    retry_backoff: RetryBackoff | None
    enable_completed_queue: bool
    max_completed_length: int | None
    enable_failed_queue: bool
    max_failed_length: int | None
    max_dead_length: int | None
    message_wait_interval_seconds: float
    retry_budget_seconds: float
    retry_initial_delay_seconds: float
    retry_max_delay_seconds: float
    interrupt: BaseGracefulInterruptHandler | None
    on_event: Callable[[QueueEvent], Any] | None


_GATEWAY_OPTIONS = ("retry_budget_seconds", "retry_initial_delay_seconds", "retry_max_delay_seconds")
_HINTS = {
    **OPTIONS_ELSEWHERE,
    "get_deduplication_key": "give it to the stream, which publishes",
    "max_pending_length": "give max_length to the stream; a group never refuses a publish",
    "strict_envelope_decoding": "leave it out: whatever another client appends to a stream is a message",
}


class ConsumerGroup(QueueConsumer):
    """A group of a stream: each of its messages goes to one of the group's consumers, and every group gets them all.

    It has all methods of a queue that concern consumers: claims with leases, deliveries counted, dead letters, redrive,
    drain. Its pending messages are what it has not read of the stream. Constructing one does no I/O. The consumer group
    of that name in Redis is the same group, so `XINFO GROUPS` shows its lag, and clients of other libraries may consume
    beside it.

    Args:
        stream: name of the stream.
        group: name of the group.
        client: a `redis.asyncio.Redis` or `RedisCluster`; it stays the caller's to close.
        url: instead of a client, as for a queue.
        gateway: instead of both, a configured `RedisGateway` or another `Gateway`.
        consumer: name of this consumer, which its leases show; by default the host's name and the process id.
        start: where the group starts if it does not exist at its first use: `beginning`, `end`, the id of the first
            message, or an aware datetime. Without it, a group that does not exist is an error.
        options: as for a queue: `visibility_timeout_seconds`, `max_delivery_count`, `retry_backoff` and the others of
            `GroupOptions`.

    Raises:
        ConfigurationError: an option that cannot work as given.
    """

    kind: ClassVar[SpecKind] = "group"

    def __init__(
        self,
        stream: str,
        group: str,
        *,
        client: Client | None = None,
        url: str | None = None,
        gateway: Gateway | None = None,
        consumer: str | None = None,
        start: StreamPlace | None = None,
        **options: Unpack[GroupOptions],
    ) -> None:
        refuse_unknown_options(
            type(self).__name__, options, [*GroupOptions.__annotations__, "consumer", "start"], _HINTS
        )
        config = QueueConfig(**options)
        if sum(place is not None for place in (client, url, gateway)) != 1:
            raise ConfigurationError(
                f"group {group!r} of stream {stream!r} needs exactly one of client, url and gateway"
            )
        self._start = None if start is None else parse_start(start)
        self._keys = GroupKeys(stream, group)
        named = consumer_name(f"{socket.gethostname()}:{os.getpid()}" if consumer is None else consumer)
        if gateway is not None:
            refuse_unfit_gateway(gateway, ("execute", "send", "wait", "aclose"))
        owns_gateway = gateway is None
        gateway = gateway or RedisGateway(
            redis_client=client, url=url, **{name: getattr(config, name) for name in _GATEWAY_OPTIONS}
        )
        session = open_session(stream, config, gateway, self._keys)
        session.consumer = named
        session.runner = _GroupRunner(gateway, config.on_event, session.activity.stopping, self._keys, self._start)
        super().__init__(session, owns_gateway=owns_gateway)

    @property
    def group_name(self) -> str:
        """Return the name of the group."""
        return self._keys.group

    @property
    def consumer(self) -> str:
        """Return the name of this consumer."""
        return self.session.consumer.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.group_name!r})"

    # ------------------------------------------------------------------ the group itself

    async def create(self, start: StreamPlace) -> bool:
        """Create the group, and the stream with it; a group that exists stays where it is.

        Args:
            start: where it starts: `beginning`, `end`, the id of the first message, or an aware datetime.

        Returns:
            Whether it was created.

        Raises:
            ConfigurationError: the group exists, and was created at another start.
        """
        return await self.session.runner.run(create_group_operation(self._keys, new_id(), parse_start(start)))

    async def delete(self) -> bool:
        """Delete the group with all that it holds: messages in flight, returned and delayed ones, dead letters, totals.

        Its consumers lose their leases. The stream and its other groups stay.

        Returns:
            Whether there was such a group.
        """
        return await self.session.runner.run(delete_group_operation(self._keys))

    async def replay(self, *, from_id: str | None = None, from_time: StreamPlace | None = None) -> str:
        """Move the group back, so that it delivers messages again from an id or a time on.

        What the group still holds (in flight, returned, delayed, dead) stays, and is delivered twice where the replay
        covers it. Deliveries are counted anew.

        Returns:
            The id that the group had read last.

        Raises:
            ConfigurationError: neither or both are given, or the group has not read so far yet.
        """
        first = parse_from(from_id, from_time)
        return await self.session.runner.run(
            replay_operation(self._keys, new_id(), first, emits_events=self.session.runner.emits_events)
        )

    # ------------------------------------------------------------------ look

    async def lag(self) -> int:
        """Return how many messages of the stream the group has not read.

        It is exact on Redis 7 and later. Before, or where messages were deleted, the group counts up to 10,000 of them,
        or 4 MB, and returns at least that number.
        """
        return (await self.depth()).pending

    async def pending(self, limit: int = 100, *, consumer: str | None = None) -> list[PendingMessage]:
        """List messages that consumers hold: those in leases by their deadlines, then those of other libraries.

        Args:
            limit: maximum number of messages.
            consumer: only those of this consumer.
        """
        checks.count("limit", limit)
        return await self.session.runner.run(pending_operation(self._keys, limit, consumer))

    async def pending_summary(self) -> PendingSummary:
        """Count the messages that consumers hold, by consumer; it reads all of them, without payloads."""
        return await self.session.runner.run(summary_operation(self._keys))

    async def consumers(self) -> list[GroupConsumer]:
        """List the consumers that hold leases, by name, then the consumers of other libraries."""
        return await self.session.runner.run(consumers_operation(self._keys))

    # ------------------------------------------------------------------ administer

    async def remove_consumer(self, name: str) -> int:
        """Take from a consumer what it holds, so that the next claims get it, and remove it from the group.

        Its leases expire, which counts as a delivery. A consumer of another library loses its entries, which keep their
        delivery counts, and its name in Redis.

        Returns:
            The number of messages that it held.
        """
        return await self.session.runner.run(
            remove_consumer_operation(
                self._keys,
                self.session.rules,
                consumer_name(name),
                emits_events=self.session.runner.emits_events,
            )
        )

    async def cancel(self, ids: Iterable[str]) -> list[str]:
        """Delete returned and delayed messages of this group by id.

        Returns:
            The ids that were cancelled; one that is in flight, dead or unknown is not among them.

        Raises:
            ConfigurationError: the group has not read one of these messages yet, so all groups would lose it; nothing
                was cancelled.
        """
        return await super().cancel(ids_of(ids) or ())

    # ------------------------------------------------------------------ spec

    def spec(self) -> QueueSpec:
        """This group as executors and triggers get it: JSON, without its secret. Each names its own consumer.

        Raises:
            ConfigurationError: the group was made from a client, or its URL carries a password.
        """
        address = self.session.runner.gateway.address
        if address is None:
            raise ConfigurationError(
                f"group {self.group_name!r} of stream {self.name!r} was made from a client, which cannot be "
                "serialized; make it from a URL"
            )
        options = self.session.config.portable()
        if self._start is not None:
            options["start"] = self._start.text
        return QueueSpec(self.name, address.portable_url(), options, self.kind, self.group_name)

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> ConsumerGroup:
        """Make the group that a spec describes. It connects at its first command.

        Raises:
            ConfigurationError: the spec is that of something else; `open_spec` makes any consumer.
        """
        if spec.kind != cls.kind or spec.group is None:
            raise ConfigurationError(f"the spec of {spec.name!r} is of kind {spec.kind!r}, not {cls.kind!r}")
        return cls(spec.name, spec.group, url=spec.url, **spec.options)


class _GroupRunner(OperationRunner):
    """An operation runner that creates its group when it is missing, given where to start."""

    def __init__(
        self,
        gateway: Gateway,
        on_event: Callable[[QueueEvent], Any] | None,
        stopping: Callable[[], bool],
        keys: GroupKeys,
        start: Start | None,
    ) -> None:
        super().__init__(gateway, keys.name, on_event, stopping)
        self._keys = keys
        self._start = start

    async def execute(self, call: Call[Any], retry: bool, begun: float, held: HeldConnection | None = None) -> Any:
        try:
            return await super().execute(call, retry, begun, held)
        except GroupNotFoundError:
            start = self._start
            if start is None:
                raise GroupNotFoundError(
                    f"stream {self._keys.name!r} has no group {self._keys.group!r}; create it with "
                    "group.create(start), or give start='beginning', 'end', an id or a time to have its first use "
                    "create it"
                ) from None
        await self.run(create_group_operation(self._keys, new_id(), start), retry=retry)
        return await super().execute(call, retry, begun)
