"""A worker process of a drain: what runs in the child."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import asdict
from multiprocessing.connection import Connection
from types import FrameType

from sluicegate.config import QueueSpec
from sluicegate.core import json
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.workers import work
from sluicegate.opening import open_spec

__all__ = ["BEGAN", "FAILED", "REFUSED", "REPORT", "STOP", "main", "packed"]

# Messages to the parent begin with one of these, and the parent sends one to the child.
BEGAN, REFUSED, REPORT, FAILED, STOP = b"began ", b"refused ", b"report ", b"failed ", b"stop"


def packed(spec: str, plan: DrainPlan, partition: int, attempt: int) -> bytes:
    """Pickle the arguments of `main`, and the environment: that of the process that forks the workers may be older."""
    return pickle.dumps((dict(os.environ), pickle.dumps((spec, plan, partition, attempt))))


def main(connection: Connection, arguments: bytes) -> None:
    """Drain one partition and report to the parent.

    SIGINT is the parent's: a Ctrl-C in a terminal reaches the whole process group, and the parent decides whether this
    worker finishes its chunk. SIGTERM releases the current chunk at once. So does the end of the parent, because nobody
    would learn of the work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent blocked it while it started this process
    signal.signal(signal.SIGTERM, _terminate)
    try:
        environment, work_arguments = pickle.loads(arguments)  # noqa: S301  (the parent's own bytes)
        os.environ.clear()
        os.environ.update(environment)
        spec, plan, partition, attempt = pickle.loads(work_arguments)  # noqa: S301  (the same)
    except Exception as error:  # noqa: BLE001  (whatever an import of the handler's module raises)
        connection.send_bytes(REFUSED + f"{type(error).__name__}: {error}".encode(errors="replace"))
        return
    connection.send_bytes(BEGAN)
    stop, done = threading.Event(), threading.Event()
    threading.Thread(target=_listen, args=(connection, stop, done), daemon=True).start()
    queue = open_spec(QueueSpec.from_json(spec))
    try:
        summary = work(plan, queue, partition, attempt, stop.is_set)
        answer = REPORT + json.dumps(asdict(summary))
        queue.close()  # not after an error: that would release the lease that the next attempt takes over
    except Exception as error:  # noqa: BLE001  (the parent raises it)
        answer = FAILED + _pickled(error)
    done.set()
    connection.send_bytes(answer)


def _listen(connection: Connection, stop: threading.Event, done: threading.Event) -> None:
    try:
        while connection.recv_bytes() == STOP:
            stop.set()
    except (EOFError, OSError):
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # the parent is gone


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once: a second signal must not interrupt the release
    raise SystemExit(128 + number)


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301  (made in the line above)
    except Exception:  # noqa: BLE001  (an exception class that cannot be pickled, in whatever way it fails)
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data
