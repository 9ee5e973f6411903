"""The values of a lease that its user sees: what a claim answered, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from sluicegate.core.ledger import Verb
from sluicegate.message import Message

__all__ = ["LeaseState", "OnBatchError", "Verdict"]

OnBatchError = Literal["release", "ack"]


class LeaseState(Enum):
    """What a claim answered."""

    OPEN = "open"
    """Messages are leased to the caller."""
    EMPTY = "empty"
    """Nothing was claimable."""
    ACKED = "acked"
    """The lease of this id was worked on and has ended; `counts` holds its verdicts."""
    HELD = "held"
    """Another consumer holds the lease of this id."""
    PAUSED = "paused"
    """The queue is paused and gives out no new messages."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict for some messages of a lease, for `Lease.settle`.

    Attributes:
        verb: `ack`, `nack`, `release` or `bury`.
        messages: the messages it applies to; None for all that have no verdict.
        delay_seconds: how long a nacked message stays unavailable.
        error: what went wrong; kept with a dead letter.
        reason: why the message is buried.
    """

    verb: Verb
    messages: Message | Iterable[Message] | None = None
    delay_seconds: float = 0
    error: BaseException | str | None = None
    reason: str = ""
