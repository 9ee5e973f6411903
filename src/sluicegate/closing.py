# Made from src/sluicegate/asyncio/closing.py by `make format`; edit there.
"""Shuts down a queue object: it stops publishing and claiming, and releases the leases that it holds."""

from __future__ import annotations

import logging
import math

from sluicegate import checks
from sluicegate.clock import elapsed_clock
from sluicegate.errors import RedisMessageQueueError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.lease import Lease
from sluicegate.runtime import current_owner, give_way, pause
from sluicegate.session import Session

__all__ = ["close_queue", "shutdown_queue"]

_POLL_SECONDS = 0.01  # between looks at what others still hold
_log = logging.getLogger("sluicegate")


def shutdown_queue(session: Session, timeout: float | None) -> bool:
    """Wait for other threads or tasks, then release what they still hold; see `RedisMessageQueue.shutdown`."""
    if timeout is not None:
        checks.not_negative("timeout", timeout)
    activity, runner, name = session.activity, session.runner, session.keys.name
    begun, activity.closed = elapsed_clock(), True
    runner.emit(QueueEvent(EventOperation.DRAIN, EventOutcome.START, name, 0, seconds=timeout))
    give_way()
    me, deadline = current_owner(), math.inf if timeout is None else begun + timeout
    while elapsed_clock() < deadline and activity.others_at_work(me):
        pause(_POLL_SECONDS, lambda: False)
    if timeout != 0:
        for lease, owner in activity.held():
            if owner != me:
                _release(session, lease)
    left = sum(len(lease.unsettled) for lease, _ in activity.held())
    clean = left == 0 and not activity.publishes
    outcome = EventOutcome.SUCCESS if clean else EventOutcome.FAILURE
    runner.emit(QueueEvent(EventOperation.DRAIN, outcome, name, left), begun)
    return clean


def close_queue(session: Session, *, owns_gateway: bool) -> None:
    """Release every lease that the queue object holds, and close the connections that it made itself."""
    session.activity.closed = True
    for lease, _ in session.activity.held():
        _release(session, lease)
    if owns_gateway:
        session.runner.gateway.close()
    give_way()


def _release(session: Session, lease: Lease) -> None:
    lease.stop_heartbeat()
    try:
        lease.release()
    except RedisMessageQueueError as error:
        _log.warning("queue %r: lease %r could not be released: %s", session.keys.name, lease.id, type(error).__name__)
