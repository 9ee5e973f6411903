"""How a process tells its queues to stop: by a signal, or by an event that somebody else sets."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

__all__ = ["BaseGracefulInterruptHandler", "EventDrivenInterruptHandler", "GracefulInterruptHandler"]

_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BaseGracefulInterruptHandler(ABC):
    """Tells queues whether to stop. Subclass it to listen to a source of your own."""

    @abstractmethod
    def is_interrupted(self) -> bool:
        """Whether to stop. Asked between claims and several times a second while waiting: cheap, and never blocking."""


class GracefulInterruptHandler(BaseGracefulInterruptHandler):
    """Stops at the first signal, so that the work in hand can be finished; the second signal has its default effect.

    The signals are this object's until `reset`, for the whole process. All it does when one arrives is to set a flag
    and to say so. As a context manager it resets itself at the end.

    Args:
        verbose: write "Received signal: ..." to stderr at the first one, so that whoever pressed Ctrl+C sees that it
            was noticed.
        signals: which; default SIGINT, SIGTERM and SIGHUP.

    Raises:
        TypeError: `verbose` is no bool.
        ValueError: a signal has an owner (another library or another of these handlers), it is ignored, as `nohup`
            does, it cannot be caught, or this is not the main thread. Then nothing is changed. For SIGINT, SIG_DFL
            and the handlers that Python and `asyncio.run` install are no owners.
    """

    def __init__(self, verbose: bool = True, signals: Iterable[int] = _DEFAULT_SIGNALS) -> None:
        if not isinstance(verbose, bool):
            raise TypeError(f"verbose must be True or False, not {verbose!r}; signals are given by name: signals=[...]")
        self._verbose = verbose
        self._interrupted = False
        self._before: dict[int, Any] = {}
        chosen = list(dict.fromkeys(signals))
        if not chosen:
            raise ValueError("signals is empty; name at least one, such as signal.SIGTERM")
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(
                "a GracefulInterruptHandler can be made in the main thread only, where Python delivers signals; "
                "make it there and hand it to the threads, or use an EventDrivenInterruptHandler"
            )
        found = {number: _default_of(number) for number in chosen}
        for number, disposition in found.items():
            try:
                signal.signal(number, self._receive)
            except OSError:
                self.reset()
                raise ValueError(f"{_name(number)} cannot be caught; leave it out of signals") from None
            self._before[number] = disposition

    def is_interrupted(self) -> bool:
        """Whether a signal has arrived, also after `reset`."""
        return self._interrupted

    def reset(self) -> None:
        """Give the signals back to who had them before. Harmless when repeated.

        A process that was forked from one with a handler calls it before it makes a handler of its own. A signal that
        somebody else has taken over since stays theirs.
        """
        for number, disposition in list(self._before.items()):
            if signal.getsignal(number) == self._receive:
                signal.signal(number, disposition)
            del self._before[number]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupted:
            self._interrupted = True
            if self._verbose:
                with suppress(Exception):  # stderr may be gone, or just being written to by what was interrupted
                    sys.stderr.write(f"Received signal: {signal.strsignal(number)}\n")
                    sys.stderr.flush()
            return
        disposition = self._before.get(number, signal.SIG_DFL)
        if callable(disposition):
            disposition(number, frame)
        else:
            signal.signal(number, disposition)
            os.kill(os.getpid(), number)

    def __enter__(self) -> GracefulInterruptHandler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.reset()


class _Settable(Protocol):
    def is_set(self) -> bool: ...


class EventDrivenInterruptHandler(BaseGracefulInterruptHandler):
    """Stops when an event is set; whoever owns the signals of the process sets it.

    Args:
        stop_event: a `threading.Event`, an `asyncio.Event`, or anything else with `is_set()`.

    Raises:
        TypeError: it has no `is_set()`.
    """

    def __init__(self, stop_event: _Settable) -> None:
        if isinstance(stop_event, type) or not callable(getattr(stop_event, "is_set", None)):
            raise TypeError(
                "stop_event must be a threading.Event, an asyncio.Event or another object with is_set(), not "
                f"{stop_event!r}"
            )
        self._stop_event = stop_event

    def is_interrupted(self) -> bool:
        """Whether the event is set."""
        return bool(self._stop_event.is_set())


def _default_of(number: int) -> Any:
    """The present disposition of a signal, which has to be the system's default or Python's."""
    try:
        found = signal.getsignal(number)
    except (ValueError, TypeError):
        raise ValueError(f"{number!r} is not a signal of this system; use those of the signal module") from None
    if found is signal.SIG_DFL:
        return found
    if number == signal.SIGINT and (found is signal.default_int_handler or _is_runners(found)):
        return found
    if isinstance(getattr(found, "__self__", None), GracefulInterruptHandler):
        raise ValueError(
            f"{_name(number)} belongs to another GracefulInterruptHandler; share that one between queues, or call its "
            "reset() first (in a forked process, that of the handler made by the parent)"
        )
    what = "is ignored (nohup and background jobs of a shell do that)" if found is signal.SIG_IGN else "has a handler"
    raise ValueError(
        f"{_name(number)} {what} already and is not at its default; leave it out of signals, or let its owner "
        "set an event and use an EventDrivenInterruptHandler"
    )


def _is_runners(found: object) -> bool:
    """Whether it is what `asyncio.run` installs for SIGINT: its second effect is the one users of asyncio expect."""
    runners = getattr(asyncio.Runner, "_on_sigint", None)
    return (
        runners is not None
        and isinstance(found, functools.partial)
        and getattr(found.func, "__func__", None) is runners
    )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
