"""The executor's side of a drain: claim, work and settle inside one Python function, chunk after chunk.

Module-level functions travel by reference, so executors need this package; they need neither a session nor the driver.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
import uuid
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from sluicegate.core import batch_calls, json
from sluicegate.core.ledger import LeaseCounts
from sluicegate.errors import RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.shared.lease import LeaseState, Verdict
from sluicegate.spark import _access
from sluicegate.spark.context import DrainContext
from sluicegate.spark.draining.halving import Halving
from sluicegate.spark.draining.handler import Handler
from sluicegate.spark.draining.routing import queue_of, quota_of
from sluicegate.spark.draining.verdicts import Given
from sluicegate.spark.summary import Ended, HandlerFailure, PartitionSummary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPORT_SCHEMA", "DrainPlan", "PartitionDrain", "is_report", "run"]

REPORT_SCHEMA = "report string"
_RETENTION_SECONDS = 86_400.0  # how long a retry still finds what an earlier attempt did: about 250 bytes per chunk
_MOST_FAILURES = 100
_MOST_FRUITLESS_CALLS = 50
_LOOK_SECONDS = 1.0  # between signs of life, looks at what a twin holds, and looks at the clock of a waiting drain
_LONGEST_BEAT_SECONDS = 5.0  # where a twin waits for the silence of the other
_SILENT_BEATS = 3.5
_log = logging.getLogger("sluicegate")


def _new_call() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What a drain sends to its tasks: no secret, no payload.

    Attributes:
        spec: the queue, as JSON.
        run_id: first part of every lease id.
        batch_size: most messages of a chunk.
        lease_seconds: life of a lease without a heartbeat.
        handler: the user's function.
        partitions: how many there are.
        call_id: names this call of `drain`, whose tasks take nothing again that one of them gave back.
        limit: most messages of all partitions; None for all there are.
        waits: for new messages, until the deadline.
        deadline_seconds: how long chunks are claimed; None for no bound.
        deadline_at: when that ends by the driver's clock, in seconds since the epoch.
        speculates: another attempt may be at work at the same time, and is not to be disturbed.
    """

    spec: str
    run_id: str
    batch_size: int
    lease_seconds: float
    handler: Handler
    partitions: int = 1
    call_id: str = field(default_factory=_new_call)
    limit: int | None = None
    waits: bool = False
    deadline_seconds: float | None = None
    deadline_at: float = 0
    speculates: bool = False


def run(plan: DrainPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over its partitions: drains once per row, and answers with one report each.

    Between chunks, at most once a second, it shows that it lives, for a Spark that ends workers which send nothing.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = task.attemptNumber() if task is not None else 0
    shown = time.monotonic()
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            drain = PartitionDrain(plan, partition, attempt)
            for _ in drain.steps():
                if time.monotonic() - shown >= _LOOK_SECONDS:
                    yield _answer(_sign_of_life())
                    shown = time.monotonic()
            yield _answer(json.dumps(asdict(drain.summary())).decode())


def is_report(column: str = "report") -> str:
    """The SQL condition by which Spark drops signs of life before they reach the driver."""
    return f"{column} NOT LIKE ' %'"


def _answer(text: str) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["report"])


def _sign_of_life() -> str:
    """More than the buffer between a worker and Spark holds: an empty batch would stay in it, unseen."""
    return " " * int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))


class PartitionDrain:
    """Drains one partition: one lease per chunk, named so that a retry finds it.

    Only what the handler raises is caught. Whatever else goes wrong (Redis away for longer than the retry budget, a
    lost lease) propagates, and the open lease stays as it is: Spark's retry takes it over at once, whole, under the
    same `lease_key`.
    """

    def __init__(self, plan: DrainPlan, partition: int, attempt: int) -> None:
        self._plan = plan
        self._partition = partition
        self._attempt = attempt
        self._queue = RedisMessageQueue.from_spec(queue_of(plan.spec, partition))
        self._most_deliveries = self._queue._terms.most_deliveries
        self._quota = quota_of(plan.limit, partition, plan.partitions)
        self._started = time.monotonic()
        self._stop_at = _stop_at(plan, self._started)
        self._beat_seconds = min(plan.lease_seconds / 4, _LONGEST_BEAT_SECONDS) if plan.speculates else None
        self._patience = _SILENT_BEATS * self._beat_seconds if self._beat_seconds is not None else 0.0
        self._has_forerunners = attempt > 0 or plan.speculates
        self._chunks = self._acked = self._returned = self._buried = self._replayed = self._taken_over = 0
        self._bytes = self._used = self._fruitless_calls = 0
        self._failures: list[HandlerFailure] = []
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
        self._queue.close()
        self._summary = PartitionSummary(
            partition=self._partition,
            chunks=self._chunks,
            claimed=self._acked + self._returned + self._buried,
            acked=self._acked,
            returned=self._returned,
            buried=self._buried,
            replayed=self._replayed,
            taken_over=self._taken_over,
            ended=ended,
            seconds=round(time.monotonic() - self._started, 3),
            failures=tuple(self._failures[:_MOST_FAILURES]),
            bytes=self._bytes,
            retries=self._attempt,
        )

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
        that an earlier attempt gave back whole.
        """
        if self._has_forerunners and self._passes(chunk, of_this_call=True):
            return None
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
                        return "empty"
            yield

    def _reason_to_stop(self) -> Ended | None:
        if self._quota is not None and self._used >= self._quota:
            return "limit"
        return "deadline" if self._stop_at is not None and time.monotonic() >= self._stop_at else None

    def _is_known(self, chunk: int) -> bool:
        """Whether an earlier attempt has worked on a chunk, or still holds it: then it belongs to this run's work."""
        seen = self._look(chunk)
        return seen.state == "open" or (seen.state == "ended" and seen.how == "acked")

    def _passes(self, chunk: int, *, of_this_call: bool = False) -> bool:
        """Whether an earlier attempt, or drain, gave a chunk back whole or lost it. Another may be open behind it.

        A claim would open such a chunk anew; so it does where there is something for a drain that has not done it.
        """
        seen = self._look(chunk)
        if seen.state != "ended" or seen.how == "acked":
            return False
        if of_this_call and (seen.how != "returned" or not self._ask([self._mark("back", chunk)])[0]):
            return False
        if seen.how == "returned":
            self._replay(chunk, LeaseCounts(seen.acked, seen.returned, seen.buried))
        return True

    def _look(self, chunk: int) -> _access.LeaseView:
        return _access.look(self._queue, self._lease_id(chunk))

    def _room(self) -> int:
        most = self._plan.batch_size
        return most if self._quota is None else min(most, self._quota - self._used)

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
            retention_seconds=_RETENTION_SECONDS,
            # A partition that did everything has done it, and a rerun asks no further. One that gave messages back may
            # go on with them.
            remember_empty=self._returned == 0 and not plan.waits,
            pass_by=plan.call_id,
        )

    def _work(self, lease: Lease, chunk: int) -> Halving:
        """Give the lease to the handler and settle it, in one call."""
        search = Halving(
            lease, lambda messages, given: self._call(lease, chunk, messages, given), self._most_deliveries
        )
        lease.start_heartbeat(self._beat_seconds)
        try:
            search.run()
            self._note(search, chunk)
        except Exception:
            raise
        except BaseException:  # the process is told to end
            lease.stop_heartbeat()
            self._let_go(lease, search, chunk)
            raise
        finally:
            lease.stop_heartbeat()
        lease.settle(*search.verdicts())
        counts = lease.counts
        self._count(counts)
        self._used += counts.acked + counts.returned + counts.buried
        self._bytes += sum(len(message.entry) for message in lease.messages)
        self._taken_over += lease.takeovers > 0
        self._failures += search.failures(self._partition, chunk)
        return search

    def _call(self, lease: Lease, chunk: int, messages: list[Message], given: Given) -> object:
        key = lease.key
        if len(messages) < len(lease.messages):
            key = f"{key}-{messages[0].slot}-{messages[-1].slot}"
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
        )
        return self._plan.handler(messages, context)

    def _let_go(self, lease: Lease, search: Halving, chunk: int) -> None:
        """Settle what was done, and release the rest for others."""
        try:
            self._note(search, chunk)
            lease.settle(*search.verdicts(), Verdict("release"))
        except RedisMessageQueueError as error:
            _log.warning("lease %r could not be released: %s", lease.id, error)

    # ------------------------------------------------------------------ what this call of drain remembers

    def _note(self, search: Halving, chunk: int) -> None:
        """Before messages go back: no task of this drain takes them again, and a retry knows of the failure."""
        members = [message.id.encode() for message in search.given_back()]
        if members:
            members.append(self._mark("back", chunk))
        if search.failed:
            members.append(self._mark("failed", chunk))
        if members:
            self._ask(members, _RETENTION_SECONDS)

    def _mark(self, what: str, chunk: int) -> bytes:
        return f"\x1f{what}:{self._partition}:{chunk}".encode()  # no message id holds a separator

    def _ask(self, members: list[bytes], life_seconds: float = 0) -> tuple[bool, ...]:
        keys = self._queue._keys
        note = batch_calls.note(keys, keys.run(self._plan.call_id), members, life_seconds=life_seconds)
        return _access.run(self._queue, note)

    def _replay(self, chunk: int, counts: LeaseCounts) -> None:
        """Count a chunk that an earlier attempt, or an earlier drain of this run, has finished."""
        self._count(counts)
        self._replayed += 1
        self._used += counts.acked + counts.buried
        if counts.returned + counts.buried == 0:
            return
        back, failed = self._ask([self._mark("back", chunk), self._mark("failed", chunk)])
        if back:  # what an earlier drain gave back is this one's to work on
            self._used += counts.returned
        if failed:  # the attempt that failed them took its list of failures along
            self._failures.append(
                HandlerFailure(
                    partition=self._partition,
                    chunk=chunk,
                    messages=counts.returned + counts.buried,
                    message_ids=(),
                    buried=counts.returned == 0,
                    error_type="unknown",
                    error="an earlier attempt of this task settled them and died before it could report why",
                    where="an earlier attempt",
                )
            )

    def _count(self, counts: LeaseCounts) -> None:
        self._chunks += 1
        self._acked += counts.acked
        self._returned += counts.returned
        self._buried += counts.buried

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
        return self._fruitless_calls >= _MOST_FRUITLESS_CALLS or (untried and search.given_up is not None)


def _stop_at(plan: DrainPlan, now: float) -> float | None:
    """On this process's monotonic clock; a wall clock that is behind the driver's prolongs nothing."""
    if plan.deadline_seconds is None:
        return None
    return now + min(plan.deadline_seconds, plan.deadline_at - time.time())
