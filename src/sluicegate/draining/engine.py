"""The drain engine: one partition's loop of claim, work and settle, chunk after chunk."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Self

from sluicegate._lease_base import LeaseState
from sluicegate.consumer import QueueConsumer
from sluicegate.core.ledger import LeaseCounts
from sluicegate.draining import lease_access
from sluicegate.draining.chunk import Chunk, MakeContext
from sluicegate.draining.context import DrainContext
from sluicegate.draining.lease_access import LeaseView
from sluicegate.draining.output import OutputFiles
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.returned import RETENTION_SECONDS, ReturnedMessages
from sluicegate.draining.summary import Ended, PartitionSummary
from sluicegate.draining.tally import Tally
from sluicegate.draining.verdicts import VerdictCollector
from sluicegate.errors import LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease

__all__ = ["DrainEngine"]

_MAX_FRUITLESS_CALLS = 50
_LOOK_SECONDS = 1.0  # between looks at a lease that another attempt holds, and at the clock of a waiting drain


class DrainEngine:
    """Drains one partition: one lease per chunk, named so that a retry finds it.

    Only what the handler raises is caught. Any other error (Redis away for longer than the retry budget, a lost lease)
    propagates, and the open lease stays as it is: a retry under the same run id takes it over at once, whole, under the
    same `lease_key`. The caller closes the queue, and only after success, because closing releases leases.

    While Redis is away, all calls of an engine together wait no longer for it than one call does: the queue's retry
    budget counts once. Other drains of the same queue object share it.

    As a context manager it releases the chunks that it still holds.

    Args:
        plan: of the drain.
        queue: the queue to drain; partitions may share one.
        partition: number of the partition.
        attempt: number of this attempt at the partition, from 0.
        should_stop: asked between chunks; True ends the partition as `interrupted`.
        make_context: makes the second argument of the handler.
    """

    def __init__(
        self,
        plan: DrainPlan,
        queue: QueueConsumer,
        partition: int = 0,
        attempt: int = 0,
        *,
        should_stop: Callable[[], bool] | None = None,
        make_context: MakeContext = DrainContext,
    ) -> None:
        self.tally = Tally(partition, attempt)
        self.held: list[Chunk] = []
        self._plan = plan
        self._queue = queue
        self._partition = partition
        self._attempt = attempt
        self._should_stop = should_stop
        self._make_context = make_context
        self._config = queue.session.config
        self._outage = queue.session.runner.outage
        self._quota = plan.quota(partition)
        self._started = time.monotonic()
        self._stop_at = _stop_at(plan, self._started)
        self._returned = ReturnedMessages(queue, plan.call_id)
        self._fruitless_calls = 0
        self._remembered_empty = False
        self._summary: PartitionSummary | None = None

    def run(self) -> PartitionSummary:
        """Work on chunk after chunk until there is a reason to end."""
        for _ in self.steps():
            pass
        return self.summary()

    def summary(self) -> PartitionSummary:
        """Return the result, once `steps` has ended."""
        if self._summary is None:
            raise RuntimeError("the drain has not ended")
        return self._summary

    def steps(self) -> Iterator[None]:
        """Work as `run` does, with a pause after every chunk and every second of waiting.

        In a pause no lease is held, except the chunks that the plan says to hold.
        """
        with self._outage.shared():
            ended = yield from self._drain()
        self._summary = self.summary_until_now(ended)

    def summary_until_now(self, ended: Ended) -> PartitionSummary:
        """Return the result so far, for a drain that ends for this reason."""
        seconds = time.monotonic() - self._started
        return self.tally.summary(ended, seconds, remembered_empty=self._remembered_empty)

    def count_earlier(self, ended: Ended) -> PartitionSummary:
        """Count the chunks that earlier attempts finished, without claiming anything."""
        for chunk in itertools.count():
            seen = self._look(chunk)
            if seen.state != "ended":
                return self.summary_until_now(ended)
            self._replay(chunk, LeaseCounts(seen.acked, seen.returned, seen.buried))
        raise AssertionError("unreachable: chunks have no end")

    # ------------------------------------------------------------------ chunks that are held

    def extend_held(self) -> None:
        """Renew the leases of all held chunks.

        Raises:
            LeaseLostError: one of them is lost, so its result must not be handed over.
        """
        with self._outage.shared():
            for chunk in self.held:
                chunk.lease.extend()

    def settle_held(self) -> None:
        """Settle every held chunk, also when one of them was lost.

        Raises:
            LeaseLostError: the first whose settle came too late; its messages are or will be delivered again.
        """
        lost: LeaseLostError | None = None
        with self._outage.shared():
            for chunk in self.held:
                try:
                    chunk.settle()
                except LeaseLostError as error:
                    lost = lost or error
        if lost is not None:
            raise lost

    def release_held(self) -> None:
        """Give back what is still held, so that no consumer has to wait until the leases expire.

        While Redis is away, the leases expire.
        """
        with self._outage.shared():
            for chunk in self.held:
                if self._outage.is_recent:
                    chunk.abandon()
                else:
                    chunk.release()
        self.held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release_held()

    # ------------------------------------------------------------------ the loop

    def _drain(self) -> Generator[None, None, Ended]:
        for chunk in itertools.count():
            if self._has_enough(chunk):
                return "limit"
            lease = yield from self._next(chunk)
            if lease is None:
                continue
            if not isinstance(lease, Lease):
                return lease
            if lease.state is LeaseState.ACKED:
                self._replay(chunk, lease.counts)
            elif self._is_hopeless(lease, self._work(lease, chunk)):
                return "failing"
            yield
        raise AssertionError("unreachable: chunks have no end")

    def _has_enough(self, chunk: int) -> bool:
        plan = self._plan
        return (plan.max_chunks is not None and chunk >= plan.max_chunks) or (
            plan.enough is not None and self.tally.fresh >= plan.enough
        )

    def _next(self, chunk: int) -> Generator[None, None, Lease | Ended | None]:
        """Return the lease of a chunk, open or finished by an earlier attempt, or the reason why there is none.

        None means to continue with the next chunk: an earlier drain gave this one back whole or, where this drain waits
        for messages, found the queue empty.
        """
        looked = False
        while True:
            if self._is_stopping():
                return "interrupted"
            reason = self._reason_to_stop()
            if reason is not None and not self._is_known(chunk):
                return None if self._passes(chunk) else reason
            lease = self._claim(chunk, 1 if reason is not None else self._room())
            match lease.state:
                case LeaseState.OPEN | LeaseState.ACKED:
                    return lease
                case LeaseState.HELD if self._plan.waits_for_consumer:
                    time.sleep(min(_LOOK_SECONDS, max(0.01, self._plan.take_over_after_seconds - lease.silent_seconds)))
                case LeaseState.HELD:
                    raise RedisMessageQueueError(
                        f"lease {lease.id!r} could not be taken over; does another drain use this run id?"
                    )
                case LeaseState.PAUSED if not self._plan.waits:
                    return "paused"
                case LeaseState.EMPTY if self._is_stopping():
                    return "interrupted"
                case LeaseState.EMPTY:
                    if not looked and self._passes(chunk):
                        return None
                    looked = True
                    if not self._plan.waits:
                        self._remembered_empty = lease.remembered
                        return "empty"
                    if lease.remembered:
                        return None
            yield

    def _is_stopping(self) -> bool:
        return self._queue.session.activity.stopping() or (self._should_stop is not None and self._should_stop())

    def _reason_to_stop(self) -> Ended | None:
        if self._quota is not None and self.tally.used >= self._quota:
            return "limit"
        return "deadline" if self._stop_at is not None and time.monotonic() >= self._stop_at else None

    def _is_known(self, chunk: int) -> bool:
        """Return whether an earlier attempt worked on a chunk or still holds it, so that it belongs to this run."""
        seen = self._look(chunk)
        return seen.state == "open" or (seen.state == "ended" and seen.how == "acked")

    def _passes(self, chunk: int) -> bool:
        """Return whether an earlier attempt released or lost a whole chunk; a later chunk may still be open.

        A claim opens such a chunk anew where there is something for it, unless this drain itself gave it back.
        """
        seen = self._look(chunk)
        if seen.state != "ended" or seen.how == "acked":
            return False
        if seen.how == "returned":
            self._replay(chunk, LeaseCounts(seen.acked, seen.returned, seen.buried))
        return True

    def _look(self, chunk: int) -> LeaseView:
        return lease_access.look(self._queue, self._lease_id(chunk))

    def _room(self) -> int:
        most = self._plan.batch_size
        return most if self._quota is None else min(most, self._quota - self.tally.used)

    def _lease_id(self, chunk: int) -> str:
        return self._plan.lease_id(self._partition, chunk)

    def _claim(self, chunk: int, limit: int) -> Lease:
        plan = self._plan
        wait = 0.0
        if plan.waits and self._stop_at is not None:
            wait = min(_LOOK_SECONDS, max(0.0, self._stop_at - time.monotonic()))
        return self._queue.claim(
            limit,
            lease_seconds=plan.lease_seconds,
            wait_seconds=wait,
            lease_id=self._lease_id(chunk),
            take_over_after_seconds=plan.take_over_after_seconds,
            retention_seconds=RETENTION_SECONDS,
            # A partition that finished everything is done, and a rerun asks no further. One that gave messages back may
            # continue with them.
            remember_empty=plan.remembers_empty and self.tally.returned == 0 and not plan.waits,
            exclude_run=plan.call_id,
        )

    def _work(self, lease: Lease, number: int) -> Chunk:
        """Give a lease to the handler, and settle it or hold it."""

        def make_context(key: str, collector: VerdictCollector, files: OutputFiles) -> DrainContext:
            return self._make_context(
                lease_key=key,
                lease_id=lease.id,
                opening=lease.opening,
                partition=self._partition,
                chunk=number,
                run_id=self._plan.run_id,
                attempt=self._attempt,
                _is_lost=lambda: lease.lost,
                _collector=collector,
                _files=files,
            )

        chunk = Chunk(lease, self._plan, self._config, self._returned, make_context)
        if self._plan.holds:
            self.held.append(chunk)
        chunk.work()
        counts = chunk.counts() if self._plan.holds else lease.counts
        self.tally.worked(lease, counts, chunk.bisect.failures(self._partition, number))
        self.tally.results += chunk.results
        return chunk

    def _replay(self, chunk: int, counts: LeaseCounts) -> None:
        """Count a chunk that an earlier attempt, or an earlier drain of this run, has finished."""
        back = failed = False
        if counts.returned + counts.buried:
            back, failed = self._returned.known_of(self._lease_id(chunk))
        self.tally.replayed(chunk, counts, back=back, failed=failed)

    def _is_hopeless(self, lease: Lease, chunk: Chunk) -> bool:
        """Return whether continuing would only make more messages fail.

        A chunk of messages that never failed before, none of which succeeds, speaks against the handler. Where they
        have failed before, the messages themselves may be the cause. Such chunks are small and come first, so a few in
        a row must not keep the drain from all messages behind them.
        """
        bisect = chunk.bisect
        if bisect.fruitful:
            self._fruitless_calls = 0
            return False
        self._fruitless_calls += bisect.failing_calls
        stored = lease.leased.stored
        untried = stored.delivery_count(0) == stored.begun
        return self._fruitless_calls >= _MAX_FRUITLESS_CALLS or (untried and bisect.given_up is not None)


def _stop_at(plan: DrainPlan, now: float) -> float | None:
    """Return the end by this process's monotonic clock; a slow wall clock does not postpone it."""
    if plan.deadline_seconds is None:
        return None
    return now + min(plan.deadline_seconds, plan.deadline_at - time.time())
