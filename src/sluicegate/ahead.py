"""Doing one call while the next is prepared: Redis and this process work at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

__all__ = ["OneAhead"]

T = TypeVar("T")


class OneAhead(Generic[T]):
    """At most one call is under way, in a thread of its own; the next starts only after it has succeeded.

    Args:
        done: called with the result of each call, in order, in the caller's thread.
    """

    def __init__(self, done: Callable[[T], None]) -> None:
        self._done = done
        self._thread: threading.Thread | None = None
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def start(self, call: Callable[[], T]) -> None:
        """Finish what is under way, then start a call; raises what the earlier one raised."""
        self.finish()
        # A daemon, so that a process that is told to end does not wait for Redis.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run, call), daemon=True)
        self._thread.start()

    def here(self, call: Callable[[], T]) -> None:
        """Finish what is under way, then call in this thread."""
        self.finish()
        self._done(call())

    def finish(self) -> None:
        """Wait for what is under way; raises what it raised."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if self._errors:
            raise self._errors.pop()
        self._done(self._results.pop())

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._results.append(call())
        except BaseException as error:  # noqa: BLE001  (raised again by whoever waits)
            self._errors.append(error)
