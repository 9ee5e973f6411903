"""Kill a Spark worker at the worst moment: its file is written, and its messages are not acked yet.

The DAG is the same as without a crash. Redis delays every write for a moment (`CLIENT PAUSE … WRITE`), so that a worker
that has written its file waits for the reply to its ack. Such a worker, found by the process id in its file, gets
SIGKILL. Its ack has not been executed, and the other workers continue when Redis does.
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
    """Describes a worker that was killed.

    Attributes:
        at: when, in seconds since the epoch.
        pid: the process id of the worker.
        lease: the file of the lease that it had not acked.
    """

    at: float
    pid: int
    lease: LeaseFile


class Crasher:
    """Waits until part of the queue is drained, then kills one worker.

    Args:
        paths: the folders of the demo.
        after: the number of messages that must be acked before.
        root_pid: the ancestor of Spark's workers; no other process is ever killed.
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
        """Check once; kill a worker if it is time and one is found between its file and its ack."""
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
        """Return whether enough messages are acked."""
        return int(self._redis.hget(self._keys.counters, "acked") or 0) >= self._after

    def start(self) -> None:
        """Check in the background until a worker is killed."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the background thread."""
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
        """Return a file that a worker has written and not acked, while writes are paused; None if there is none."""
        deadline = time.monotonic() + _PAUSE_MS / 4000
        while time.monotonic() < deadline and not self._stop.is_set():
            for lease in self._unacked_files():
                if self._root_pid in ancestors(lease.pid):
                    return lease
            time.sleep(0.01)
        return None

    def _unacked_files(self) -> list[LeaseFile]:
        """Return the files whose lease is still open; reads are not paused."""
        open_leases = set(self._redis.zrange(self._keys.leases, 0, -1))
        newest = sorted(
            self._paths.flights.glob("partition=*/[!.]*.parquet"),
            key=lambda path: path.stat().st_mtime_ns,
            reverse=True,
        )
        files = (read_lease_file(path) for path in newest[:20])
        return [file for file in files if QueueKeys.lease_name(file.lease_id) in open_leases]

    def _await_end(self, pid: int) -> None:
        """Wait until the process is gone and Redis has dropped its connection, so that its ack is never executed."""
        deadline = time.monotonic() + _GONE_SECONDS
        while not _has_ended(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        # A reply is a round of Redis's event loop: one may still read the ack, the next closes the connection.
        for _ in range(5):
            self._redis.ping()


def ancestors(pid: int) -> list[int]:
    """Return the parent of a process, the parent's parent, and so on; nothing for a process that is gone."""
    found: list[int] = []
    while pid > 1:
        try:
            # The name in parentheses may contain anything, so fields are counted from its end.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return found
        found.append(pid)
    return found


def _has_ended(pid: int) -> bool:
    """Return whether the last thread of a process is gone, which kept its connections open."""
    process = Path(f"/proc/{pid}")
    try:
        threads = len(list((process / "task").iterdir()))
        return threads == 1 and (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
