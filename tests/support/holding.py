"""A proxy in front of Redis that stops a script before it arrives, or before its reply is returned."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sluicegate.core.scripts import load_all
from tests.support.relay import Link, Relay

WAIT_SECONDS = 20.0
Point = Literal["request", "reply"]


class Held:
    """A script that is stopped, or will be.

    Attributes:
        reached: set once it is stopped.
    """

    def __init__(self, script: str, point: Point) -> None:
        self.marks = [each.sha for each in load_all().values() if script in (each.name, each.verb)]
        self.point = point
        self.reached = threading.Event()
        self._over = threading.Event()
        self._goes = False

    def go(self) -> None:
        """Let the script continue, even if its sender has gone."""
        self._goes = True
        self._over.set()

    def drop(self) -> None:
        """Drop the script and its connection."""
        self._over.set()

    def stop(self) -> bool:
        """Wait for `go` or `drop`; return whether to continue."""
        self.reached.set()
        self._over.wait(WAIT_SECONDS)
        return self._goes


class Holding(Relay):
    """Forwards connections to a server on a unix socket; each `hold` stops the next call of a script."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._held: list[Held] = []
        super().__init__(self._reach)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def hold(self, script: str, point: Point) -> Held:
        """Stop the next call of a script."""
        held = Held(script, point)
        with self._lock:
            self._held.append(held)
        return held

    def request(self, link: Link, data: bytes) -> bool:
        held = self._take(data)
        if held is not None and held.point == "reply":
            link.marks.append(held)
            return True
        return held is None or held.stop()

    def reply(self, link: Link, data: bytes) -> bool:
        return not link.marks or link.marks.pop().stop()

    def _take(self, data: bytes) -> Held | None:
        with self._lock:
            for held in self._held:
                if any(mark in data for mark in held.marks):
                    self._held.remove(held)
                    return held
        return None

    def _reach(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._target))
        return server


@contextlib.contextmanager
def holding(target: Path) -> Iterator[Holding]:
    proxy = Holding(target)
    try:
        yield proxy
    finally:
        proxy.close()
