"""Workers of a drain in processes of their own: what runs in the parent."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import ModuleType

from sluicegate.consumer import QueueConsumer
from sluicegate.core import json
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.summary import PartitionSummary
from sluicegate.draining.worker_process import BEGAN, FAILED, REFUSED, REPORT, STOP, main, packed
from sluicegate.draining.workers import MAX_ATTEMPTS, note_progress
from sluicegate.errors import ConfigurationError

__all__ = ["check_processes", "run_processes"]

_LOOK_SECONDS = 0.2  # between looks at the queue's interrupt handler
_GRACE_SECONDS = 10.0  # for a worker to release its chunk
_log = logging.getLogger("sluicegate")


def check_processes(plan: DrainPlan, queue: QueueConsumer) -> str:
    """Return the queue's spec as JSON, for a drain that can run in worker processes.

    Raises:
        ConfigurationError: the queue or the handler cannot be sent to a process, or this process cannot start any.
    """
    current = multiprocessing.current_process()
    if getattr(current, "_inheriting", False):
        raise ConfigurationError(
            "drain was called while a worker process imports the main module; put the call under "
            "`if __name__ == '__main__':`, because every worker process imports that module"
        )
    if current.daemon:
        raise ConfigurationError(
            "a daemonic process cannot start worker processes; use workers=1 or worker_kind='thread'"
        )
    try:
        spec = queue.spec().to_json()
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; or use worker_kind='thread', where the workers share this object") from None
    try:
        pickle.dumps(plan)
    except Exception as error:
        raise ConfigurationError(
            f"process cannot be sent to worker processes ({type(error).__name__}: {error}); define it at the top level "
            "of a module, without a lambda, and let it hold no queue, client or open file, or use worker_kind='thread'"
        ) from error
    return spec


def run_processes(plan: DrainPlan, queue: QueueConsumer, spec: str) -> list[PartitionSummary]:
    """Drain every partition in a process of its own.

    A process that is killed is started again, and takes over the chunk that it held; after four attempts the partition
    is given up as `lost`. When the queue's interrupt handler fires, or a worker fails, the workers finish the current
    chunk. Whatever else interrupts the caller, Ctrl-C among it, makes them release that chunk.
    """
    return _Workers(plan, queue, spec).run()


@dataclass(slots=True)
class _Worker:
    partition: int
    attempt: int
    process: ForkServerProcess
    connection: Connection
    began: bool = False


class _Workers:
    def __init__(self, plan: DrainPlan, queue: QueueConsumer, spec: str) -> None:
        self._plan = plan
        self._queue = queue
        self._spec = spec
        # A server that has imported this package once forks the workers: they start in milliseconds, and not from a
        # process that has threads. It lives as long as this process.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["sluicegate.draining.worker_process"])
        self._running: list[_Worker] = []
        self._reports: list[PartitionSummary] = []
        self._error: BaseException | None = None
        self._told_to_stop = False
        self._needs_main = b"__main__" in pickle.dumps(plan)

    def run(self) -> list[PartitionSummary]:
        try:
            for partition in range(self._plan.partitions):
                self._start(partition, 0)
            while self._running:
                self._step()
        finally:
            self._end_all()
        if self._error is not None:
            raise note_progress(self._error, self._plan, self._reports)
        return self._reports

    def _step(self) -> None:
        """Wait for something to happen, and react."""
        handles: dict[object, _Worker] = {worker.connection: worker for worker in self._running}
        handles.update({worker.process.sentinel: worker for worker in self._running})
        ready = wait(list(handles), timeout=_LOOK_SECONDS)  # type: ignore[arg-type]
        for worker in {id(handles[handle]): handles[handle] for handle in ready}.values():
            self._hear(worker)
        if self._queue.session.activity.stopping() or self._error is not None:
            self._stop_all()

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv_bytes() if worker.connection.poll() else b""
        except (EOFError, OSError):
            message = b""
        kind = next((kind for kind in (BEGAN, REFUSED, REPORT, FAILED) if message.startswith(kind)), b"")
        data = message[len(kind) :]
        if kind == BEGAN:
            worker.began = True
            return
        self._running.remove(worker)
        if kind == REPORT:
            self._reports.append(PartitionSummary.from_dict(json.loads(data)))
        elif kind == FAILED:
            self._error = self._error or pickle.loads(data)  # noqa: S301  (from our own worker process)
        elif kind == REFUSED:
            self._error = self._error or _unloadable(data.decode(errors="replace"))
        self._close(worker)
        if not kind:
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        """Start a worker again that ended without a report; its successor takes over the chunk that it held."""
        code = worker.process.exitcode
        if not worker.began:
            self._error = self._error or ConfigurationError(
                f"a worker process ended with exit code {code} before it began; its own error is on stderr. If it "
                "imported a main module that calls drain, put that call under `if __name__ == '__main__':`"
            )
            return
        attempt = worker.attempt + 1
        plan, partition = self._plan, worker.partition
        _log.warning("drain %r, worker process %d ended with exit code %s", plan.run_id, partition, code)
        if self._told_to_stop:
            self._reports.append(DrainEngine(plan, self._queue, partition, attempt).count_earlier("interrupted"))
        elif attempt < MAX_ATTEMPTS:
            self._start(partition, attempt)
        else:
            self._reports.append(DrainEngine(plan, self._queue, partition, attempt).count_earlier("lost"))

    def _start(self, partition: int, attempt: int) -> None:
        ours, theirs = self._context.Pipe()
        arguments = packed(self._spec, self._plan, partition, attempt)
        process = self._context.Process(target=main, args=(theirs, arguments), name=f"sluicegate-drain-{partition}")
        with _sigint_blocked(), _main_module_hidden(unless=self._needs_main):
            process.start()
        theirs.close()
        self._running.append(_Worker(partition, attempt, process, ours))

    def _stop_all(self) -> None:
        """Let the workers finish the current chunk and end."""
        if self._told_to_stop:
            return
        self._told_to_stop = True
        for worker in self._running:
            with suppress(OSError):
                worker.connection.send_bytes(STOP)

    def _end_all(self) -> None:
        """Let what still runs release the current chunk and end; kill what does not."""
        for worker in self._running:
            worker.process.terminate()
        for worker in self._running:
            self._close(worker)

    def _close(self, worker: _Worker) -> None:
        worker.process.join(_GRACE_SECONDS)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.connection.close()


def _unloadable(error: str) -> ConfigurationError:
    return ConfigurationError(
        f"a worker process cannot import process ({error}); define it at the top level of a module that can be "
        "imported, not in a notebook, a DAG file or on a command line, or use worker_kind='thread'"
    )


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block Ctrl-C for processes that start here, until they can ignore it; they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_module_hidden(*, unless: bool) -> Iterator[None]:
    """Let processes that start here not import this program's main module, which costs time and may fail.

    Only a handler that is defined there needs it.
    """
    main = sys.modules["__main__"]
    if not unless:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
