"""Tests use real Redis servers: every server program of this machine, each on its own unix socket."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.embedded import binary

START_SECONDS = 20.0
MORE_SERVERS = "SLUICEGATE_TEST_SERVERS"


def programs() -> list[Path]:
    """Return the server programs that the embedded server would use, and those named in SLUICEGATE_TEST_SERVERS.

    Without any, it returns the bare name, so that tests fail and do not vanish.
    """
    named = [Path(path) for path in os.environ.get(MORE_SERVERS, "").split(os.pathsep) if path]
    return [*binary._candidates(), *named] or [Path("redis-server")]


PROGRAMS = programs()


def free_port() -> int:
    """Return a TCP port that nobody listens on.

    It lies below the ports of outgoing connections, so that no client can connect to itself during an outage.
    """
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(15_000, 32_000))) as probe:
            return int(probe.getsockname()[1])


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


class RedisServer:
    """One server process on a unix socket or a TCP port; `remove` deletes its folder."""

    def __init__(self, program: Path, *options: str, port: int = 0) -> None:
        self.program = program
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix="sg-"))  # short, since a socket path has at most 107 bytes
        self.socket = self.folder / "redis.sock"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    def client(self, **options: Any) -> redis.Redis:
        """Return a client without redis-py's own retries."""
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 20, **options}
        return redis.Redis.from_url(self.url, **options)

    def start(self) -> RedisServer:
        command = [self.program, "--port", str(self.port), "--dir", self.folder, "--save", "", *self._options]
        if not self.port:
            command += ["--unixsocket", self.socket]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while not self._answers(client):
                assert self._process.poll() is None, f"{self.program} ended: {(self.folder / 'log').read_text()}"
                assert time.monotonic() < deadline, f"{self.program} does not answer"
                time.sleep(0.01)
        return self

    def stop(self) -> None:
        """End the process; the data stays if the options persist it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=START_SECONDS)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the process: it accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    @staticmethod
    def _answers(client: redis.Redis) -> bool:
        try:
            return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False
