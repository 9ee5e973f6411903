"""Threads that call plain handlers for an asyncio worker."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["CallThreads"]


class CallThreads:
    """Calls functions in daemon threads, and uses idle ones again.

    Unlike those of a `ThreadPoolExecutor`, a thread that never ends keeps no program from ending.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function in a thread, and return the future of its result."""
        future: Future[Any] = Future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._count += 1
            self._calls.put((future, function))
        return future

    def close(self) -> None:
        """End each thread once it is idle."""
        with self._lock:
            count, self._count, self._idle = self._count, 0, 0
        for _ in range(count):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except StopIteration as error:  # no asyncio future takes one
                    future.set_exception(RuntimeError(f"the handler raised {error!r}"))
                except BaseException as error:  # noqa: BLE001  (whoever awaits the future gets it)
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del call, future, function
            with self._lock:
                self._idle += 1
