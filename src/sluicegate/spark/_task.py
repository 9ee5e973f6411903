"""The executor's side of a drain: claim, work and settle inside one Python function, chunk after chunk.

Module-level functions travel by reference, so executors need this package; they need neither a session nor the driver.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sluicegate.config import QueueSpec
from sluicegate.core import json
from sluicegate.errors import RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.shared.lease import LeaseState, Verdict
from sluicegate.spark._halving import Halving
from sluicegate.spark._handler import Handler
from sluicegate.spark.context import DrainContext
from sluicegate.spark.summary import Ended, HandlerFailure, PartitionSummary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPORT_SCHEMA", "DrainPlan", "PartitionDrain", "run"]

REPORT_SCHEMA = "report string"
_RETENTION_SECONDS = 86_400.0  # how long a retry still finds what an earlier attempt did: about 250 bytes per chunk
_MOST_FAILURES = 100
_MOST_FRUITLESS_CALLS = 50
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What a drain sends to its tasks: no secret, no payload.

    Attributes:
        spec: the queue, as JSON.
        run_id: first part of every lease id.
        batch_size: most messages of a chunk.
        lease_seconds: life of a lease without a heartbeat.
        handler: the user's function.
    """

    spec: str
    run_id: str
    batch_size: int
    lease_seconds: float
    handler: Handler


def run(plan: DrainPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over its partitions: drains once per row, and answers with one report each."""
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = task.attemptNumber() if task is not None else 0
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            summary = PartitionDrain(plan, partition, attempt).run()
            report = json.dumps(asdict(summary)).decode()
            yield pa.RecordBatch.from_arrays([pa.array([report], pa.string())], names=["report"])


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
        self._queue = RedisMessageQueue.from_spec(QueueSpec.from_json(plan.spec))
        self._most_deliveries = self._queue._terms.most_deliveries
        self._chunks = self._acked = self._returned = self._buried = self._replayed = self._taken_over = 0
        self._fruitless_calls = 0
        self._failures: list[HandlerFailure] = []

    def run(self) -> PartitionSummary:
        """Work on chunk after chunk until the queue is empty or paused, or the handler hopeless."""
        start = time.monotonic()
        ended = self._drain()
        # Only here: closing would release a lease, and after an error the open one is for the retry to take over.
        self._queue.close()
        return PartitionSummary(
            partition=self._partition,
            chunks=self._chunks,
            claimed=self._acked + self._returned + self._buried,
            acked=self._acked,
            returned=self._returned,
            buried=self._buried,
            replayed=self._replayed,
            taken_over=self._taken_over,
            ended=ended,
            seconds=round(time.monotonic() - start, 3),
            failures=tuple(self._failures[:_MOST_FAILURES]),
        )

    def _drain(self) -> Ended:
        for chunk in itertools.count():
            lease = self._claim(chunk)
            match lease.state:
                case LeaseState.OPEN:
                    if self._is_hopeless(lease, self._work(lease, chunk)):
                        return "failing"
                case LeaseState.ACKED:
                    self._replay(lease, chunk)
                case LeaseState.EMPTY:
                    return "empty"
                case LeaseState.PAUSED:
                    return "paused"
                case LeaseState.HELD:
                    raise RedisMessageQueueError(
                        f"lease {lease.id!r} could not be taken over; does another drain use this run id?"
                    )
        raise AssertionError("unreachable: chunks have no end")

    def _claim(self, chunk: int) -> Lease:
        plan = self._plan
        return self._queue.claim(
            plan.batch_size,
            lease_seconds=plan.lease_seconds,
            lease_id=f"{plan.run_id}/{self._partition}/{chunk}",
            take_over_after_seconds=0,
            retention_seconds=_RETENTION_SECONDS,
            # A partition that did everything has done it, and a rerun asks no further. One that gave messages back may
            # go on with them.
            remember_empty=self._returned == 0,
        )

    def _work(self, lease: Lease, chunk: int) -> Halving:
        """Give the lease to the handler and settle it, in one call."""
        search = Halving(lease, lambda messages: self._call(lease, chunk, messages), self._most_deliveries)
        lease.start_heartbeat()
        try:
            search.run()
        except Exception:
            raise
        except BaseException:  # the process is told to end
            lease.stop_heartbeat()
            self._let_go(lease, search)
            raise
        finally:
            lease.stop_heartbeat()
        lease.settle(*search.verdicts())
        self._count(lease)
        self._taken_over += lease.takeovers > 0
        self._failures += search.failures(self._partition, chunk)
        return search

    def _call(self, lease: Lease, chunk: int, messages: list[Message]) -> None:
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
        )
        self._plan.handler(messages, context)

    def _let_go(self, lease: Lease, search: Halving) -> None:
        """Settle what was done, and release the rest for others."""
        try:
            lease.settle(*search.verdicts(), Verdict("release"))
        except RedisMessageQueueError as error:
            _log.warning("lease %r could not be released: %s", lease.id, error)

    def _replay(self, lease: Lease, chunk: int) -> None:
        """Count a chunk that an earlier attempt has finished."""
        self._count(lease)
        self._replayed += 1
        counts = lease.counts
        if self._attempt > 0 and counts.returned + counts.buried > 0:
            # The attempt that failed them took its list of failures along.
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

    def _count(self, lease: Lease) -> None:
        self._chunks += 1
        self._acked += lease.counts.acked
        self._returned += lease.counts.returned
        self._buried += lease.counts.buried

    def _is_hopeless(self, lease: Lease, search: Halving) -> bool:
        """Whether to go on would only make more messages fail.

        A chunk of messages that never failed before, none of which succeeds, speaks against the handler. Where they
        have failed before, it may well be they: such chunks are small and come first, so a few in a row must not keep
        the drain from all that wait behind them.
        """
        if search.done:
            self._fruitless_calls = 0
            return False
        self._fruitless_calls += search.failing_calls
        untried = lease.messages[0].delivery_count == 1 + lease.takeovers
        return self._fruitless_calls >= _MOST_FRUITLESS_CALLS or (untried and search.given_up is not None)
