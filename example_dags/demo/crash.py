"""Kill a Spark worker from outside, at the worst moment: its file is written, its ack is not.

The DAG is the same as without a crash and does not know. Redis is asked to hold back every write for a moment
(`CLIENT PAUSE … WRITE`), so that a worker that has written its file waits for the answer to its ack. Such a worker,
found by the process id in its file, gets SIGKILL. Its ack has not happened, and the others go on when Redis does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import redis

from example_dags.demo.paths import QUEUE, Paths
from example_dags.demo.watch import LeaseFile, read_lease_file
from sluicegate import embedded
from sluicegate.core.keys import QueueKeys

__all__ = ["Crash", "Crasher", "ancestors"]

_PAUSE_MS = 10_000
_GONE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker that was killed.

    Attributes:
        at: seconds since the epoch.
        pid: of the worker.
        lease: what it had written and not acked.
    """

    at: float
    pid: int
    lease: LeaseFile


class Crasher:
    """Waits until part of the queue is drained, then kills one worker.

    Args:
        paths: where everything is.
        after: messages that must be acked before.
        root_pid: the process whose descendants Spark's workers are; nothing else is ever killed.
    """

    def __init__(self, paths: Paths, *, after: int, root_pid: int) -> None:
        self._paths = paths
        self._after = after
        self._root_pid = root_pid
        self._keys = QueueKeys(QUEUE)
        self._redis: redis.Redis = embedded.connect(paths.url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="demo-crasher", daemon=True)
        self.crash: Crash | None = None
        self.failure: Exception | None = None

    def run_once(self) -> Crash | None:
        """Look once; kill if it is time and a worker can be caught between its file and its ack."""
        if not self.is_time():
            return None
        self._redis.execute_command("CLIENT", "PAUSE", _PAUSE_MS, "WRITE")
        try:
            victim = self._catch()
            if victim is None:
                return None
            os.kill(victim.pid, signal.SIGKILL)
            killed_at = time.time()
            self._await_end(victim.pid)
        finally:
            self._redis.execute_command("CLIENT", "UNPAUSE")
        return Crash(killed_at, victim.pid, victim)

    def is_time(self) -> bool:
        """Whether enough is acked."""
        return int(self._redis.hget(self._keys.counters, "acked") or 0) >= self._after

    def start(self) -> None:
        """Go on in the background until a worker is killed."""
        self._thread.start()

    def stop(self) -> None:
        """Give up."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._redis.close()

    def _loop(self) -> None:
        while self.crash is None and not self._stop.wait(0.02):
            try:
                self.crash = self.run_once()
            except (redis.RedisError, OSError) as error:
                self.failure = error
                return

    def _catch(self) -> LeaseFile | None:
        """What a worker has written and not acked, while nobody can ack; None when no worker came so far in time."""
        deadline = time.monotonic() + _PAUSE_MS / 4000
        while time.monotonic() < deadline and not self._stop.is_set():
            for lease in self._unacked_files():
                if self._root_pid in ancestors(lease.pid):
                    return lease
            time.sleep(0.01)
        return None

    def _unacked_files(self) -> list[LeaseFile]:
        """Files whose lease is still open. Reads are not held back."""
        open_leases = set(self._redis.zrange(self._keys.leases, 0, -1))
        newest = sorted(
            self._paths.flights.glob("partition=*/[!.]*.parquet"),
            key=lambda path: path.stat().st_mtime_ns,
            reverse=True,
        )
        files = (read_lease_file(path) for path in newest[:20])
        return [file for file in files if QueueKeys.lease_name(file.lease_id) in open_leases]

    def _await_end(self, pid: int) -> None:
        """Until the process is gone and Redis has dropped its connection, so that its ack can no longer be executed."""
        deadline = time.monotonic() + _GONE_SECONDS
        while not _has_ended(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        # An answer is a round of Redis's event loop: one may still read the ack, the next finds the connection closed.
        for _ in range(5):
            self._redis.ping()


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on; empty when it is gone."""
    found: list[int] = []
    while pid > 1:
        try:
            # The name in brackets may hold anything, so the fields are counted from its end.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return found
        found.append(pid)
    return found


def _has_ended(pid: int) -> bool:
    """Whether the last thread of a process is gone, and with it the last that held its connections open."""
    process = Path(f"/proc/{pid}")
    try:
        threads = len(list((process / "task").iterdir()))
        return threads == 1 and (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
