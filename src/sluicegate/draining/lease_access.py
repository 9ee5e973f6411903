"""Calls on leases that the engine makes below the queue's methods."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.consumer import QueueConsumer
from sluicegate.core.call import alone
from sluicegate.core.transitions.manifest import LeaseView, manifest_call
from sluicegate.core.transitions.remember_returned import remember_returned_call

__all__ = ["LeaseView", "look", "remember_returned"]


def look(queue: QueueConsumer, lease_id: str) -> LeaseView:
    """Read the state of a lease. It changes nothing and needs no token."""
    keys = queue.session.keys
    return queue.session.runner.run(alone(manifest_call(keys, keys.lease_name(lease_id))))


def remember_returned(
    queue: QueueConsumer, run_id: str, members: Sequence[bytes], life_seconds: float = 0
) -> tuple[bool, ...]:
    """Remember for a time what a run gave back; a life of 0 only asks. Answers which members were known before."""
    keys = queue.session.keys
    call = remember_returned_call(keys, keys.run(run_id), members, life_seconds=life_seconds)
    return queue.session.runner.run(alone(call))
