"""With speculation, Spark may run two attempts of a task at once, and the second must not disturb the first."""

from __future__ import annotations

from dataclasses import replace

from sluicegate.draining.plan import DrainPlan

__all__ = ["with_speculation"]

_MAX_HEARTBEAT_SECONDS = 5.0
_SILENT_HEARTBEATS = 3.5


def with_speculation(plan: DrainPlan, heartbeat_interval_seconds: float | None) -> DrainPlan:
    """Return the plan for tasks that may have a speculative attempt beside them.

    An attempt waits for the lease that the other holds, and takes it over once the other missed 3.5 heartbeats. A queue
    without heartbeats gives no keep-alive before its leases expire, so there the attempt waits for the whole lease.

    Args:
        plan: without speculation.
        heartbeat_interval_seconds: the queue's option.
    """
    assert plan.lease_seconds is not None
    if heartbeat_interval_seconds == 0:
        return replace(plan, waits_for_consumer=True, take_over_after_seconds=plan.lease_seconds)
    interval = min(plan.lease_seconds / 4, _MAX_HEARTBEAT_SECONDS)
    return replace(
        plan,
        waits_for_consumer=True,
        heartbeat_seconds=interval,
        take_over_after_seconds=_SILENT_HEARTBEATS * interval,
    )
