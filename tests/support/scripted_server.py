"""A server that gives scripts the answers of a test, and records which connection asked for what."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OK = b"+OK\r\n"


@dataclass
class Answering:
    """Listens on a port and serves every connection until it ends.

    Attributes:
        answers: for the next scripts, raw; an empty one cuts the connection. When none is left, `:1`.
        others: for the next commands that are neither scripts nor greetings. When none is left, `+PONG`; a Sentinel
            question gets this port as the primary.
        cluster: for the next questions about a cluster; when none is left, this is the only node of one.
        asked: (number of the connection, command) of everything but greetings.
        certificate: folder of `server.crt` and `server.key`, to speak TLS.
        port: where it listens; 0 takes a free one.
        greets: while not set, greetings get no answer.
        greeted: how many there were.
    """

    answers: list[bytes] = field(default_factory=list)
    forever: bytes | None = None
    asked: list[tuple[int, list[bytes]]] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    cluster: list[bytes] = field(default_factory=list)

    port: int = 0
    certificate: Path | None = None
    greets: threading.Event = field(default_factory=threading.Event)
    greeted: int = 0

    def __post_init__(self) -> None:
        self.greets.set()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._tls = None
        if self.certificate is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(self.certificate / "server.crt", self.certificate / "server.key")
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def scripts(self) -> list[str]:
        """Return the commands that carried scripts, in order."""
        return [command[0].decode() for _, command in self.asked if command[0].startswith(b"EVAL")]

    @property
    def connections(self) -> list[int]:
        """Return the connections that carried scripts, in order."""
        return [number for number, command in self.asked if command[0].startswith(b"EVAL")]

    def close(self) -> None:
        self.greets.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        for number in range(10_000):
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(one)
            threading.Thread(target=self._serve, args=(number, one), daemon=True).start()

    def _serve(self, number: int, one: socket.socket) -> None:
        with contextlib.suppress(OSError), self._secured(one) as one, one.makefile("rb") as incoming:  # noqa: PLR1704
            while (command := _read(incoming)) and (answer := self._answer(number, command)):
                one.sendall(answer)

    def _secured(self, one: socket.socket) -> socket.socket:
        return one if self._tls is None else self._tls.wrap_socket(one, server_side=True)

    def _answer(self, number: int, command: list[bytes]) -> bytes:
        if command[0] == b"HELLO":
            self.greeted += 1
            self.greets.wait()
            return b"-ERR unknown command\r\n" if command[1:2] != [b"3"] else b"%1\r\n+proto\r\n:3\r\n"
        if command[0] == b"CLIENT":
            return OK
        with self._lock:
            self.asked.append((number, command))
            if command[0] in (b"CLUSTER", b"COMMAND", b"INFO"):
                return self._of_a_cluster(command)
            if command[0] == b"SENTINEL" and not self.others:
                return masters(self.port)
            if not command[0].startswith(b"EVAL"):
                return self.others.pop(0) if self.others else b"+PONG\r\n"
            if self.forever is not None:
                return self.forever
            return self.answers.pop(0) if self.answers else b":1\r\n"

    def _of_a_cluster(self, command: list[bytes]) -> bytes:
        if command[0] == b"COMMAND":
            return b"*0\r\n"
        if command[0] == b"INFO":
            return b"$17\r\ncluster_enabled:1\r\n"
        if self.cluster:
            return self.cluster.pop(0)
        return b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\na\r\n" % self.port


def masters(port: int) -> bytes:
    """Return the answer of a Sentinel whose service `gate` has its primary at this port."""
    words = ["name", "gate", "ip", "127.0.0.1", "port", str(port), "flags", "master", "num-other-sentinels", "0"]
    return f"*1\r\n*{len(words)}\r\n".encode() + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)


def _read(incoming: socket.SocketIO) -> list[bytes]:
    head = incoming.readline()
    if not head.startswith(b"*"):
        return []
    words = []
    for _ in range(int(head[1:])):
        size = int(incoming.readline()[1:])
        words.append(incoming.read(size + 2)[:-2])
    return words


@contextlib.contextmanager
def answering(
    *answers: bytes, forever: bytes | None = None, port: int = 0, certificate: Path | None = None
) -> Iterator[Answering]:
    server = Answering(list(answers), forever, port=port, certificate=certificate)
    try:
        yield server
    finally:
        server.close()
