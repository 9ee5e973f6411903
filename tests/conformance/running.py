"""A driver for operations: remembers what they ask for, and lets a test act while they pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.client import NEVER_DECODE

from sluicegate.core.call import Call, Operation, Pause
from sluicegate.events import QueueEvent

T = TypeVar("T")


class Drive:
    """Runs operations on one client, each call on one connection, script and `then` in one pipeline.

    Args:
        client: of the server.
        while_paused: called at every pause; True says that the queue is stopping.
        execute: instead of the client, for tests that let a call fail.
    """

    def __init__(
        self,
        client: redis.Redis,
        while_paused: Callable[[], bool | None] = lambda: False,
        execute: Callable[[Call[Any]], Any] | None = None,
    ) -> None:
        self._client = client
        self._while_paused = while_paused
        self._execute = execute or self.execute
        self.calls: list[Call[Any]] = []
        self.pauses: list[float] = []
        self.events: list[QueueEvent] = []

    def __call__(self, operation: Operation[T]) -> T:
        step: Any = None
        answer: Any = None
        error: Exception | None = None
        try:
            while True:
                step = operation.throw(error) if error is not None else operation.send(answer)
                answer = error = None
                try:
                    answer = self._answer(step)
                except Exception as raised:  # the operation decides what it means
                    error = raised
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _answer(self, step: Any) -> Any:
        match step:
            case Call():
                self.calls.append(step)
                return self._execute(step)
            case Pause(seconds):
                self.pauses.append(seconds)
                return bool(self._while_paused())
            case QueueEvent():
                self.events.append(step)
                return None
        raise AssertionError(f"a publish does not ask for {step!r}")

    def execute(self, call: Call[T]) -> Any:
        """Send a call; errors in answer to `then` are part of the result."""
        self._client.script_load(call.script.text)
        pipeline = self._client.pipeline(transaction=False)
        raw: dict[str, Any] = {NEVER_DECODE: True}
        pipeline.execute_command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args, **raw)
        if call.then:
            pipeline.execute_command(*call.then, **raw)
        answers = pipeline.execute(raise_on_error=False)
        if isinstance(answers[0], Exception):
            raise answers[0]
        decoded = call.decode(answers[0])
        return (decoded, answers[1]) if call.then else decoded

    @property
    def reported(self) -> list[tuple[str, int]]:
        """Outcome and count of each event."""
        return [(str(event.outcome), event.count) for event in self.events]
