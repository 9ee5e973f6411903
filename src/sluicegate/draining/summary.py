"""The summary of a drain: plain values that carry no payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["DrainSummary", "Ended", "HandlerFailure", "PartitionSummary"]

Ended = Literal["empty", "paused", "failing", "deadline", "limit", "interrupted", "lost"]
_OURS = ("PayloadError", "VerdictError")  # their texts are Sluicegate's own and hold nothing of a payload


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """Messages that the handler could not work on.

    Attributes:
        partition: number of the partition.
        chunk: number of the chunk in its partition.
        messages: how many messages: 1 for a message that bisecting found, more for messages that were given back.
        message_ids: the ids of the first ten.
        buried: whether the message is now a dead letter, for its delivery count or by the queue's `on_error`. Otherwise
            it returned to the queue, or is gone where `on_error` is `discard`.
        error_type: class name of the exception.
        error: text of the exception, the first 500 characters. It is the handler's own text; Sluicegate adds nothing of
            the payload.
        where: the file, line and function that raised.
    """

    partition: int
    chunk: int
    messages: int
    message_ids: tuple[str, ...]
    buried: bool
    error_type: str
    error: str
    where: str


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What one partition (a task, a worker) did, its earlier attempts under the same run id included.

    Attributes:
        partition: its number, from 0.
        chunks: leases that this partition worked on.
        claimed: messages in these leases.
        acked: messages that are done, or discarded by the queue's `on_error`.
        returned: messages given back to the queue.
        buried: messages that became dead letters.
        replayed: chunks that an earlier attempt had finished, and that were only counted.
        taken_over: chunks that an earlier attempt had left open.
        ended: why the partition stopped: the queue was `empty` or `paused`, the handler kept `failing`, the `deadline`
            or the partition's share of the `limit` was reached, the drain was `interrupted`, or its worker process was
            killed again and again (`lost`; the lease that it held expires).
        seconds: how long it took, this attempt only.
        failures: the first hundred.
        bytes: size of the messages as they are stored, this attempt only.
        retries: attempts at this partition before this one.
        failed: all messages that the handler could not work on; they are among those returned, buried or (by
            `on_error="discard"`) acked.
        remembered_empty: it ended because an earlier attempt under this run id had found the queue empty, less than ten
            minutes ago; it did not look again.
    """

    partition: int
    chunks: int
    claimed: int
    acked: int
    returned: int
    buried: int
    replayed: int
    taken_over: int
    ended: Ended
    seconds: float
    failures: tuple[HandlerFailure, ...] = ()
    bytes: int = 0
    retries: int = 0
    failed: int = 0
    remembered_empty: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PartitionSummary:
        """Rebuild a summary from plain values, as `dataclasses.asdict` makes them and JSON carries them."""
        failures = tuple(
            HandlerFailure(**dict(failure, message_ids=tuple(failure["message_ids"]))) for failure in values["failures"]
        )
        return cls(**dict(values, failures=failures))


@dataclass(frozen=True, slots=True)
class DrainSummary:
    """What a drain did.

    Attributes:
        run_id: of the drain.
        queue: name of the queue.
        partitions: what each partition did, by number.
        seconds: from the start of the work to its end.
        skipped_ready: messages that were ready at the end and that this call did not claim, because an earlier call
            under the same run id had found the queue empty. Above 0 the call also logs a warning.
        other_driver: where another driver was at work under the same run id, and since when, if it was there first; the
            call then also logs a warning, and neither of the two counts the whole run. None for none.
    """

    run_id: str
    queue: str
    partitions: tuple[PartitionSummary, ...]
    seconds: float
    skipped_ready: int = 0
    other_driver: str | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DrainSummary:
        """Rebuild a summary from plain values, as `dataclasses.asdict` makes them and JSON carries them."""
        return cls(**dict(values, partitions=tuple(map(PartitionSummary.from_dict, values["partitions"]))))

    @property
    def claimed(self) -> int:
        """Messages in the leases of this run: acked, returned and buried ones."""
        return sum(partition.claimed for partition in self.partitions)

    @property
    def acked(self) -> int:
        """Messages that are done."""
        return sum(partition.acked for partition in self.partitions)

    @property
    def returned(self) -> int:
        """Messages given back to the queue; one that returned twice counts twice."""
        return sum(partition.returned for partition in self.partitions)

    @property
    def buried(self) -> int:
        """Messages that became dead letters."""
        return sum(partition.buried for partition in self.partitions)

    @property
    def failed(self) -> int:
        """Messages that the handler could not work on, or whose payload did not fit: above 0, `drain` raises."""
        return sum(partition.failed for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """Size of the messages that the last attempts worked on, as they are stored."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def retries(self) -> int:
        """Attempts at partitions before the ones that reported."""
        return sum(partition.retries for partition in self.partitions)

    @property
    def taken_over(self) -> int:
        """Chunks that an earlier attempt had left open."""
        return sum(partition.taken_over for partition in self.partitions)

    @property
    def failures(self) -> list[HandlerFailure]:
        """Return the errors of the handler by partition and chunk, at most a hundred per partition."""
        return [failure for partition in self.partitions for failure in partition.failures]

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can represent, including totals."""
        partitions = [asdict(partition) for partition in self.partitions]
        for partition in partitions:
            del partition["failures"]
        return {
            "run_id": self.run_id,
            "queue": self.queue,
            "claimed": self.claimed,
            "acked": self.acked,
            "returned": self.returned,
            "buried": self.buried,
            "failed": self.failed,
            "bytes": self.bytes,
            "retries": self.retries,
            "taken_over": self.taken_over,
            "seconds": self.seconds,
            "skipped_ready": self.skipped_ready,
            "other_driver": self.other_driver,
            "partitions": partitions,
            "failures": [dict(asdict(failure), message_ids=list(failure.message_ids)) for failure in self.failures],
        }

    def describe_failures(self) -> str:
        """Return one sentence for an error: counts, error types and the first place, without the handler's text."""
        failures = self.failures
        where = len({failure.partition for failure in failures})
        types = Counter(failure.error_type for failure in failures).most_common(5)
        first = failures[0]
        reason = f": {first.error}" if first.error_type in _OURS else ""
        return (
            f"the handler failed on {self.failed} of {self.claimed} messages, in {where} of {len(self.partitions)} "
            "partitions "
            f"({', '.join(f'{count} {kind}' for kind, count in types)}; first in partition {first.partition}, "
            f"chunk {first.chunk}, {first.where}{reason}); {self.returned} messages went back to the queue, "
            f"{self.buried} to its dead letters, and {self.acked} are acked"
        )
