"""A proxy in front of Redis that stops a script at a chosen point: before it arrives, or before its reply goes out."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sluicegate.core.scripts import load

WAIT_SECONDS = 20.0
Point = Literal["request", "reply"]


class Held:
    """One script that is to be stopped, or is.

    Attributes:
        reached: set once it is stopped.
    """

    def __init__(self, script: str, point: Point) -> None:
        self.mark = load(script).sha
        self.point = point
        self.reached = threading.Event()
        self._over = threading.Event()
        self._goes = False

    def go(self) -> None:
        """Let it go on, also when its sender has gone."""
        self._goes = True
        self._over.set()

    def drop(self) -> None:
        """Let it vanish with its connection."""
        self._over.set()

    def stop(self) -> bool:
        """Stand still; returns whether to go on."""
        self.reached.set()
        self._over.wait(WAIT_SECONDS)
        return self._goes


class Holding:
    """Forwards connections to a server on a unix socket; each `hold` stops the next call of a script."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._lock = threading.Lock()
        self._held: list[Held] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, script: str, point: Point) -> Held:
        """Stop the next call of a script."""
        held = Held(script, point)
        with self._lock:
            self._held.append(held)
        return held

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            self._sockets += [client, server]
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        stopped: list[Held] = []  # whose reply is next
        answers = threading.Thread(target=self._answer, args=(client, server, stopped), daemon=True)
        answers.start()
        with client, server:
            with contextlib.suppress(OSError):
                while data := client.recv(1 << 16):
                    held = self._take(data)
                    if held is not None and held.point == "reply":
                        stopped.append(held)
                    elif held is not None and not held.stop():
                        break
                    server.sendall(data)
            _end(server)
            answers.join()

    @staticmethod
    def _answer(client: socket.socket, server: socket.socket, stopped: list[Held]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if stopped and not stopped.pop().stop():
                    break
                client.sendall(data)
        _end(client)

    def _take(self, data: bytes) -> Held | None:
        with self._lock:
            for held in self._held:
                if held.mark in data:
                    self._held.remove(held)
                    return held
        return None


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def holding(target: Path) -> Iterator[Holding]:
    proxy = Holding(target)
    try:
        yield proxy
    finally:
        proxy.close()
