# Made from src/sluicegate/asyncio/operation_runner.py by `make format`; edit there.
"""Runs operations: calls and waits go to the gateway, pauses to the clock, events to `on_event`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

from sluicegate._gateway_base import RetryNote
from sluicegate._redis.connection_io import HeldConnection
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import Call, Operation, Pause, Wait
from sluicegate.dispatch import emit
from sluicegate.errors import RedisMessageQueueError, RedisUnavailableError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.gateway import Gateway
from sluicegate.outage import Outage
from sluicegate.runtime import give_way, pause

__all__ = ["OperationRunner"]

T = TypeVar("T")
Step = Call[Any] | Wait | Pause | QueueEvent
_OPERATIONS = {operation.value: operation for operation in EventOperation}


class OperationRunner:
    """An operation runner runs the operations of one queue.

    Args:
        gateway: the gateway for calls and waits.
        name: name of the queue, for events about retries.
        on_event: receives the events; None for no events.
        stopping: whether the queue is stopping, which ends waits and pauses early.

    Attributes:
        outage: what the queue object knows of an outage of Redis.
    """

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        on_event: Callable[[QueueEvent], Any] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.gateway = gateway
        self.emits_events = on_event is not None
        self._name = name
        self._observers: tuple[Callable[[QueueEvent], Any], ...] = () if on_event is None else (on_event,)
        self._stopping = stopping
        self.outage = Outage()

    def branch(self, stopping: Callable[[], bool]) -> Self:
        """Return a runner of the same queue whose waits and pauses end when `stopping` says so."""
        branch = copy(self)
        branch.follow(stopping)
        return branch

    def follow(self, stopping: Callable[[], bool]) -> None:
        """End waits and pauses when `stopping` says so, and for no other reason."""
        self._stopping = stopping

    def run(self, operation: Operation[T], *, retry: bool = True, held: HeldConnection | None = None) -> T:
        """Drive an operation to its result; its calls are retried unless told otherwise.

        What interrupts a step, such as a cancellation, is thrown into the operation as well: it may have more to do
        before it lets go, in calls that are not retried.

        Args:
            operation: to drive.
            retry: False: one attempt per call.
            held: what `hold` returned; None for any connection.
        """
        begun = elapsed_clock() if self.emits_events else 0.0
        try:
            step = next(operation)
        except StopIteration as stop:
            give_way()
            result: T = stop.value
            return result
        return self._resume(operation, step, retry, begun, held=held)

    def hold(self) -> HeldConnection | None:
        """Return what keeps a connection for operations that run one after the other, if the gateway can."""
        make: Callable[[], HeldConnection | None] | None = getattr(self.gateway, "hold", None)
        return None if make is None else make()

    def start(self, operation: Operation[T], held: HeldConnection | None = None) -> Callable[[], T]:
        """Send the first call of an operation without waiting for its reply.

        Args:
            operation: to begin.
            held: what `hold` returned; None for any connection.

        Returns:
            A function that waits for the reply and drives the operation to its result, as `run` does. Call it once.
        """
        begun = elapsed_clock() if self.emits_events else 0.0
        step = next(operation)
        if not isinstance(step, Call):
            return lambda: self._resume(operation, step, True, begun)
        on_retry = partial(self._note_retry, begun) if self.emits_events else None
        options: dict[str, Any] = {} if held is None else {"held": held}  # which other gateways do not take
        receive = self.gateway.send(step, on_retry=on_retry, **options)
        return lambda: self._resume(operation, step, True, begun, receive)

    def observe(self, on_event: Callable[[QueueEvent], Any]) -> None:
        """Emit events to this callback as well, after those that receive them already."""
        self._observers = (*self._observers, on_event)
        self.emits_events = True

    def emit(self, event: QueueEvent, begun: float | None = None) -> None:
        """Emit an event, with the time since what it is about began, by `elapsed_clock`."""
        if self._observers and begun is not None:
            event = replace(event, duration_seconds=elapsed_clock() - begun)
        for observer in self._observers:
            emit(observer, event)

    def _resume(
        self,
        operation: Operation[T],
        step: Step,
        retry: bool,
        begun: float,
        receive: Callable[[], Any] | None = None,
        held: HeldConnection | None = None,
    ) -> T:
        verb: str | None = None
        try:
            while True:
                try:
                    verb = verb or (step.script.verb if isinstance(step, Call) else None)
                    answer = self._answer(step, retry, begun, receive, held)
                except Exception as error:  # noqa: BLE001  (the operation decides what it means)
                    step = operation.throw(error)
                except BaseException as error:  # noqa: BLE001  (the operation lets it through)
                    step, retry = operation.throw(error), False
                else:
                    step = operation.send(answer)
                receive = None
        except StopIteration as stop:
            result: T = stop.value
            return result
        except RedisMessageQueueError as error:
            error.locate(queue=self._name, operation=verb)
            raise

    def _answer(
        self,
        step: Step,
        retry: bool,
        begun: float,
        receive: Callable[[], Any] | None,
        held: HeldConnection | None,
    ) -> Any:
        if receive is not None:
            return receive()
        if isinstance(step, Call):
            return self.execute(step, retry, begun, held)
        if isinstance(step, Wait):
            # A consumer that took the wake-up must claim, even when stopping: the wake-up is lost to the others.
            return self.gateway.wait(step, self._stopping) or (None if self._stopping() else False)
        if isinstance(step, Pause):
            return pause(step.seconds, self._stopping)
        return self.emit(step, begun)

    def execute(self, call: Call[Any], retry: bool, begun: float, held: HeldConnection | None = None) -> Any:
        """Execute one call of an operation that began at `begun`, and learn of an outage from it."""
        outage = self.outage
        tries = retry
        if outage.since is not None and (left := outage.left_of(self.gateway.retry_budget_seconds)) is not None:
            patience = left if call.patience_seconds is None else min(left, call.patience_seconds)
            call, tries = replace(call, patience_seconds=patience), retry and left > 0
        options: dict[str, Any] = {} if held is None else {"held": held}  # which other gateways do not take
        if self.emits_events:
            options["on_retry"] = partial(self._note_retry, begun)
        started = outage.now()
        try:
            answer = self.gateway.execute(call, retry=tries, **options)
        except RedisUnavailableError:
            if retry:
                outage.note(started)
            raise
        outage.end()
        return answer

    def _note_retry(self, begun: float, note: RetryNote) -> None:
        operation = _OPERATIONS.get(note.verb)
        if operation is not None:
            self.emit(
                QueueEvent(
                    operation,
                    EventOutcome.RETRY,
                    self._name,
                    count=0,
                    attempt=note.attempt,
                    seconds=note.seconds,
                    error=note.error,
                ),
                begun,
            )
