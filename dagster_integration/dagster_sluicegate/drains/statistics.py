"""What a drain step learns about its messages while it works: sizes, ages and waits, in a memory that does not grow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sluicegate import Message
from sluicegate.core.entry import was_delivered
from sluicegate.errors import MalformedStoredMessageError
from sluicegate.leased_messages import LeasedMessages

__all__ = ["DrainStatistics", "Waits"]

_SAMPLES = 64  # per batch: a batch of 1,000 costs a tenth of a millisecond
_PER_DOUBLING = 8  # buckets, so a quantile is off by 9 % at most
_MAX_BUCKET = 40 * _PER_DOUBLING  # 2 ** 40 ms are 35 years
_BAR = 24
_ROWS = (
    (0.1, "up to 0.1 s"),
    (1.0, "up to 1 s"),
    (10.0, "up to 10 s"),
    (60.0, "up to 1 min"),
    (600.0, "up to 10 min"),
    (3600.0, "up to 1 h"),
    (86_400.0, "up to 1 day"),
    (math.inf, "more than 1 day"),
)


class Waits:
    """A histogram of waits from enqueue to claim, in buckets that grow by a ninth."""

    def __init__(self) -> None:
        self._buckets = [0.0] * (_MAX_BUCKET + 1)
        self._count = 0.0

    def add(self, seconds: float, weight: float = 1.0) -> None:
        """Count a wait; one that clocks make negative counts as none."""
        bucket = math.ceil(_PER_DOUBLING * math.log2(max(1.0, 1000 * seconds)))
        self._buckets[min(bucket, _MAX_BUCKET)] += weight
        self._count += weight

    def quantile(self, part: float) -> float:
        """Return the wait in seconds that this part of the messages did not exceed."""
        wanted, seen = part * self._count, 0.0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return _seconds_of(bucket)
        return 0.0

    def to_markdown(self) -> str:
        """Return a table with a bar per range of waits; it needs neither a network nor an image."""
        counts = [0.0] * len(_ROWS)
        for bucket, count in enumerate(self._buckets):
            seconds = _seconds_of(bucket)
            counts[next(row for row, (most, _) in enumerate(_ROWS) if seconds <= most)] += count
        used = [row for row, count in enumerate(counts) if count]
        lines = ["| Wait | Messages | |", "|---|---:|---|"]
        for row in range(used[0], used[-1] + 1) if used else ():
            bar = "█" * max(counts[row] > 0, round(_BAR * counts[row] / max(counts)))
            lines.append(f"| {_ROWS[row][1]} | {counts[row]:.0f} | {bar} |")
        return "\n".join(lines)


class DrainStatistics:
    """The messages of a step: how many bytes, how old, how long they waited, how many were delivered before.

    Waits and ages are taken from 64 messages of each batch, its first and last among them, and scaled up. They compare
    the clock of Redis with that of this machine.

    Args:
        clock: seconds since the epoch; injected by tests.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.bytes = self.redelivered = 0
        self.oldest: datetime | None = None
        self.newest: datetime | None = None
        self.waits = Waits()
        self._clock = clock

    def note(self, messages: Sequence[Message]) -> None:
        """Count the messages of a batch that was just claimed."""
        now = self._clock()
        if isinstance(messages, LeasedMessages):  # which makes no object for what is only counted
            self.bytes += messages.stored.size
            self.redelivered += messages.stored.redelivered
        else:
            self.bytes += sum([len(message.entry) for message in messages])
            self.redelivered += sum([m.deliveries_begun > 1 or was_delivered(m.entry) for m in messages])
        samples = _spread(messages)
        for message in samples:
            try:
                enqueued = message.enqueued_at
            except MalformedStoredMessageError:  # the handler meets it, and decides
                continue
            self.waits.add(now - enqueued.timestamp(), len(messages) / len(samples))
            self.oldest = enqueued if self.oldest is None else min(self.oldest, enqueued)
            self.newest = enqueued if self.newest is None else max(self.newest, enqueued)

    def age_seconds(self) -> float | None:
        """Return how old the oldest message is now; None without one."""
        return None if self.oldest is None else max(0.0, self._clock() - self.oldest.timestamp())

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _spread(messages: Sequence[Message]) -> Sequence[Message]:
    """Return some messages from the first to the last, at equal distances."""
    last = len(messages) - 1
    if last < _SAMPLES:
        return messages
    positions = [last * number // (_SAMPLES - 1) for number in range(_SAMPLES)]
    if isinstance(messages, LeasedMessages):
        return [Message(messages.stored.entry(position)) for position in positions]
    return [messages[position] for position in positions]


def _seconds_of(bucket: int) -> float:
    """Return the longest wait of a bucket."""
    return float(2 ** (bucket / _PER_DOUBLING)) / 1000 if bucket else 0.0
