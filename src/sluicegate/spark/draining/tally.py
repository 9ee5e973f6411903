"""The counts of one partition."""

from __future__ import annotations

from collections.abc import Iterable

from sluicegate.core.ledger import LeaseCounts
from sluicegate.lease import Lease
from sluicegate.spark.summary import Ended, HandlerFailure, PartitionSummary

__all__ = ["Tally"]

_MAX_FAILURES = 100


class Tally:
    """What a partition has done so far, its earlier attempts included.

    Attributes:
        returned: messages given back.
        used: messages that count against the partition's share of a limit.
    """

    def __init__(self, partition: int, attempt: int) -> None:
        self._partition = partition
        self._attempt = attempt
        self._chunks = self._acked = self._buried = self._replayed = self._taken_over = self._bytes = 0
        self._failures: list[HandlerFailure] = []
        self._failed = 0
        self.returned = 0
        self.used = 0

    def worked(self, lease: Lease, failures: Iterable[HandlerFailure]) -> None:
        """Count a chunk that was settled just now."""
        counts = lease.counts
        self._count(counts)
        self.used += counts.acked + counts.returned + counts.buried
        self._bytes += sum(len(message.entry) for message in lease.messages)
        self._taken_over += lease.takeovers > 0
        for failure in failures:
            self._fail(failure)

    def replayed(self, chunk: int, counts: LeaseCounts, *, back: bool, failed: bool) -> None:
        """Count a chunk that an earlier attempt, or an earlier drain of this run, has finished.

        Args:
            chunk: its number.
            counts: of its lease.
            back: whether this drain gave back what was: what an earlier one gave back is this one's to work on.
            failed: whether its handler failed in this drain; the attempt took its list of failures along.
        """
        self._count(counts)
        self._replayed += 1
        self.used += counts.acked + counts.buried + (counts.returned if back else 0)
        if failed:
            self._fail(
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

    def summary(self, ended: Ended, seconds: float, *, remembered_empty: bool = False) -> PartitionSummary:
        """All of it."""
        return PartitionSummary(
            partition=self._partition,
            chunks=self._chunks,
            claimed=self._acked + self.returned + self._buried,
            acked=self._acked,
            returned=self.returned,
            buried=self._buried,
            replayed=self._replayed,
            taken_over=self._taken_over,
            ended=ended,
            seconds=round(seconds, 3),
            failures=tuple(self._failures),
            bytes=self._bytes,
            retries=self._attempt,
            failed=self._failed,
            remembered_empty=remembered_empty,
        )

    def _fail(self, failure: HandlerFailure) -> None:
        self._failed += failure.messages
        if len(self._failures) < _MAX_FAILURES:
            self._failures.append(failure)

    def _count(self, counts: LeaseCounts) -> None:
        self._chunks += 1
        self._acked += counts.acked
        self.returned += counts.returned
        self._buried += counts.buried
