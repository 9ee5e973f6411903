"""A TCP proxy in front of Redis that loses replies: Redis executes the request, and the client gets no answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.support.relay import Link, Relay

GATHER_SECONDS = 10


class Proxy(Relay):
    """Forwards connections to a server. `lose(n)` closes the next n connections that carry a script, once it ran."""

    def __init__(self, target_port: int) -> None:
        self._to_lose = 0
        self._gathering: threading.Barrier | None = None
        self._refuse_after = self._refuses = False
        self.lost = 0
        super().__init__(lambda: socket.create_connection(("127.0.0.1", target_port)))

    def lose(self, replies: int, *, then_refuse: bool = False) -> None:
        """Lose the replies to the next scripts, then refuse connections until `lose(0)`."""
        with self._lock:
            self._to_lose, self._refuse_after, self._refuses = replies, then_refuse, False

    @contextlib.contextmanager
    def gather(self, parties: int) -> Iterator[None]:
        """Hold scripts back until this many have arrived, each on its own connection."""
        self._gathering = threading.Barrier(parties, timeout=GATHER_SECONDS)
        try:
            yield
        finally:
            self._gathering.abort()
            self._gathering = None

    def admits(self) -> bool:
        return not self._refuses

    def request(self, link: Link, data: bytes) -> bool:
        if b"EVALSHA" in data and self._gathering is not None:
            self._gathering.wait()
        if b"EVALSHA" in data and self._take_one():
            link.marks.append("doomed")
        return True

    def reply(self, link: Link, data: bytes) -> bool:
        if not link.marks:
            return True
        self.lost += 1
        if self._refuse_after:
            self._refuses = True
        return False

    def _take_one(self) -> bool:
        with self._lock:
            self._to_lose -= 1
            return self._to_lose >= 0


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
