"""Turn Python's collector of cyclic garbage off while thousands of objects are made at once.

None of these objects is garbage, but their number makes the collector look through all of them again and again, which
takes longer than making them.
"""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType
from typing import Self

__all__ = ["paused"]

_pausing: set[int] = set()  # threads that have turned the collector off


class paused:
    """A block in which the collector does not run.

    Blocks may be nested and may overlap in several threads. The first of them turns the collector off and, when it
    ends, on again, so that no number of overlapping blocks keeps it off for longer than one block. Where the program
    itself has turned the collector off, it stays off. A block must be short, and must neither wait nor yield.
    """

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: int | None = None  # set in the block that turned the collector off

    def __enter__(self) -> Self:
        if gc.isenabled():
            self._thread = threading.get_ident()
            try:
                _pausing.add(self._thread)
                gc.disable()
            except BaseException:  # an interruption: this block has no end that would turn it on again
                self._end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def __del__(self) -> None:
        self._end()  # does nothing unless an interruption kept the end of the block from running

    def _end(self) -> None:
        if self._thread is not None:
            gc.enable()
            _pausing.discard(self._thread)
            self._thread = None


def _continue_in_child() -> None:
    """Turn the collector on in a forked process whose parent had it turned off in another thread."""
    here = threading.get_ident()
    if _pausing and here not in _pausing:
        gc.enable()
    _pausing.intersection_update({here})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_continue_in_child)
