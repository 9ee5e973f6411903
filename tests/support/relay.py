"""A relay in front of Redis, for tests that interfere with what passes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 1 << 16


@dataclass(eq=False, slots=True)
class Link:
    """One relayed connection. A relay uses `marks` to remember at a request what to do with its reply."""

    client: socket.socket
    server: socket.socket
    marks: list[Any] = field(default_factory=list)


class Relay:
    """Forwards connections to a server. It expects one request at a time, as redis-py sends them without a pipeline.

    A subclass overrides `admits`, `request` and `reply`. The latter two may block; if they return False, the
    connection is closed before the data is forwarded.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._links: list[Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def admits(self) -> bool:
        """Return whether to accept a new connection."""
        return True

    def request(self, link: Link, data: bytes) -> bool:
        """Return whether to forward what a client sends."""
        raise NotImplementedError

    def reply(self, link: Link, data: bytes) -> bool:
        """Return whether to forward what the server answers."""
        raise NotImplementedError

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            _end(link.client)
            _end(link.server)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.admits():
                client.close()
                continue
            link = Link(client, self._connect())
            self._links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: Link) -> None:
        with link.client, link.server:
            answers = threading.Thread(target=self._answer, args=(link,), daemon=True)
            answers.start()
            with contextlib.suppress(OSError, threading.BrokenBarrierError):
                while (data := link.client.recv(_CHUNK)) and self.request(link, data):
                    link.server.sendall(data)
            _end(link.server)
            answers.join()

    def _answer(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while (data := link.server.recv(_CHUNK)) and self.reply(link, data):
                link.client.sendall(data)
        _end(link.client)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
