"""What all partitions of a drain have in common."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Literal

from sluicegate.draining.handler import Handler

__all__ = ["DrainPlan", "OnFailure"]

OnFailure = Literal["bisect", "raise"]


def _new_call() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """How a drain works. It holds no secret, no payload and no connection, so it can be pickled.

    Attributes:
        run_id: first part of every lease id.
        handler: the user's function.
        batch_size: most messages of a chunk.
        lease_seconds: life of a lease without a heartbeat; None for the queue's visibility timeout.
        partitions: how many partitions share the work, each with its own leases.
        call_id: names this call of a drain. None of its partitions claims again what one of them gave back.
        limit: most messages of all partitions together; None for all there are.
        max_chunks: most chunks of a partition; None for no bound.
        enough: a partition begins no further chunk once it has claimed this many messages; None for no bound.
        waits: for new messages, until the deadline.
        deadline_seconds: how long chunks are claimed; None for no bound.
        deadline_at: when that ends by the clock of the process that made the plan, in seconds since the epoch.
        remembers_empty: a repeated partition takes an earlier answer that the queue is empty as its own.
        take_over_after_seconds: a lease of this run that is open is taken over once its consumer was silent this long.
        waits_for_consumer: another attempt may be alive; wait for the lease that it holds instead of raising.
        heartbeat_seconds: between heartbeats; None for what the queue's options say.
        on_failure: `bisect` isolates the failing messages and continues; `raise` releases the chunk and raises the
            handler's error.
        holds: chunks are not settled as they are done, but together, by `DrainEngine.settle_held`.
        keeps_results: what the handler returns is a result to keep, not a verdict.
    """

    run_id: str
    handler: Handler
    batch_size: int = 1000
    lease_seconds: float | None = 60
    partitions: int = 1
    call_id: str = field(default_factory=_new_call)
    limit: int | None = None
    max_chunks: int | None = None
    enough: int | None = None
    waits: bool = False
    deadline_seconds: float | None = None
    deadline_at: float = 0
    remembers_empty: bool = True
    take_over_after_seconds: float = 0
    waits_for_consumer: bool = False
    heartbeat_seconds: float | None = None
    on_failure: OnFailure = "bisect"
    holds: bool = False
    keeps_results: bool = False

    def quota(self, partition: int) -> int | None:
        """Return how many messages a partition may claim, the same for a retry; None for all."""
        if self.limit is None:
            return None
        return self.limit // self.partitions + (partition < self.limit % self.partitions)

    def lease_id(self, partition: int, chunk: int) -> str:
        """Return the name of a chunk's lease, which a retry uses again."""
        return f"{self.run_id}/{partition}/{chunk}"
