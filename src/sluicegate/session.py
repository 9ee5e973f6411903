# Made from src/sluicegate/asyncio/session.py by `make format`; edit there.
"""Opens the session of an asyncio queue."""

from __future__ import annotations

from typing import TypeAlias

from sluicegate._activity import Activity
from sluicegate._session import QueueSession, publishing_for
from sluicegate.config import QueueConfig
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.eviction import EvictionCheck
from sluicegate.gateway import Gateway
from sluicegate.operation_runner import OperationRunner
from sluicegate.runtime import AWAITS

__all__ = ["Session", "open_session"]

Session: TypeAlias = QueueSession[OperationRunner]


def open_session(name: str, config: QueueConfig, gateway: Gateway) -> Session:
    """Put together what the parts of one queue object share. Does no I/O.

    Raises:
        ConfigurationError: a name that no queue may have, or an async callback that nobody would await.
    """
    if not AWAITS:
        config.refuse_async()
    keys = QueueKeys(name)
    activity = Activity(config.interrupt)
    return QueueSession(
        keys=keys,
        config=config,
        rules=config.rules,
        publishing=publishing_for(keys, config, gateway.retry_budget_seconds, awaits=AWAITS),
        eviction=EvictionCheck(keys, config.require_noeviction),
        activity=activity,
        runner=OperationRunner(gateway, name, config.on_event, activity.stopping),
    )
