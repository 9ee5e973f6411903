"""The counts of one partition."""

from __future__ import annotations

from collections.abc import Iterable

from sluicegate.core.ledger import LeaseCounts
from sluicegate.draining.summary import Ended, HandlerFailure, PartitionSummary
from sluicegate.lease import Lease

__all__ = ["Tally"]

_MAX_FAILURES = 100


class Tally:
    """What a partition has done so far, its earlier attempts included.

    Attributes:
        now: the messages of this attempt.
        before: the messages that earlier attempts finished.
        chunks: how many chunks this attempt worked on.
        fresh: messages in chunks of this attempt that it did not take over.
        used: messages that count against the partition's share of a limit.
        results: what the handler returned, where the plan keeps that.
    """

    def __init__(self, partition: int, attempt: int) -> None:
        self._partition = partition
        self._attempt = attempt
        self._replayed = self._taken_over = self._bytes = self._failed = 0
        self._failures: list[HandlerFailure] = []
        self.now = LeaseCounts()
        self.before = LeaseCounts()
        self.chunks = self.fresh = self.used = 0
        self.results: list[object] = []

    @property
    def returned(self) -> int:
        """Messages given back, by whichever attempt."""
        return self.now.returned + self.before.returned

    def worked(self, lease: Lease, counts: LeaseCounts, failures: Iterable[HandlerFailure]) -> None:
        """Count a chunk that this attempt has worked on."""
        self.now = _sum(self.now, counts)
        self.chunks += 1
        self.fresh += 0 if lease.takeovers else len(lease)
        self.used += counts.acked + counts.returned + counts.buried
        self._bytes += lease.leased.stored.size
        self._taken_over += lease.takeovers > 0
        for failure in failures:
            self._fail(failure)

    def replayed(self, chunk: int, counts: LeaseCounts, *, back: bool, failed: bool) -> None:
        """Count a chunk that an earlier attempt, or an earlier drain of this run, has finished.

        Args:
            chunk: its number.
            counts: of its lease.
            back: whether this drain gave back what was returned. What an earlier drain gave back is this one's to work
                on.
            failed: whether its handler failed in this drain; the list of failures was lost with the attempt.
        """
        self.before = _sum(self.before, counts)
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
        """Return all counts as plain values."""
        total = _sum(self.now, self.before)
        return PartitionSummary(
            partition=self._partition,
            chunks=self.chunks + self._replayed,
            claimed=total.acked + total.returned + total.buried,
            acked=total.acked,
            returned=total.returned,
            buried=total.buried,
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


def _sum(one: LeaseCounts, other: LeaseCounts) -> LeaseCounts:
    return LeaseCounts(one.acked + other.acked, one.returned + other.returned, one.buried + other.buried)
