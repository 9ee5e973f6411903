"""A pool of workers over a queue of jobs, whose size, speed and mistakes can be changed while it works."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from dataclasses import dataclass, fields, replace

from tenacity import wait_fixed

from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.jobs import ClaimedJob, JobKind, JobLease, RedisJobQueue

__all__ = ["KINDS", "LEASE_SECONDS", "NAME", "DemoPool", "DemoSettings", "open_jobs"]

NAME = "demo"
LEASE_SECONDS = 5.0
KINDS = {
    "email": ("looking up the address", "450 mailbox unavailable, try again later"),
    "webhook": ("calling https://example.org/hook", "the endpoint answered 503"),
    "thumbnail": ("scaling the image", "image.png is truncated"),
    "invoice": ("rendering the PDF", "no price for article A-17"),
}
"""The kinds of jobs: what a worker notes while it works on one, and what it fails with."""

_STEPS = 8
_WAIT_SECONDS = 0.5
_PAUSE_AFTER_ERROR_SECONDS = 1.0
_MOST_REMEMBERED = 2000
_LIMITS = {"workers": (0, 16), "latency_ms": (50, 5000), "fail_percent": (0, 100), "hang_percent": (0, 100)}


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the controls of the demo set.

    Attributes:
        workers: threads that claim jobs, 0 to 16.
        latency_ms: how long the work on a job takes, 50 to 5000.
        fail_percent: how many attempts of a hundred fail.
        hang_percent: how many of a hundred hang: their worker goes silent, as one that was killed.

    Raises:
        ConfigurationError: a value outside its bounds.
    """

    workers: int = 4
    latency_ms: int = 800
    fail_percent: int = 10
    hang_percent: int = 5

    def __post_init__(self) -> None:
        for each in fields(self):
            lowest, highest = _LIMITS[each.name]
            value = getattr(self, each.name)
            if not lowest <= value <= highest:
                raise ConfigurationError(f"{each.name} must be from {lowest} to {highest}, not {value}")


def open_jobs(
    gateway: RedisGateway, worker: str | None = None, *, lease_seconds: float = LEASE_SECONDS
) -> RedisJobQueue:
    """Make the demo's queue of jobs: three attempts, a second apart, and five seconds of silence."""
    kind = JobKind(max_attempts=3, visibility_timeout_seconds=lease_seconds, retry_backoff=wait_fixed(1))
    return RedisJobQueue(NAME, gateway=gateway, default_kind=kind, worker=worker, max_ended=1000)


class DemoPool:
    """Works on the demo's jobs in as many threads as its settings say.

    Args:
        gateway: of the demo's Redis.
        settings: to begin with.
        lease_seconds: how long a worker may be silent before another one gets its job.
    """

    def __init__(self, gateway: RedisGateway, settings: DemoSettings, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._gateway = gateway
        self._lease_seconds = lease_seconds
        self._settings = settings
        self._workers: list[_DemoWorker] = []
        self._lock = threading.Lock()
        self._hung: OrderedDict[str, int] = OrderedDict()

    @property
    def settings(self) -> DemoSettings:
        """Return the settings in force."""
        return self._settings

    def change(self, **changes: int) -> DemoSettings:
        """Change settings, and with them the number of threads; those that are too many end after their job.

        Raises:
            ConfigurationError: a value outside its bounds; nothing was changed.
        """
        with self._lock:
            self._settings = replace(self._settings, **changes)
            while len(self._workers) > self._settings.workers:
                self._workers.pop().stop()
            while len(self._workers) < self._settings.workers:
                self._workers.append(_DemoWorker(self, f"worker-{len(self._workers) + 1}"))
            return self._settings

    def stop(self) -> None:
        """End all threads, and wait until they have released their jobs."""
        with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()

    def open(self, worker: str) -> RedisJobQueue:
        """Make the queue object of one worker."""
        return open_jobs(self._gateway, worker, lease_seconds=self._lease_seconds)

    def doing(self) -> list[tuple[str, str]]:
        """Return the workers by name, each `idle` or `working`."""
        with self._lock:
            return [(worker.name, worker.doing) for worker in self._workers]

    def has_hung(self, job_id: str, attempts: int) -> None:
        """Note that the worker of an attempt hangs."""
        with self._lock:
            self._hung[job_id] = attempts
            while len(self._hung) > _MOST_REMEMBERED:
                self._hung.popitem(last=False)

    def hung_attempt(self, job_id: str) -> int | None:
        """Return the attempt in which the worker of a job hung; None if none did."""
        with self._lock:
            return self._hung.get(job_id)


class _DemoWorker:
    """One thread that claims a job at a time, works on it, and completes it, fails it or hangs."""

    def __init__(self, pool: DemoPool, name: str) -> None:
        self.name = name
        self.doing = "idle"
        self._pool = pool
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sluicegate-demo-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        queue = self._pool.open(self.name)
        while not self._stopped.is_set():
            try:
                self.run_once(queue)
            except RedisMessageQueueError:  # Redis is away, or another worker has the job; the page shows both
                self._stopped.wait(_PAUSE_AFTER_ERROR_SECONDS)
            finally:
                self.doing = "idle"

    def run_once(self, queue: RedisJobQueue) -> None:
        """Claim one job, waiting for it briefly, and work on it."""
        lease = queue.claim_jobs(wait_seconds=_WAIT_SECONDS)
        if not lease:
            return
        settings, job = self._pool.settings, lease.jobs[0]
        self.doing = "working"
        draw = random.uniform(0, 100)
        if draw < settings.hang_percent:
            # Outside a `with` block nothing extends the lease or settles it: so a killed process leaves it behind.
            self._pool.has_hung(job.id, job.attempts)
            self._work(job, settings.latency_ms / 1000, steps=_STEPS // 2)
            return
        self._finish(lease, job, settings, fails=draw < settings.hang_percent + settings.fail_percent)

    def _finish(self, lease: JobLease, job: ClaimedJob, settings: DemoSettings, *, fails: bool) -> None:
        with lease:
            if not self._work(job, settings.latency_ms / 1000):
                job.release()
            elif fails:
                job.fail(RuntimeError(KINDS.get(job.kind, ("", "it failed"))[1]))
            else:
                job.complete({"by": self.name})

    def _work(self, job: ClaimedJob, seconds: float, steps: int = _STEPS) -> bool:
        """Pretend to work, and store the progress; return False if the pool was stopped meanwhile."""
        note = KINDS.get(job.kind, ("working", ""))[0]
        for step in range(steps):
            job.update(step / _STEPS, note)
            if self._stopped.wait(seconds / _STEPS):
                return False
        return True
