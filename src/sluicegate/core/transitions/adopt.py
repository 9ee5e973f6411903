"""An adoption takes over entries of a group that consumers of other libraries hold, as messages that returned."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.rules import QueueRules
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["Adopted", "adopt_call", "adopt_operation"]

_STEP = 100


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of one step.

    Attributes:
        returned: messages that a claim may take now.
        gone: entries that had been deleted from the stream.
        more: whether there is more to look at.
    """

    returned: int
    gone: int
    more: bool


def adopt_call(keys: QueueKeys, rules: QueueRules, *, consumer: bytes = b"", step: int = _STEP) -> Call[Adopted]:
    """Prepare one step: adopt what is stale, or all that one consumer holds, who is removed then."""
    return Call(
        scripts.load("adopt"),
        (keys.pending, keys.counters, keys.returned, keys.wakeup),
        (
            keys.group.encode(),
            0 if consumer else ceil(rules.stale_seconds * 1000),
            rules.max_delivery_count,
            consumer,
            step,
        ),
        lambda reply: Adopted(reply[0], reply[1], bool(reply[2])),
    )


def adopt_operation(
    keys: QueueKeys, rules: QueueRules, *, consumer: bytes = b"", max_steps: int = 1, emits_events: bool = False
) -> Operation[int]:
    """Adopt in at most `max_steps` steps; returns how many messages became claimable."""
    count = 0
    for _ in range(max_steps):
        adopted: Adopted = yield adopt_call(keys, rules, consumer=consumer)
        count += adopted.returned
        if emits_events and adopted.returned:
            yield QueueEvent(EventOperation.REAP, EventOutcome.SUCCESS, keys.name, adopted.returned)
        if not adopted.more:
            break
    return count
