"""The tasks in which an asyncio worker handles messages; `sluicegate.worker.slots` has threads.

Written by hand: a task can be cancelled and a thread cannot, and a plain handler runs in a thread next to the loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluicegate.errors import HandlerFailedError
from sluicegate.handling.routes import UnawaitedError
from sluicegate.handling.threads import CallThreads

__all__ = ["Background", "Slots", "make_turn", "resolve"]

_GRACE_SECONDS = 5.0  # for cancelled handlers to end
_LAST_GRACE_SECONDS = 1.0  # for cancelled slots


def make_turn() -> AbstractAsyncContextManager[None]:
    """Return the lock of the one slot that waits for a message."""
    return asyncio.Lock()


async def resolve(result: Any) -> Any:
    """Return what a hook returned, awaited when it is awaitable."""
    return await result if inspect.isawaitable(result) else result


class Slots:
    """Several calls of one function at the same time, each in a task of its own.

    Args:
        count: how many.
        name: of the worker, for the names of the tasks.
        work: called by each slot with this object; the slot ends when it returns.
        on_error: called with what it raises.
    """

    def __init__(
        self,
        count: int,
        name: str,
        work: Callable[[Slots], Awaitable[None]],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._count = count
        self._name = name
        self._work = work
        self._on_error = on_error
        self._slots: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Future[Any]] = set()
        self._threads = CallThreads(f"{name}-handler")
        self._is_cut = False

    async def start(self) -> None:
        """Start all slots."""
        for number in range(self._count):
            self._slots.add(asyncio.get_running_loop().create_task(self._run(), name=f"{self._name}-{number}"))

    async def wait(self, seconds: float) -> bool:
        """Wait until all slots have ended, at most so long; returns whether they have."""
        running = {slot for slot in self._slots if not slot.done()}
        if running:
            await asyncio.wait(running, timeout=max(0.0, seconds))
        ended = all(slot.done() for slot in self._slots)
        if ended:
            self._threads.close()
        return ended

    async def cut(self) -> None:
        """Cancel the handlers that still run, and wait a few seconds for them to end.

        A plain handler runs in a thread, which cannot be cancelled: it continues, and its result is ignored.
        """
        self._is_cut = True
        for call in list(self._calls):
            call.cancel()
        if await self.wait(_GRACE_SECONDS):
            return
        for slot in self._slots:  # waits for Redis, or its handler has ignored the cancellation
            slot.cancel()
        await self.wait(_LAST_GRACE_SECONDS)

    def runs_caller(self) -> bool:
        """Return whether the caller is a slot or a handler of one, which must not wait for the slots to end."""
        me = asyncio.current_task()
        return me is not None and (me in self._slots or me in self._calls)

    async def call(self, function: Callable[..., Any], is_async: bool, *arguments: Any) -> Any:
        """Call a handler: an async one in a task of its own, a plain one in a thread. Both see the caller's context.

        Raises:
            HandlerFailedError: it was cancelled, and neither the slot was nor the run was cut.
        """
        if is_async:
            result = await self._result(asyncio.ensure_future(_kept(function(*arguments))))
        else:
            call = partial(copy_context().run, function, *arguments)
            result = await self._result(asyncio.wrap_future(self._threads.submit(call)))
        if inspect.isawaitable(result):  # of a plain function that returns one
            result = await self._result(asyncio.ensure_future(_kept(result)))
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise UnawaitedError(f"a handler returned a {type(result).__name__}, which does nothing by itself")
        return result

    async def _result(self, call: asyncio.Future[Any]) -> Any:
        self._calls.add(call)
        try:
            result = await call
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._is_cut or (me is not None and me.cancelling()):
                raise
            raise HandlerFailedError("the handler was cancelled, and not by its worker") from None
        finally:
            self._calls.discard(call)
        if isinstance(result, _Ending):
            raise result.error
        return result

    async def _run(self) -> None:
        try:
            await self._work(self)
        except asyncio.CancelledError:
            if not self._is_cut:
                self._on_error(asyncio.CancelledError())
            raise
        except BaseException as error:  # noqa: BLE001  (the task that runs the worker raises it)
            self._on_error(error)


@dataclass(frozen=True, slots=True)
class _Ending:
    """What a handler raised to end the process. A task that raised it would end the event loop at once."""

    error: BaseException


async def _kept(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as error:
        return _Ending(error)


class Background:
    """A run in the background, in a task of its own.

    Args:
        run: what to run.
        name: of the task.
    """

    def __init__(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        self._run = run
        self._name = name

    def start(self) -> None:
        """Start it; the event loop alone refers to a task weakly."""

        async def run() -> None:
            await self._run()

        self._task = asyncio.get_running_loop().create_task(run(), name=self._name)
