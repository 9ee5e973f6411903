"""Publishes the messages of one queue object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sluicegate import checks, spans
from sluicegate._redis.asyncio.connection_io import HeldConnection
from sluicegate._session import new_id
from sluicegate.asyncio.runtime import current_owner, give_way
from sluicegate.asyncio.session import Session
from sluicegate.cancellation import heeds_cancellation  # asyncio only
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import Operation, alone
from sluicegate.core.deduplication import KeySource, PendingKey
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.publishing import MAX_PER_CALL, Batches, Payload, Publishing
from sluicegate.core.tracking import batch_call_ids, batch_name
from sluicegate.core.transitions.batches import BatchCounts, batch_call
from sluicegate.core.transitions.publish import Batch, Published, publish_operation
from sluicegate.errors import (
    BatchChangedError,
    ConfigurationError,
    NotDurableError,
    PublishUnknownError,
    QueueDrainedError,
    RedisMessageQueueError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.report import PublishReport

if TYPE_CHECKING:
    from sluicegate.tables.rows import TableLike

__all__ = ["Publisher"]


@heeds_cancellation  # asyncio only
async def _key_of(pending: PendingKey) -> Any:  # asyncio only
    """Return the result of an async key function."""
    return await pending.awaitable


async def _next_with_key(ahead: Batches, pending: PendingKey) -> Batch | PendingKey:  # asyncio only
    """Await a key and continue; an error goes through the generator, which adds its position."""
    try:
        key = await _key_of(pending)
    except Exception as error:  # noqa: BLE001  (the generator raises it again)
        return ahead.throw(error)
    return ahead.send(key)


class Publisher:
    """Sends payloads in batches; the publish methods of `RedisMessageQueue` document what it promises.

    Args:
        session: of the queue.
        operation: publishes a batch, with the time of its first call if it was sent before; None: to a queue.
    """

    def __init__(
        self, session: Session, operation: Callable[[Batch, float | None], Operation[Published]] | None = None
    ) -> None:
        self._session = session
        self._operation = operation or self._publish_to_queue
        self._runner = session.runner
        self._activity = session.activity

    async def publish(
        self,
        payload: Payload,
        headers: Mapping[str, str] | None,
        delay_seconds: float,
        due_at: datetime | None,
        durability: DurabilityOption,
    ) -> bool:
        """Publish one message; False when its deduplication key is held."""
        publish = self._activity.begin_publish(current_owner())
        try:
            with spans.publishing(self._session, headers) as span:
                ahead = self._session.publishing.batches(
                    [payload],
                    span.headers,
                    new_id=new_id,
                    delay_seconds=delay_seconds,
                    due_at=due_at,
                    durability=durability,
                )
                begun = elapsed_clock()
                try:
                    batch = await self._next(ahead)
                except Exception as error:
                    await self._emit_refused(error, begun)
                    raise
                assert batch is not None
                report = await self._send(batch)
                span.published(report)
                return report.accepted == 1
        finally:
            self._activity.end_publish(publish)

    async def publish_many(
        self,
        payloads: Iterable[Payload],
        headers: Mapping[str, str] | None,
        delay_seconds: float,
        due_at: datetime | None,
        durability: DurabilityOption,
        partial: bool,
        *,
        publishing: Publishing | None = None,
        most: int = MAX_PER_CALL,
    ) -> PublishReport:
        """Publish any number of messages, call after call."""
        report = PublishReport()
        with spans.publishing(self._session, headers) as span:
            ahead = (publishing or self._session.publishing).batches(
                payloads,
                span.headers,
                new_id=new_id,
                most=most,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
                partial=partial,
            )
            try:
                async for done in self.publish_batches(ahead, holds=True):
                    report.add(done)
                    span.published(done)
            except Exception as error:
                error.add_note(f"{len(report.ids)} messages before these were handled: {report}")
                raise
        return report

    async def publish_batch(
        self,
        batch_id: str,
        payloads: Iterable[Payload],
        headers: Mapping[str, str] | None,
        delay_seconds: float,
        due_at: datetime | None,
        durability: DurabilityOption,
        retention_seconds: float,
        *,
        publishing: Publishing | None = None,
        most: int = MAX_PER_CALL,
    ) -> PublishReport:
        """Publish messages as a batch, or what an earlier attempt did not publish of it, and seal it."""
        name = batch_name(batch_id)
        with spans.publishing(self._session, headers) as span:
            ahead = (publishing or self._session.publishing).batches(
                payloads,
                span.headers,
                new_id=batch_call_ids(name),
                most=most,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
                tracked=name,
            )
            report = await self.publish_tracked(batch_id, ahead, retention_seconds)
            span.published(report)
        return report

    async def publish_table(
        self,
        table: TableLike,
        key: KeySource | None,
        headers: Mapping[str, str] | None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        *,
        partial: bool = False,
        batch_size: int = MAX_PER_CALL,
        batch_id: str | None = None,
        retention_seconds: float = 0,
    ) -> PublishReport:
        """Publish the rows of a table, call after call, or as a batch."""
        from sluicegate.tables.rows import TableRows, batches_of

        checks.count("batch_size", batch_size, MAX_PER_CALL)
        if partial and batch_id is not None:
            raise ConfigurationError("a batch is published whole: leave out partial or batch_id")
        publishing = self._session.publishing.keyed_by(key)
        rows: Iterable[Any] = TableRows(batches_of(table), publishing)
        if batch_id is not None:
            return await self.publish_batch(
                batch_id,
                rows,
                headers,
                delay_seconds,
                due_at,
                durability,
                retention_seconds,
                publishing=publishing,
                most=batch_size,
            )
        return await self.publish_many(
            rows, headers, delay_seconds, due_at, durability, partial, publishing=publishing, most=batch_size
        )

    async def publish_tracked(self, batch_id: str, ahead: Batches, retention_seconds: float) -> PublishReport:
        """Publish the calls of a batch; `ahead` has their ids from `batch_call_ids` and is `tracked`."""
        report = PublishReport()
        try:
            async for done in self._opened_and_sealed(
                batch_id, self.publish_batches(ahead, holds=True), retention_seconds
            ):
                report.add(done)
        except BatchChangedError:
            raise
        except Exception as error:
            error.add_note(
                f"{len(report.ids)} messages before these were handled: {report}; a repeat under batch_id={batch_id!r} "
                "publishes the rest"
            )
            raise
        return report

    async def _opened_and_sealed(
        self, batch_id: str, reports: AsyncIterator[PublishReport], retention_seconds: float
    ) -> AsyncIterator[PublishReport]:
        """Open a batch, publish its calls by reading their reports, and seal it after the last one."""
        checks.positive("retention_seconds", retention_seconds)
        session, name, accepted = self._session, batch_name(batch_id), 0
        opening = batch_call(session.keys, "open", name, life_seconds=retention_seconds)
        known: BatchCounts = await self._runner.run(alone(opening))
        async for report in reports:
            accepted += report.accepted
            yield report
        if known.sealed_ms and accepted != known.total:
            raise BatchChangedError(
                f"batch {batch_id!r} was published before with {known.total} messages, and now with {accepted}: a "
                "repeat publishes the same messages in the same order. Publish others under another batch_id"
            )
        await self._runner.run(alone(batch_call(session.keys, "seal", name)))

    def publish_chunks(
        self,
        payloads: Iterable[Payload],
        batch_size: int,
        headers: Mapping[str, str] | None,
        delay_seconds: float,
        due_at: datetime | None,
        durability: DurabilityOption,
        ahead: bool,
        batch_id: str | None = None,
        retention_seconds: float = 0,
    ) -> AsyncIterator[PublishReport]:
        """Publish call after call, and yield a report for each; unless `ahead`, one call's messages are in memory."""
        checks.count("batch_size", batch_size, MAX_PER_CALL)
        name = b"" if batch_id is None else batch_name(batch_id)

        def reports_of(headers: Mapping[str, str] | None) -> AsyncIterator[PublishReport]:
            batches = self._session.publishing.batches(
                payloads,
                headers,
                new_id=batch_call_ids(name) if name else new_id,
                most=batch_size,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
                tracked=name,
            )
            reports = self.publish_batches(batches) if ahead else self._one_by_one(batches)
            return reports if batch_id is None else self._opened_and_sealed(batch_id, reports, retention_seconds)

        return reports_of(headers) if spans.tracer is None else self._traced(reports_of, headers)

    async def _traced(
        self,
        reports_of: Callable[[Mapping[str, str] | None], AsyncIterator[PublishReport]],
        headers: Mapping[str, str] | None,
    ) -> AsyncIterator[PublishReport]:
        """Publish with these headers and the context of a trace, which lasts from the first report to the last."""
        with spans.publishing(self._session, headers, is_current=False) as span:
            async for report in reports_of(span.headers):
                span.published(report)
                yield report

    async def _one_by_one(self, batches: Batches) -> AsyncIterator[PublishReport]:
        """Publish batches in order, and make each after the report of the one before was used."""
        while True:
            begun = elapsed_clock()
            try:
                batch = await self._next(batches)
            except Exception as error:
                await self._emit_refused(error, begun)
                raise
            if batch is None:
                return
            publish = self._activity.begin_publish(current_owner())
            try:
                try:
                    self._refuse_closed()
                except QueueDrainedError as error:
                    await self._emit_refused(error, begun)
                    raise
                report = await self._send(batch)
            finally:
                self._activity.end_publish(publish)
            yield report

    async def publish_again(self, unknown: PublishUnknownError) -> PublishReport:
        """Ask for the outcome of a publish that is unknown, and publish what was not."""
        if not unknown.calls:
            await give_way()
            await self._emit_refused(unknown, elapsed_clock())
            raise unknown
        assert isinstance(unknown.batch, Batch)
        publish = self._activity.begin_publish(current_owner())
        try:
            return await self._send(unknown.batch, unknown.born)
        finally:
            self._activity.end_publish(publish)

    async def publish_batches(self, ahead: Batches, *, holds: bool = False) -> AsyncIterator[PublishReport]:
        """Publish batches in order, and yield a report for each; while Redis works on one, the next is made.

        The adapters publish messages through this that they have encoded themselves.

        Args:
            ahead: the batches.
            holds: keep one connection for all calls; for callers that ask for each report at once.
        """
        finish: Callable[[], Awaitable[PublishReport]] | None = None
        held = self._runner.hold() if holds else None
        publish = self._activity.begin_publish(current_owner())
        try:
            while True:
                begun = elapsed_clock()
                try:
                    batch = await self._next(ahead)
                    operation = None if batch is None else self._operation(batch, None)
                except BaseException as error:
                    if finish is not None:  # what was sent before the input failed stays published: report it
                        yield await finish()
                    if isinstance(error, Exception):
                        await self._emit_refused(error, begun)
                    raise
                if finish is not None:
                    yield await finish()
                if batch is None or operation is None:
                    if finish is None:
                        await give_way()
                    return
                finish = await self._start(batch, operation, held)
        finally:
            self._activity.end_publish(publish)
            if held is not None:
                await held.aclose()

    async def _next(self, ahead: Batches) -> Batch | None:
        """Read and encode the messages of the next call; awaitable keys are awaited one after the other."""
        if self._activity.closed:
            await give_way()
        self._refuse_closed()
        made = next(ahead, None)
        while isinstance(made, PendingKey):  # asyncio only
            made = await _next_with_key(ahead, made)
        assert not isinstance(made, PendingKey)
        return made

    def _refuse_closed(self) -> None:
        """Raise when this object may not publish."""
        name = self._session.keys.name
        if self._activity.closed:
            raise QueueDrainedError(f"queue {name!r} was drained here; make a new object to publish")
        if not self._session.publishes:
            raise ConfigurationError(
                f"queue {name!r} came from a spec, and its deduplication key is a callable, which cannot be "
                "serialized; use a template"
            )

    async def _emit_refused(self, error: Exception, begun: float) -> None:
        """Emit the event of a publish that failed before anything was sent: its message, key or queue was unfit."""
        name = self._session.keys.name
        if isinstance(error, RedisMessageQueueError):
            error.locate(queue=name, operation="publish")
        event = QueueEvent(EventOperation.PUBLISH, EventOutcome.FAILURE, name, error=error)
        await self._runner.emit(event, begun)

    async def _start(
        self, batch: Batch, operation: Operation[Published], held: HeldConnection | None
    ) -> Callable[[], Awaitable[PublishReport]]:
        """Send a batch; the returned function waits for its outcome."""
        receive = await self._runner.start(operation, held)
        return lambda: self._outcome(batch, receive)

    async def _send(self, batch: Batch, born: float | None = None) -> PublishReport:
        return await self._outcome(batch, lambda: self._runner.run(self._operation(batch, born)))

    async def _outcome(self, batch: Batch, receive: Callable[[], Awaitable[Published]]) -> PublishReport:
        try:
            published = await receive()
            return PublishReport.of(published, published.ids or batch.message_ids(), batch.size_bytes)
        except NotDurableError as error:
            if isinstance(error.published, Published):
                error.report = PublishReport.of(error.published, list(error.ids), batch.size_bytes)
            _locate(error, batch)
            raise
        except RedisMessageQueueError as error:
            _locate(error, batch)
            raise

    def _publish_to_queue(self, batch: Batch, born: float | None = None) -> Operation[Published]:
        session = self._session
        config, eviction = session.config, session.eviction
        block = config.pending_overload_block_timeout_seconds if config.pending_overload_policy == "block" else None
        return publish_operation(
            session.keys,
            batch,
            clock=elapsed_clock,
            block_seconds=block,
            emits_events=self._runner.emits_events,
            born=born,
            eviction=None if eviction.done else eviction,
        )


def _locate(error: RedisMessageQueueError, batch: Batch) -> None:
    """Name the message when the call published a single one."""
    if len(batch.parts) == 1:
        error.locate(message_id=next(iter(batch.message_ids()), None), position=batch.first)
