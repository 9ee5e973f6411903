"""Drives an operation by hand: its calls go to Redis, its waits and events to the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sluicegate.core.call import Call, Operation, Wait
from sluicegate.events import QueueEvent
from tests.support.core_calls import Core

T = TypeVar("T")


@dataclass
class Driven:
    """A clock that moves only while something waits, and what an operation did.

    Attributes:
        rings: answers a wait: None for stopping, False for a sleep to its end, True for a wake-up that comes at once.
    """

    core: Core
    rings: Callable[[Wait], bool | None] = lambda _: False
    now: float = 0.0
    sent: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    events: list[tuple[str, str, int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def run(self, operation: Operation[T]) -> T:
        try:
            step = next(operation)
            while True:
                step = operation.send(self._answer(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _answer(self, step: object) -> Any:
        match step:
            case Call():
                self.sent.append(step.script.name)
                return self.core.do(step)
            case Wait():
                self.waits.append(step.seconds)
                rung = self.rings(step)
                self.now += step.seconds if rung is False else 0
                return rung
            case QueueEvent():
                self.events.append((step.operation.value, step.outcome.value, step.count))
                return None
        raise AssertionError(step)
