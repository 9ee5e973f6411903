"""The part of a lease without I/O, the same for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sluicegate._claimed_batch import ClaimedBatch
from sluicegate._session import QueueSession
from sluicegate.core.ledger import LeaseCounts
from sluicegate.message import Message

__all__ = ["LeaseBase"]

R = TypeVar("R")


class LeaseBase(Generic[R]):
    """A lease as its consumer reads it.

    Attributes:
        id: the lease's id, given by the caller or made by the library.
        state: what the claim answered.
        messages: the leased messages, oldest first.
        opening: which opening of the id this is: a new one whenever the id is claimed anew.
        takeovers: how often this opening was taken over.
        silent_seconds: for `HELD`, the time since its consumer's last sign of life.
        remembered: for `EMPTY`, whether an earlier claim under this id got the same answer.
    """

    def __init__(self, session: QueueSession[R], batch: ClaimedBatch) -> None:
        self.id = batch.claim.lease_id
        self.state = batch.state
        self.messages = batch.messages
        self.opening = batch.opening
        self.takeovers = batch.takeovers
        self.silent_seconds = batch.silent_seconds
        self.remembered = batch.remembered
        self._session = session
        self._batch = batch

    @property
    def key(self) -> str:
        """A file-safe name for this lease **and opening**: the same after a takeover, and another whenever the id is
        opened anew.

        When a lease is settled in one call, a retry overwrites the output named by this key, and nothing else does.
        """
        return self._batch.key

    @property
    def token(self) -> bytes:
        """What proves to Redis that the caller holds this opening."""
        return self._batch.token

    @property
    def counts(self) -> LeaseCounts:
        """Confirmed verdicts; for `ACKED`, those of the earlier consumer."""
        return self._batch.counts

    @property
    def lost(self) -> bool:
        """Whether this consumer no longer holds the lease: Redis said so, or it was not renewed for its whole life.

        Stays False after the consumer has settled all of it.
        """
        return self._batch.is_lost

    @property
    def unsettled(self) -> list[int]:
        """Slots without a verdict."""
        return self._batch.verdicts.open

    def __len__(self) -> int:
        return len(self.messages)

    def __bool__(self) -> bool:
        return bool(self.messages)

    def __iter__(self) -> Iterator[Message]:
        batch = self._batch
        for position, message in enumerate(self.messages):
            if position > batch.yielded:  # noqa: PLR1730  (`max` takes three times as long, for every message)
                batch.yielded = position
            yield message

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, state={self.state.value}, messages={len(self.messages)})"
