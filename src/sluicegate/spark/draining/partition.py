"""The executor's side of a drain: claim, work and settle inside one Python function, chunk after chunk."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Generator, Iterator

from sluicegate._lease_values import LeaseState, Verdict
from sluicegate.config import QueueConfig
from sluicegate.core.ledger import LeaseCounts
from sluicegate.errors import RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _access
from sluicegate.spark.context import DrainContext
from sluicegate.spark.draining.halving import Halving, refuse_when_lost
from sluicegate.spark.draining.notes import RETENTION_SECONDS, Notes
from sluicegate.spark.draining.output import OutputFiles
from sluicegate.spark.draining.plan import DrainPlan
from sluicegate.spark.draining.routing import queue_of, quota_of
from sluicegate.spark.draining.tally import Tally
from sluicegate.spark.draining.verdicts import Given, Word
from sluicegate.spark.summary import Ended, PartitionSummary

__all__ = ["PartitionDrain"]

_MAX_FRUITLESS_CALLS = 50
_LOOK_SECONDS = 1.0  # between looks at what a twin holds, and at the clock of a waiting drain
_MAX_HEARTBEAT_SECONDS = 5.0  # where a twin waits for the silence of the other
_SILENT_BEATS = 3.5
_log = logging.getLogger("sluicegate")


class PartitionDrain:
    """Drains one partition: one lease per chunk, named so that a retry finds it.

    Only what the handler raises is caught. Whatever else goes wrong (Redis away for longer than the retry budget, a
    lost lease) propagates, and the open lease stays as it is: Spark's retry takes it over at once, whole, under the
    same `lease_key`.

    Args:
        plan: what to do.
        partition: its number.
        attempt: of Spark's task.
        queue: that the partitions of a task share; None for a connection of its own, closed at the end.
    """

    def __init__(self, plan: DrainPlan, partition: int, attempt: int, queue: RedisMessageQueue | None = None) -> None:
        self._plan = plan
        self._partition = partition
        self._attempt = attempt
        self._closes = queue is None
        self._queue = queue or RedisMessageQueue.from_spec(queue_of(plan.spec, partition))
        self._config = _access.config(self._queue)
        self._quota = quota_of(plan.limit, partition, plan.partitions)
        self._started = time.monotonic()
        self._stop_at = _stop_at(plan, self._started)
        self._beat_seconds, self._patience = _twins(plan, self._config)
        self._notes = Notes(self._queue, plan.call_id)
        self._tally = Tally(partition, attempt)
        self._fruitless_calls = 0
        self._remembered_empty = False
        self._summary: PartitionSummary | None = None

    def run(self) -> PartitionSummary:
        """Work on chunk after chunk until there is a reason to end."""
        for _ in self.steps():
            pass
        return self.summary()

    def summary(self) -> PartitionSummary:
        """What was done, once `steps` has ended."""
        if self._summary is None:
            raise RuntimeError("the drain has not ended")
        return self._summary

    def steps(self) -> Iterator[None]:
        """As `run`, with a pause after every chunk and every second of waiting; no lease is held in a pause."""
        ended = yield from self._drain()
        # Only here: closing would release a lease, and after an error the open one is for the retry to take over.
        if self._closes:
            self._queue.close()
        seconds = time.monotonic() - self._started
        self._summary = self._tally.summary(ended, seconds, remembered_empty=self._remembered_empty)

    def _drain(self) -> Generator[None, None, Ended]:
        for chunk in itertools.count():
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

    def _next(self, chunk: int) -> Generator[None, None, Lease | Ended | None]:
        """The lease of a chunk, open or done by an earlier attempt; or why there is none; None to go on behind a chunk
        that an earlier drain gave back whole or, where this one waits for messages, found empty.
        """
        looked = False
        while True:
            reason = self._reason_to_stop()
            if reason is not None and not self._is_known(chunk):
                return None if self._passes(chunk) else reason
            lease = self._claim(chunk, 1 if reason is not None else self._room())
            match lease.state:
                case LeaseState.OPEN | LeaseState.ACKED:
                    return lease
                case LeaseState.HELD if self._plan.speculates:
                    time.sleep(min(_LOOK_SECONDS, max(0.01, self._patience - lease.silent_seconds)))
                case LeaseState.HELD:
                    raise RedisMessageQueueError(
                        f"lease {lease.id!r} could not be taken over; does another drain use this run id?"
                    )
                case LeaseState.PAUSED if not self._plan.waits:
                    return "paused"
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

    def _reason_to_stop(self) -> Ended | None:
        if self._quota is not None and self._tally.used >= self._quota:
            return "limit"
        return "deadline" if self._stop_at is not None and time.monotonic() >= self._stop_at else None

    def _is_known(self, chunk: int) -> bool:
        """Whether an earlier attempt has worked on a chunk, or still holds it: then it belongs to this run's work."""
        seen = self._look(chunk)
        return seen.state == "open" or (seen.state == "ended" and seen.how == "acked")

    def _passes(self, chunk: int) -> bool:
        """Whether an earlier attempt, or drain, gave a chunk back whole or lost it. Another may be open behind it.

        A claim opens such a chunk anew where there is something for it, unless this drain itself gave it back.
        """
        seen = self._look(chunk)
        if seen.state != "ended" or seen.how == "acked":
            return False
        if seen.how == "returned":
            self._replay(chunk, LeaseCounts(seen.acked, seen.returned, seen.buried))
        return True

    def _look(self, chunk: int) -> _access.LeaseView:
        return _access.look(self._queue, self._lease_id(chunk))

    def _room(self) -> int:
        most = self._plan.batch_size
        return most if self._quota is None else min(most, self._quota - self._tally.used)

    def _lease_id(self, chunk: int) -> str:
        return f"{self._plan.run_id}/{self._partition}/{chunk}"

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
            take_over_after_seconds=self._patience,
            retention_seconds=RETENTION_SECONDS,
            # A partition that did everything has done it, and a rerun asks no further. One that gave messages back may
            # go on with them.
            remember_empty=self._tally.returned == 0 and not plan.waits,
            exclude_run=plan.call_id,
        )

    def _work(self, lease: Lease, chunk: int) -> Halving:
        """Give the lease to the handler and settle it, in one call."""
        search = Halving(lease, lambda messages, given: self._call(lease, chunk, messages, given), self._config)
        lease.start_heartbeat(self._beat_seconds)
        try:
            search.run()
            self._notes.write(lease.id, search.given_back(), failed=search.failed)
        except Exception:
            raise
        except BaseException:  # the process is told to end
            lease.stop_heartbeat()
            self._let_go(lease, search)
            raise
        finally:
            lease.stop_heartbeat()
        lease.settle(*search.verdicts())
        self._tally.worked(lease, search.failures(self._partition, chunk))
        return search

    def _call(self, lease: Lease, chunk: int, messages: list[Message], given: Given) -> dict[int, Word]:
        """One call of the handler; its files take their places once its verdicts are known to be right."""
        key = lease.key
        if len(messages) < len(lease.messages):
            key = f"{key}-{messages[0].slot}-{messages[-1].slot}"
        files = OutputFiles(key)
        context = DrainContext(
            lease_key=key,
            lease_id=lease.id,
            opening=lease.opening,
            partition=self._partition,
            chunk=chunk,
            run_id=self._plan.run_id,
            attempt=self._attempt,
            _is_lost=lambda: lease.lost,
            _given=given,
            _files=files,
        )
        try:
            words = given.close(self._plan.handler(messages, context))
            refuse_when_lost(lease)
            files.place()
        finally:
            files.drop()
        return words

    def _let_go(self, lease: Lease, search: Halving) -> None:
        """Settle what was done, and release the rest for others."""
        try:
            self._notes.write(lease.id, search.given_back(), failed=search.failed)
            lease.settle(*search.verdicts(), Verdict("release"))
        except RedisMessageQueueError as error:
            _log.warning("lease %r could not be released: %s", lease.id, error)

    def _replay(self, chunk: int, counts: LeaseCounts) -> None:
        """Count a chunk that an earlier attempt, or an earlier drain of this run, has finished."""
        back = failed = False
        if counts.returned + counts.buried:
            back, failed = self._notes.of(self._lease_id(chunk))
        self._tally.replayed(chunk, counts, back=back, failed=failed)

    def _is_hopeless(self, lease: Lease, search: Halving) -> bool:
        """Whether to go on would only make more messages fail.

        A chunk of messages that never failed before, none of which succeeds, speaks against the handler. Where they
        have failed before, it may well be they: such chunks are small and come first, so a few in a row must not keep
        the drain from all that wait behind them.
        """
        if search.fruitful:
            self._fruitless_calls = 0
            return False
        self._fruitless_calls += search.failing_calls
        untried = lease.messages[0].delivery_count == 1 + lease.takeovers
        return self._fruitless_calls >= _MAX_FRUITLESS_CALLS or (untried and search.given_up is not None)


def _twins(plan: DrainPlan, config: QueueConfig) -> tuple[float | None, float]:
    """The interval of heartbeats, None for the queue's own, and how long another attempt's lease must be silent."""
    if not plan.speculates:
        return None, 0.0
    if config.heartbeat_interval_seconds == 0:  # silence tells nothing before the lease expires
        return None, plan.lease_seconds
    interval = min(plan.lease_seconds / 4, _MAX_HEARTBEAT_SECONDS)
    return interval, _SILENT_BEATS * interval


def _stop_at(plan: DrainPlan, now: float) -> float | None:
    """On this process's monotonic clock; a wall clock that is behind the driver's prolongs nothing."""
    if plan.deadline_seconds is None:
        return None
    return now + min(plan.deadline_seconds, plan.deadline_at - time.time())
