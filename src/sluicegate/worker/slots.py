"""The threads in which a worker handles messages; `sluicegate.asyncio.worker.slots` has tasks."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from typing import Any

from sluicegate.handling.routes import UnawaitedError

__all__ = ["Background", "Slots", "make_turn", "resolve"]


def make_turn() -> AbstractContextManager[bool]:
    """Return the lock of the one slot that waits for a message."""
    return threading.Lock()


def resolve(result: Any) -> Any:
    """Return what a hook or handler returned.

    Raises:
        UnawaitedError: it is something that no thread would await or iterate.
    """
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UnawaitedError(
            f"a handler or hook returned a {type(result).__name__}, which does nothing by itself; write plain "
            "functions, or use sluicegate.asyncio.worker.Worker"
        )
    return result


class Slots:
    """Several calls of one function at the same time, each in a thread of its own.

    The threads are daemons: a handler that never ends keeps no program from ending.

    Args:
        count: how many.
        name: of the worker, for the names of the threads.
        work: called by each slot with this object; the slot ends when it returns.
        on_error: called with what it raises.
    """

    def __init__(
        self, count: int, name: str, work: Callable[[Slots], None], on_error: Callable[[BaseException], None]
    ) -> None:
        self._count = count
        self._name = name
        self._work = work
        self._on_error = on_error
        self._slots: list[threading.Thread] = []

    def start(self) -> None:
        """Start all slots."""
        for number in range(self._count):
            context = copy_context()
            thread = threading.Thread(target=context.run, args=(self._run,), name=f"{self._name}-{number}", daemon=True)
            self._slots.append(thread)  # before it runs: a handler may ask at once whether it is one of them
            try:
                thread.start()
            except BaseException:
                self._slots.pop()
                raise

    def wait(self, seconds: float) -> bool:
        """Wait until all slots have ended, at most so long; returns whether they have."""
        end = time.monotonic() + seconds
        for slot in self._slots:
            slot.join(max(0.0, end - time.monotonic()))
        return not any(slot.is_alive() for slot in self._slots)

    def cut(self) -> None:
        """Leave the handlers that still run alone: no thread can be ended. What they return counts for nothing."""

    def runs_caller(self) -> bool:
        """Return whether the caller is a slot or a handler of one, which must not wait for the slots to end."""
        return threading.current_thread() in self._slots

    def call(self, function: Callable[..., Any], is_async: bool, *arguments: Any) -> Any:
        """Call a handler in a copy of the caller's context."""
        del is_async  # the worker refuses such handlers when they are registered
        return resolve(copy_context().run(function, *arguments))

    def _run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001  (the thread that runs the worker raises it)
            self._on_error(error)


class Background:
    """A run in the background, in a daemon thread of its own.

    Args:
        run: what to run.
        name: of the thread.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run = run
        self._name = name

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
