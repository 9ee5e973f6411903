"""A batch is opened before its first message is published, and sealed after its last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = ["BatchCounts", "Ended", "batch_call", "ended_call"]


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The counts of a batch as its record has them.

    Attributes:
        total: messages published; -1 when there is no such batch.
        delayed, in_flight, done, dead, gone: of these, the messages in that state. The others wait.
        sealed_ms: when the publish finished, in ms since the epoch; 0 if it has not.
        ended_ms: when the batch completed; 0 if it has not.
    """

    total: int
    delayed: int
    in_flight: int
    done: int
    dead: int
    gone: int
    sealed_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer to a question of what has ended.

    Attributes:
        newest: id of the newest notification; what ends later is in a later one.
        number: its number.
        members: those asked for that have ended.
    """

    newest: bytes
    number: int
    members: Sequence[bytes]


def batch_call(
    keys: QueueKeys, verb: Literal["open", "seal", "status"], batch: bytes, *, life_seconds: float = 0
) -> Call[BatchCounts]:
    """Prepare the call that opens, seals or reads a batch.

    Args:
        keys: the keys of the queue.
        verb: what to do.
        batch: the batch, as `batch_name` makes it.
        life_seconds: how long its record is kept once it has ended; for `open`.
    """
    return Call(
        scripts.load("batch"),
        (keys.tracking, keys.tracking_ended, keys.tracking_news),
        (verb.encode(), batch, ceil(life_seconds * 1000)),
        lambda reply: BatchCounts(*reply),
    )


def ended_call(keys: QueueKeys, members: Sequence[bytes]) -> Call[Ended]:
    """Prepare the call that asks which members of `tracking:ended` there are, and for the newest notification."""
    return Call(
        scripts.load("ended"),
        (keys.tracking_ended, keys.tracking_news),
        tuple(members),
        lambda reply: Ended(reply[0], int(reply[1]), reply[2:]),
    )
