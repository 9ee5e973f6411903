"""These handlers stop the queues of a process: on a signal, or on an event that other code sets."""

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
    """This base class answers whether queues must stop. Subclass it to use another source."""

    @abstractmethod
    def is_interrupted(self) -> bool:
        """Return whether to stop.

        Queues call this between claims and several times a second while they wait, so it must be cheap and not block.
        """


class GracefulInterruptHandler(BaseGracefulInterruptHandler):
    """This handler stops queues at the first signal, so that claimed messages can be finished.

    The second signal has its default effect. The object handles the signals of the whole process until `reset`. When
    a signal arrives it only sets a flag and writes a line to stderr. As a context manager it resets itself at the end.

    Args:
        verbose: write "Received signal: ..." to stderr at the first signal.
        signals: the signals to handle; default SIGINT, SIGTERM and SIGHUP.

    Raises:
        TypeError: `verbose` is not a bool.
        ValueError: a signal already has another handler, is ignored (as under `nohup`) or cannot be caught, or this is
            not the main thread. Then nothing is changed. For SIGINT, SIG_DFL and the handlers of Python and
            `asyncio.run` do not count as another handler.
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
                "make it there and pass it to the threads, or use an EventDrivenInterruptHandler"
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
        """Return whether a signal has arrived, also after `reset`."""
        return self._interrupted

    def reset(self) -> None:
        """Restore the previous signal handlers; further calls have no effect.

        A forked child calls this before it makes a handler of its own. A signal for which other code has installed a
        handler since keeps that handler.
        """
        for number, disposition in list(self._before.items()):
            if signal.getsignal(number) == self._receive:
                signal.signal(number, disposition)
            del self._before[number]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupted:
            self._interrupted = True
            if self._verbose:
                with suppress(Exception):  # stderr may be closed, or the interrupted code may be writing to it
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
    """This handler stops queues when an event is set, by the code that owns the signals of the process.

    Args:
        stop_event: a `threading.Event`, an `asyncio.Event`, or another object with `is_set()`.

    Raises:
        TypeError: `stop_event` has no `is_set()`.
    """

    def __init__(self, stop_event: _Settable) -> None:
        if isinstance(stop_event, type) or not callable(getattr(stop_event, "is_set", None)):
            raise TypeError(
                "stop_event must be a threading.Event, an asyncio.Event or another object with is_set(), not "
                f"{stop_event!r}"
            )
        self._stop_event = stop_event

    def is_interrupted(self) -> bool:
        """Return whether the event is set."""
        return bool(self._stop_event.is_set())


def _default_of(number: int) -> Any:
    """Return the current disposition of a signal, which must be the default of the system or of Python."""
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
    """Return whether a handler is the one of `asyncio.run` for SIGINT, whose effect asyncio users expect."""
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
