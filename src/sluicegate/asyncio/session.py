"""Opens the session of a queue, and closes it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from sluicegate import checks
from sluicegate._session import Activity, QueueSession, publishing_for
from sluicegate.asyncio.gateway import Gateway
from sluicegate.asyncio.notices import Notices
from sluicegate.asyncio.operation_runner import OperationRunner
from sluicegate.asyncio.runtime import AWAITS, current_owner, give_way, pause
from sluicegate.clock import elapsed_clock
from sluicegate.config import QueueConfig
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.eviction import EvictionCheck
from sluicegate.errors import RedisMessageQueueError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

if TYPE_CHECKING:
    from sluicegate.asyncio.lease import Lease

__all__ = ["Session", "branch_session", "close_session", "open_session", "release_all", "shut_down_session"]

_POLL_SECONDS = 0.01  # between looks at what others still hold
_log = logging.getLogger("sluicegate")
Session: TypeAlias = QueueSession[OperationRunner]


def open_session(name: str, config: QueueConfig, gateway: Gateway, keys: QueueKeys | None = None) -> Session:
    """Put together what the parts of one queue object share. Does no I/O.

    Args:
        name: of the queue or stream, for events.
        config: its options.
        gateway: sends its calls.
        keys: its keys; None for those of a queue of that name.

    Raises:
        ConfigurationError: a name that no queue may have, or an async callback that nobody would await.
    """
    if not AWAITS:
        config.refuse_async()
    keys = keys or QueueKeys(name)
    activity = Activity(config.interrupt)
    return QueueSession(
        keys=keys,
        config=config,
        rules=config.rules,
        publishing=publishing_for(keys, config, gateway.retry_budget_seconds, awaits=AWAITS),
        eviction=EvictionCheck(keys, config.require_noeviction),
        activity=activity,
        runner=OperationRunner(gateway, name, config.on_event, activity.stopping),
        notices=Notices(gateway, keys, activity.stopping),
    )


def branch_session(session: Session, stopping: Callable[[], bool], consumer: bytes) -> Session:
    """Return the session of a part of a program that stops claiming on its own, with a consumer name of its own.

    Leases that it claims are also those of the queue object, which waits for them when it is shut down.

    Args:
        session: of the queue object.
        stopping: whether the part is stopping; also True when the queue object is.
        consumer: the name that its leases show, as `consumer_name` encodes it.
    """
    runner = session.runner.branch(stopping)
    return replace(session, activity=session.activity.branch(stopping), runner=runner, consumer=consumer)


async def shut_down_session(session: Session, timeout: float | None) -> bool:
    """Wait for other threads or tasks, then release what they still hold; see `RedisMessageQueue.shutdown`."""
    if timeout is not None:
        checks.not_negative("timeout", timeout)
    activity, runner, name = session.activity, session.runner, session.keys.name
    begun, activity.closed = elapsed_clock(), True
    await runner.emit(QueueEvent(EventOperation.DRAIN, EventOutcome.START, name, 0, seconds=timeout))
    await give_way()
    me, deadline = current_owner(), math.inf if timeout is None else begun + timeout
    while elapsed_clock() < deadline and activity.others_at_work(me):
        await pause(_POLL_SECONDS, lambda: False)
    if timeout != 0:
        await release_all(session, [lease for lease, owner in activity.held() if owner != me])
    left = sum(len(lease.unsettled) for lease, _ in activity.held())
    clean = left == 0 and not activity.publishes
    outcome = EventOutcome.SUCCESS if clean else EventOutcome.FAILURE
    await runner.emit(QueueEvent(EventOperation.DRAIN, outcome, name, left), begun)
    return clean


async def close_session(session: Session, *, owns_gateway: bool) -> None:
    """Release every lease that the queue object holds, and close the connections that it made itself."""
    session.activity.closed = True
    await release_all(session, [lease for lease, _ in session.activity.held()])
    if owns_gateway:
        await session.runner.gateway.aclose()
    await give_way()


async def release_all(session: Session, leases: Sequence[Lease]) -> None:
    """Release leases; while Redis is away, all of them together wait no longer for it than one call does."""
    outage, name = session.runner.outage, session.keys.name
    with outage.shared():
        for number, lease in enumerate(leases):
            if outage.is_recent:
                left = len(leases) - number
                _log.warning("queue %r: %d leases could not be released and will expire: Redis is away", name, left)
                for abandoned in leases[number:]:
                    await abandoned.stop_heartbeat(wait=False)
                return
            await lease.stop_heartbeat()
            try:
                await lease.release()
            except RedisMessageQueueError as error:
                _log.warning("queue %r: lease %r could not be released: %s", name, lease.id, type(error).__name__)
