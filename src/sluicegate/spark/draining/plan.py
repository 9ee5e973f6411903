"""What a drain sends to its tasks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from sluicegate.spark.draining.handler import Handler

__all__ = ["DrainPlan"]


def _new_call() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What a drain sends to its tasks: no secret, no payload.

    Attributes:
        spec: the queue, as JSON.
        run_id: first part of every lease id.
        batch_size: most messages of a chunk.
        lease_seconds: life of a lease without a heartbeat.
        handler: the user's function.
        partitions: how many there are.
        call_id: names this call of `drain`, whose tasks take nothing again that one of them gave back.
        limit: most messages of all partitions; None for all there are.
        waits: for new messages, until the deadline.
        deadline_seconds: how long chunks are claimed; None for no bound.
        deadline_at: when that ends by the driver's clock, in seconds since the epoch.
        speculates: another attempt may be at work at the same time, and is not to be disturbed.
    """

    spec: str
    run_id: str
    batch_size: int
    lease_seconds: float
    handler: Handler
    partitions: int = 1
    call_id: str = field(default_factory=_new_call)
    limit: int | None = None
    waits: bool = False
    deadline_seconds: float | None = None
    deadline_at: float = 0
    speculates: bool = False
