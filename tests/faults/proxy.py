"""A TCP proxy in front of Redis that loses replies: the request arrives and is executed, the answer never comes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

GATHER_SECONDS = 10


class Proxy:
    """Forwards connections to a server; `lose(n)` cuts the next n connections that carry a script, once it ran."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._to_lose = 0
        self._gathering: threading.Barrier | None = None
        self._refuse_after = self._refuses = False
        self._doomed: set[socket.socket] = set()
        self._sockets: list[socket.socket] = []
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, replies: int, *, then_refuse: bool = False) -> None:
        """Lose the replies to the next scripts; afterwards let nobody in until `lose(0)`."""
        with self._lock:
            self._to_lose, self._refuse_after, self._refuses = replies, then_refuse, False

    @contextlib.contextmanager
    def gather(self, parties: int) -> Iterator[None]:
        """Let scripts through only when so many are under way at the same time, each on a connection of its own."""
        self._gathering = threading.Barrier(parties, timeout=GATHER_SECONDS)
        try:
            yield
        finally:
            self._gathering.abort()
            self._gathering = None

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
            if self._refuses:
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One request after the other, as redis-py sends them on a connection without a pipeline."""
        with client, server, contextlib.suppress(OSError, threading.BrokenBarrierError):
            answers = threading.Thread(target=self._answer, args=(client, server), daemon=True)
            answers.start()
            while data := client.recv(1 << 16):
                if b"EVALSHA" in data and self._gathering is not None:
                    self._gathering.wait()
                if b"EVALSHA" in data and self._take_one():
                    self._doomed.add(server)
                server.sendall(data)
            _end(server)
            answers.join()

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if server in self._doomed:
                    self._doomed.discard(server)
                    self.lost += 1
                    if self._refuse_after:
                        self._refuses = True
                    break
                client.sendall(data)
        _end(client)

    def _take_one(self) -> bool:
        with self._lock:
            self._to_lose -= 1
            return self._to_lose >= 0


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
