"""What a claim brought: the messages of a lease, and how long their consumer may work on them. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sluicegate._claim import Claim
from sluicegate._lease_values import LeaseState
from sluicegate._session import QueueSession
from sluicegate._verdict_book import VerdictBook
from sluicegate.clock import elapsed_clock
from sluicegate.core.ledger import LeaseCounts
from sluicegate.core.transitions.claim import Acked, ClaimReply, Empty, Held, Opened, Paused
from sluicegate.message import Message

__all__ = ["ClaimedBatch"]


class ClaimedBatch:
    """The state of one lease; `_lease_operations` moves it.

    Args:
        session: of the queue.
        claim: what was asked for.
        reply: what Redis answered.
        asked_at: when the claim was sent, by `elapsed_clock`: the lease's life begins no later.

    Attributes:
        claim: what was asked for.
        state: what was answered.
        opening: which opening of the lease's id this is.
        takeovers: how often the lease was taken over.
        silent_seconds: for `HELD`, how long its consumer has been silent.
        remembered: for `EMPTY`, whether it repeats an earlier answer.
        messages: the messages; none unless the state is `OPEN`.
        verdicts: their verdicts.
        lease_seconds: the lease's life, as claimed or last extended.
        confirmed_at: when Redis last confirmed that the caller holds the lease.
        is_gone: whether Redis said that the caller no longer holds the lease.
        is_finished: whether all of it is settled.
        yielded: the position of the last message that an iteration yielded; -1 before the first.
        is_recorded: whether the end of the lease leaves a record in Redis.
        is_acked_ahead: whether it was acked before its messages are handled: at most once.
        is_concluded: whether it was recorded how the handling of such messages ended.
    """

    __slots__ = (
        "_ended",
        "_max_lease_seconds",
        "_opened_at",
        "_renewed_at",
        "claim",
        "confirmed_at",
        "is_acked_ahead",
        "is_concluded",
        "is_finished",
        "is_gone",
        "is_recorded",
        "lease_seconds",
        "messages",
        "opening",
        "remembered",
        "silent_seconds",
        "state",
        "takeovers",
        "verdicts",
        "yielded",
    )

    def __init__(self, session: QueueSession[Any], claim: Claim, reply: ClaimReply, asked_at: float) -> None:
        self.claim = claim
        self.state = LeaseState.EMPTY
        self.opening = ""
        self.takeovers = 0
        self.silent_seconds = 0.0
        self.remembered = False
        self.messages: list[Message] = []
        self.lease_seconds = claim.request.lease_seconds
        self.confirmed_at = self._renewed_at = self._opened_at = asked_at
        self.is_gone = self.is_finished = self.is_acked_ahead = self.is_concluded = False
        self.yielded = -1
        self._max_lease_seconds = session.rules.max_lease_seconds
        self._ended: LeaseCounts | None = None
        match reply:
            case Opened(opening, takeovers, slots, entries):
                self.state = LeaseState.OPEN
                self.opening = opening.decode(errors="replace")
                self.takeovers = takeovers
                begun = 1 + takeovers
                numbers: Sequence[int] = slots or range(1, len(entries) + 1)
                self.messages = [Message(entry, slot, begun) for slot, entry in zip(numbers, entries, strict=True)]
            case Held(_, silent_seconds):
                self.state = LeaseState.HELD
                self.silent_seconds = silent_seconds
            case Acked(acked, returned, buried):
                self.state = LeaseState.ACKED
                self._ended = LeaseCounts(acked, returned, buried)
            case Paused():
                self.state = LeaseState.PAUSED
            case _:
                self.remembered = isinstance(reply, Empty) and reply.remembered
        self.is_recorded = claim.is_named or len(self.messages) != 1
        self.verdicts = VerdictBook(
            session.keys, claim.lease_id, self.messages, keeps_errors=session.runner.emits_events
        )

    @property
    def key(self) -> str:
        """A file-safe name for the lease's id and opening, as 32 hex digits."""
        return hashlib.sha256(f"{self.claim.lease_id}\0{self.opening}".encode()).hexdigest()[:32]

    @property
    def token(self) -> bytes:
        """What proves to Redis that the caller holds this opening."""
        return self.claim.request.nonce + b":" + self.opening.encode()

    @property
    def counts(self) -> LeaseCounts:
        """The confirmed verdicts; for `ACKED`, those of the earlier consumer."""
        return self._ended or self.verdicts.counts

    @property
    def is_held(self) -> bool:
        """Whether messages are left to settle, as far as the consumer knows."""
        return bool(self.messages) and not self.is_finished and not self.is_gone

    @property
    def is_lost(self) -> bool:
        """Whether Redis said that the lease is gone, or its life is over by our clock."""
        if self.is_gone or self.is_finished or not self.messages:
            return self.is_gone
        now, most = elapsed_clock(), self._max_lease_seconds
        return now - self._renewed_at > self.lease_seconds or 0 < most < now - self._opened_at

    @property
    def silent_for_seconds(self) -> float:
        """The time since Redis last confirmed that the caller holds the lease."""
        return elapsed_clock() - self.confirmed_at

    def renew(self, asked_at: float, lease_seconds: float) -> None:
        """Start the lease's life anew: Redis has extended it."""
        self.confirmed_at = self._renewed_at = asked_at
        self.lease_seconds = lease_seconds

    def give_up(self) -> None:
        """Become what a claim that found nothing answers, after the messages were released."""
        self.state, self.messages = LeaseState.EMPTY, []
