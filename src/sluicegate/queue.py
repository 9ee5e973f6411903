"""The queue: a thin synchronous shell over the prepared calls."""

from __future__ import annotations

import logging
import math
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal, overload
from weakref import WeakSet

import redis

from sluicegate.config import QueueConfig, QueueSpec
from sluicegate.core import calls, operations, replies
from sluicegate.core.deduplication import KeySource, compile_key_function
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import MOST_PER_CALL, Publishing, chunks
from sluicegate.core.values import Batch, ClaimRequest
from sluicegate.errors import (
    ConfigurationError,
    LeaseLostError,
    PublishUnknownError,
    QueueDrainedError,
    RedisMessageQueueError,
    RetryBudgetExhaustedError,
)
from sluicegate.gateway import RedisGateway, elapsed_clock
from sluicegate.lease import Lease, OnBatchError
from sluicegate.message import DeadMessage, Message
from sluicegate.report import Depth, PublishReport

__all__ = ["RedisMessageQueue"]

_log = logging.getLogger("sluicegate")
_MOST_CLAIMED = 10_000
_SHORTEST_RETENTION_SECONDS = 3600.0
_EMPTY_REMEMBERED_SECONDS = 600.0


class RedisMessageQueue:
    """A queue of messages on Redis: deduplicated publishes, leased batches, at-least-once delivery.

    Constructing one does no I/O. Objects are safe to share between threads.

    Args:
        name: of the queue; any text with a visible character in it.
        client: a `redis.Redis`; it stays the caller's to close.
        url: instead of a client: `redis://`, `rediss://`, `unix://` or `embedded:///folder`; the password by
            reference as
            `?password_env=NAME`.
        gateway: instead of both, a configured `RedisGateway`.
        deduplication: on if and only if a key function is given; saying so again is allowed, contradicting it is an
            error.
        get_deduplication_key: a callable from payload to key, a field name, a list of fields, or a template such as
            `"{tenant}:{order_id}"`. Called once per message per publish, never on a retry.
        deduplication_window_seconds: how long a key refuses further messages, from the publish; default one hour.
        visibility_timeout_seconds: life of a lease without a heartbeat; default 300.
        heartbeat_interval_seconds: less than half of the visibility timeout; None: off for `process_message`, a
            third of the lease
            for `claim` blocks.
        max_delivery_count: deliveries after which a message is buried, crashes, takeovers and errors counted; None
            for no cap.
        message_wait_interval_seconds: how long `process_message` waits for a message; 0 for not at all.
        retry_budget_seconds: how long a call is retried when Redis goes away; 0 disables.
        retry_initial_delay_seconds: first pause between attempts.
        retry_max_delay_seconds: longest pause.

    Raises:
        ConfigurationError: an option that cannot work as given.
    """

    def __init__(
        self,
        name: str,
        *,
        client: redis.Redis | None = None,
        url: str | None = None,
        gateway: RedisGateway | None = None,
        deduplication: bool | None = None,
        get_deduplication_key: KeySource | None = None,
        deduplication_window_seconds: float = 3600,
        visibility_timeout_seconds: float = 300,
        heartbeat_interval_seconds: float | None = None,
        max_delivery_count: int | None = 10,
        message_wait_interval_seconds: float = 5,
        retry_budget_seconds: float = 120,
        retry_initial_delay_seconds: float = 0.01,
        retry_max_delay_seconds: float = 5.0,
    ) -> None:
        self._keys = QueueKeys(name)
        self._config = QueueConfig(
            get_deduplication_key=get_deduplication_key,
            deduplication=deduplication,
            deduplication_window_seconds=deduplication_window_seconds,
            visibility_timeout_seconds=visibility_timeout_seconds,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            max_delivery_count=max_delivery_count,
            message_wait_interval_seconds=message_wait_interval_seconds,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
        )
        if sum(place is not None for place in (client, url, gateway)) != 1:
            raise ConfigurationError(f"queue {name!r} needs exactly one of client, url and gateway")
        self._owns_gateway = gateway is None
        self._gateway = gateway or RedisGateway(
            redis_client=client,
            url=url,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
        )
        self._publishing = Publishing(
            self._keys,
            compile_key_function(get_deduplication_key) if get_deduplication_key is not None else None,
            deduplication_window_seconds,
            self._gateway.retry_budget_seconds,
        )
        self.name = name
        self._publishes = True
        self._drained = False
        self._leases: WeakSet[Lease] = WeakSet()

    # ------------------------------------------------------------------ publish

    def publish(self, payload: Any, *, headers: Mapping[str, str] | None = None) -> bool:
        """Publish one message.

        Args:
            payload: a dict or list (JSON), a str, or bytes.
            headers: a few names and texts that travel with it.

        Returns:
            True, or False when its deduplication key is held.

        Raises:
            TypeError, ValueError: a payload or key that cannot be stored; names the path.
            ConfigurationError: a deduplication key that is missing, null or empty.
            RedisMemoryError: Redis is full; nothing was stored.
            PublishUnknownError: Redis stayed away and the outcome is unknown.
        """
        return self._send(self._batch([payload], headers)).accepted == 1

    def publish_many(self, payloads: Iterable[Any], *, headers: Mapping[str, str] | None = None) -> PublishReport:
        """Publish messages in calls of at most 1,000, reading `payloads` as they are needed.

        Each call takes effect whole or not at all; the next is prepared while Redis works on one, and sent once it has
        succeeded. When one fails, those before it stay published, and a note on the error counts them. Raises as
        `publish`.
        """
        report = PublishReport()
        try:
            for done in self._publish_ahead(payloads, headers):
                report.add(done)
        except Exception as error:
            error.add_note(f"{len(report.ids)} messages before these were handled: {report}")
            raise
        return report

    def _publish_ahead(self, payloads: Iterable[Any], headers: Mapping[str, str] | None) -> Iterator[PublishReport]:
        """As `publish_chunks`, but while Redis works on one call the next is read and encoded."""
        batches = (self._batch(chunk, headers) for chunk in chunks(payloads, MOST_PER_CALL))
        finish: Callable[[], PublishReport] | None = None
        while True:
            try:
                batch = next(batches, None)
            except BaseException:
                if finish is not None:  # what was sent before the input failed stays published, and is told
                    yield finish()
                raise
            if finish is not None:
                yield finish()
            if batch is None:
                return
            finish = self._start(batch)

    def publish_chunks(
        self,
        payloads: Iterable[Any],
        *,
        batch_size: int = MOST_PER_CALL,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[PublishReport]:
        """As `publish_many`, but yields a report per call and holds no more than one call's messages."""
        if not 1 <= batch_size <= MOST_PER_CALL:
            raise ConfigurationError(f"batch_size must be from 1 to {MOST_PER_CALL}, not {batch_size!r}")
        for chunk in chunks(payloads, batch_size):
            yield self._send(self._batch(chunk, headers))

    def publish_again(self, unknown: PublishUnknownError) -> PublishReport:
        """Ask for the outcome of a publish that is unknown, publishing what was not.

        Harmless while the batch is young enough, which the error's text tells; after that it raises again, without
        `calls`.

        Raises:
            PublishUnknownError: it is too late, or Redis is still away.
        """
        if not unknown.calls:
            raise unknown
        report = PublishReport()
        for call in unknown.calls:
            try:
                published = self._gateway.execute(call.later(elapsed_clock() - unknown.born))
            except RetryBudgetExhaustedError as error:
                raise PublishUnknownError(
                    str(unknown), ids=unknown.ids, calls=unknown.calls, born=unknown.born
                ) from error
            if published.accepted < 0:
                raise PublishUnknownError(f"too late to publish again: {unknown}", ids=unknown.ids)
            report.add(PublishReport.of(published, list(unknown.ids)))
        return report

    def _batch(self, payloads: list[Any], headers: Mapping[str, str] | None) -> Batch:
        if self._drained:
            raise QueueDrainedError(f"queue {self.name!r} was closed here; make a new object to publish")
        if not self._publishes:
            raise ConfigurationError(
                f"queue {self.name!r} came from a spec, and its deduplication key is a callable, which cannot "
                f"travel; use a template"
            )
        return self._publishing.batch(_new_id(), payloads, headers)

    def _start(self, batch: Batch) -> Callable[[], PublishReport]:
        """Send a batch; what is returned waits for its outcome."""
        finish = self._gateway.start(operations.publish(self._keys, batch, clock=elapsed_clock))
        return lambda: PublishReport.of(finish(), batch.message_ids())

    def _send(self, batch: Batch) -> PublishReport:
        published = self._gateway.run(operations.publish(self._keys, batch, clock=elapsed_clock))
        return PublishReport.of(published, batch.message_ids())

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
    ) -> Lease:
        """Lease up to `limit` messages, oldest first, after letting expired and due ones come back.

        A claim that is repeated under its `lease_id` finds its own lease, open or ended, and never takes a second
        batch while the
        first is remembered: that is how a retried task goes on where it stopped.

        Args:
            limit: most messages, up to 10,000. What failed before comes in smaller batches, the last time alone.
            lease_seconds: life of the lease without a heartbeat; default `visibility_timeout_seconds`.
            wait_seconds: how long to wait for a first message; 0 never blocks.
            lease_id: a name that a retry would use again; made by the library when left out.
            take_over_after_seconds: when the lease of this id is open in another hand: None answers `HELD`;
                otherwise it is taken over
                once its holder has been silent so long (0: at once). A takeover counts as a delivery.
            retention_seconds: how long the end of this lease is remembered; at least an hour and ten leases.
            remember_empty: remember an `EMPTY` answer under this `lease_id` for ten minutes, so that a retry gets it
                again.
            heartbeat: extend in the background while inside the `with` block.
            on_batch_error: what becomes of messages already yielded when the block raises: `release` or `ack`.

        Raises:
            ConfigurationError: an argument that cannot work.
            RedisUnavailableError: Redis cannot be reached.
        """
        lease_seconds = self._config.visibility_timeout_seconds if lease_seconds is None else lease_seconds
        _check_claim(limit, lease_seconds, wait_seconds, lease_id, take_over_after_seconds, remember_empty)
        if retention_seconds is not None and not 0 <= retention_seconds < math.inf:
            raise ConfigurationError(f"retention_seconds must be a number of 0 or more, not {retention_seconds!r}")
        if on_batch_error not in ("release", "ack"):
            raise ConfigurationError(f"on_batch_error must be 'release' or 'ack', not {on_batch_error!r}")
        nonce = _new_id()
        known = lease_id if lease_id is not None else nonce.decode()
        request = ClaimRequest(
            name=self._keys.lease_name(known),
            nonce=nonce,
            limit=limit,
            lease_seconds=lease_seconds,
            keep_seconds=max(retention_seconds or 0, _SHORTEST_RETENTION_SECONDS, 10 * lease_seconds),
            empty_seconds=_EMPTY_REMEMBERED_SECONDS if remember_empty else 0,
        )
        asked_at = elapsed_clock()
        reply: replies.ClaimReply = replies.Empty()
        if not self._drained:
            reply = self._gateway.run(
                operations.claim(
                    self._keys,
                    self._config.terms,
                    request,
                    clock=elapsed_clock,
                    wait_seconds=wait_seconds,
                    take_over_after_seconds=take_over_after_seconds,
                )
            )
        interval = self._config.heartbeat_interval_seconds
        lease = Lease(
            self._gateway,
            self._keys,
            self._config.terms,
            request,
            reply,
            lease_id=known,
            chosen=lease_id is not None,
            asked_at=asked_at if wait_seconds == 0 else elapsed_clock(),
            on_batch_error=on_batch_error,
            heartbeat_seconds=(min(interval or lease_seconds, lease_seconds / 3)) if heartbeat else None,
        )
        if lease:
            self._leases.add(lease)
        return lease

    @contextmanager
    def process_message(self) -> Iterator[str | bytes | None]:
        """Wait for one message and yield its payload, or None when none came in time.

        Leaving the block acks it; an exception nacks it with a growing delay and propagates. That the lease was lost
        is logged, never raised.
        The payload is a str when the client has `decode_responses=True` and the payload is UTF-8, else bytes.
        """
        lease = self.claim(
            wait_seconds=self._config.message_wait_interval_seconds,
            heartbeat=self._config.heartbeat_interval_seconds is not None,
        )
        if not lease:
            yield None
            return
        try:
            with lease:
                (message,) = lease
                yield self._received(message.payload)
        except LeaseLostError as lost:
            if lost.lease_id != lease.id:
                raise
            _log.warning("queue %r: %s", self.name, lost)

    def _received(self, payload: bytes) -> str | bytes:
        if not self._gateway.decodes_responses:
            return payload
        try:
            return payload.decode()
        except UnicodeDecodeError:
            return payload

    # ------------------------------------------------------------------ look

    def depth(self) -> Depth:
        """Count messages by state: read-only, one round trip (two when a lease has expired), the same cost at any
        size.
        """
        return Depth.from_counts(self._gateway.run(operations.depth(self._keys)))

    @overload
    def peek(self, count: int = 10, *, state: Literal["dead"]) -> list[DeadMessage]: ...
    @overload
    def peek(
        self, count: int = 10, *, state: Literal["pending", "returned", "delayed"] = "pending"
    ) -> list[Message]: ...
    def peek(self, count: int = 10, *, state: str = "pending") -> list[Message] | list[DeadMessage]:
        """Look at messages without claiming them, the next to be claimed first.

        Args:
            count: most messages.
            state: `pending`, `returned`, `delayed` or `dead`.
        """
        if state not in ("pending", "returned", "delayed", "dead"):
            raise ConfigurationError(f"state must be pending, returned, delayed or dead, not {state!r}")
        if count < 1:
            raise ConfigurationError(f"count must be 1 or more, not {count!r}")
        values = self._gateway.execute(calls.peek(self._keys, state, count))
        if state == "dead":
            return [DeadMessage.from_record(value) for value in values]
        return [Message(value) for value in values]

    @property
    def key(self) -> SimpleNamespace:
        """Names of this queue's keys, for people with `redis-cli`."""
        names = ("pending", "returned", "delayed", "leases", "dead", "completed", "failed", "counters")
        return SimpleNamespace(**{name: getattr(self._keys, name).decode() for name in names})

    # ------------------------------------------------------------------ travel and end

    def spec(self) -> QueueSpec:
        """This queue as it may travel to executors and triggers: without its secret.

        Raises:
            ConfigurationError: the queue was made from a client, or its URL carries a password.
        """
        address = self._gateway.address
        if address is None:
            raise ConfigurationError(
                f"queue {self.name!r} was made from a client, which cannot travel; make it from a url such as "
                "redis://host:6379/0?password_env=NAME"
            )
        return QueueSpec(self.name, address.portable_url(), self._config.portable())

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> RedisMessageQueue:
        """The queue that a spec describes. Connects at its first command."""
        options = dict(spec.options)
        publishes = options.pop("publishes", True)
        queue = cls(spec.name, url=spec.url, **options)
        queue._publishes = publishes
        return queue

    def close(self) -> None:
        """Stop publishing and claiming here, release what leases made here still hold, and close our own connections.

        A lease object that nobody references any more is not released; it runs out.
        """
        self._drained = True
        for lease in list(self._leases):
            lease.stop_heartbeat()
            try:
                lease.release()
            except RedisMessageQueueError as error:
                _log.warning("queue %r: lease %r could not be released: %s", self.name, lease.id, type(error).__name__)
        if self._owns_gateway:
            self._gateway.close()

    def __repr__(self) -> str:
        return f"RedisMessageQueue({self.name!r})"


def _new_id() -> bytes:
    """Sixteen characters nobody else makes."""
    return urlsafe_b64encode(os.urandom(12)).replace(b"-", b".")


def _check_claim(
    limit: int,
    lease_seconds: float,
    wait_seconds: float,
    lease_id: str | None,
    take_over_after_seconds: float | None,
    remember_empty: bool,
) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST_CLAIMED:
        raise ConfigurationError(f"limit must be an int from 1 to {_MOST_CLAIMED}, not {limit!r}")
    if not 0 < lease_seconds < math.inf:
        raise ConfigurationError(f"lease_seconds must be a number above 0, not {lease_seconds!r}")
    if not wait_seconds >= 0:
        raise ConfigurationError(f"wait_seconds must be 0 or more, not {wait_seconds!r}")
    if lease_id is None and (take_over_after_seconds is not None or remember_empty):
        raise ConfigurationError(
            "take_over_after_seconds and remember_empty need a lease_id that a retry would use again"
        )
    if take_over_after_seconds is not None and not take_over_after_seconds >= 0:
        raise ConfigurationError(f"take_over_after_seconds must be 0 or more, not {take_over_after_seconds!r}")
