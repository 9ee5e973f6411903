"""A promotion makes delayed messages claimable whose time has come."""

from __future__ import annotations

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["promote_call", "promote_operation"]


def promote_call(keys: QueueKeys, *, step: int = 500) -> Call[int]:
    """Prepare one step: promote at most `step` messages and answer how many it were."""
    return Call(
        scripts.load("promote"),
        (
            keys.delayed,
            keys.pending,
            keys.returned,
            keys.wakeup,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            keys.counters,
        ),
        (step, keys.group.encode()),
        int,
    )


def promote_operation(keys: QueueKeys, *, emits_events: bool = False) -> Operation[int]:
    """Promote one step's worth of messages."""
    promoted: int = yield promote_call(keys)
    if emits_events and promoted:
        yield QueueEvent(EventOperation.PROMOTE, EventOutcome.SUCCESS, keys.name, promoted)
    return promoted
