"""A pause stops claims from taking new messages, and a resume lets them take messages again."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["PauseState", "pause_call", "pause_operation", "resume_operation"]


@dataclass(frozen=True, slots=True)
class PauseState:
    """Whether a queue is paused, and how often that has changed."""

    changes: int
    paused: bool


def pause_call(keys: QueueKeys, paused: bool, changes: int | None = None) -> Call[PauseState]:
    """Prepare the call that answers whether the queue is paused.

    With `changes`, it pauses or resumes the queue unless it was paused or resumed since it had changed that often.
    """
    args = (int(paused), b"" if changes is None else changes)
    return Call(scripts.load("pause"), (keys.leases, keys.counters, keys.wakeup), args, _decode)


def pause_operation(keys: QueueKeys, *, emits_events: bool = False) -> Operation[bool]:
    """Stop claims from taking new messages; open leases continue. Returns whether the queue was not paused yet."""
    return _change(keys, True, EventOperation.PAUSE, emits_events)


def resume_operation(keys: QueueKeys, *, emits_events: bool = False) -> Operation[bool]:
    """Let claims take messages again, and wake consumers that wait. Returns whether the queue was paused."""
    return _change(keys, False, EventOperation.RESUME, emits_events)


def _change(keys: QueueKeys, paused: bool, operation: EventOperation, emits_events: bool) -> Operation[bool]:
    found: PauseState = yield pause_call(keys, paused)
    changed = False
    while found.paused != paused:
        found = yield pause_call(keys, paused, found.changes)
        changed = True
    if changed and emits_events:
        yield QueueEvent(operation, EventOutcome.SUCCESS, keys.name, 0)
    return changed


def _decode(reply: list[int]) -> PauseState:
    return PauseState(reply[0], bool(reply[1]))
