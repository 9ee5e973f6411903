"""Watch the depth of the queue, its counters, and the files of its leases, without changing anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq
import redis

from example_dags.demo.paths import Paths
from sluicegate import embedded
from sluicegate.errors import RedisMessageQueueError

__all__ = ["LeaseFile", "Sample", "Watcher", "read_lease_file"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Holds the state of the queue at one moment.

    Attributes:
        at: seconds since the epoch.
        ready: messages that a claim would get.
        in_flight: messages in leases that are alive; those of expired leases are ready.
        leases: open leases.
        published, refused, claimed, acked: totals since the queue was made.
        taken_over: leases that a retry took over from a dead worker.
        dead: dead letters.
    """

    at: float
    ready: int = 0
    in_flight: int = 0
    leases: int = 0
    published: int = 0
    refused: int = 0
    claimed: int = 0
    acked: int = 0
    taken_over: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """Describes the file of one lease, from the file's own metadata.

    Attributes:
        path: the file, named by the lease's key.
        partition: the partition of the drain.
        chunk: the number of the lease within the partition.
        lease_id: the id of the lease.
        pid: the process id of the Spark worker that wrote it.
        rows: the number of messages in it.
        started, finished: when the worker got the batch and when it wrote the file, in seconds since the epoch.
        deliveries: 1, or more if an earlier worker died.
    """

    path: Path
    partition: int
    chunk: int
    lease_id: str
    pid: int
    rows: int
    started: float
    finished: float
    deliveries: int


def read_lease_file(path: Path) -> LeaseFile:
    """Read the footer of one file."""
    footer = pq.read_metadata(path)
    told = {name.decode(): value.decode() for name, value in footer.metadata.items() if not name.startswith(b"ARROW:")}
    return LeaseFile(
        path=path,
        partition=int(told["partition"]),
        chunk=int(told["chunk"]),
        lease_id=told["lease_id"],
        pid=int(told["pid"]),
        rows=footer.num_rows,
        started=(started := float(told["started"])),
        finished=max(started, path.stat().st_mtime),  # the clock of files is a few ms behind
        deliveries=int(told["deliveries"]),
    )


class Watcher:
    """Takes a sample of the queue and of the files every `interval_seconds`.

    Attributes:
        samples: in order.
        files: the files of leases by path, as last seen.
        totals: the queue's totals, by the names of `QueueStats`.
        failure: why it stopped watching, None while it watches.
    """

    def __init__(self, paths: Paths, *, interval_seconds: float = 0.1, clock: Callable[[], float] = time.time) -> None:
        self._paths = paths
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._queue = paths.queue()
        self._redis: redis.Redis = embedded.connect(paths.url, decode_responses=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="demo-watcher", daemon=True)
        self._versions: dict[Path, int] = {}
        self.samples: list[Sample] = []
        self.files: dict[Path, LeaseFile] = {}
        self.totals: dict[str, int] = {}
        self.failure: Exception | None = None

    def run_once(self) -> Sample:
        """Take one sample."""
        at = self._clock()
        depth = self._queue.depth()
        stats = self._queue.stats()
        self.totals = asdict(stats)
        sample = Sample(
            at=at,
            ready=depth.ready,
            in_flight=depth.in_flight - depth.expired,
            leases=depth.leases,
            published=depth.published_total,
            claimed=depth.claimed_total,
            dead=depth.dead,
            refused=stats.duplicates,
            acked=stats.acked,
            taken_over=stats.taken_over,
        )
        self.samples.append(sample)
        self._look_at_files()
        return sample

    def version(self) -> str:
        """Return the version of the Redis server."""
        return str(dict(self._redis.info("server"))["redis_version"])

    def drained(self) -> dict[int, int]:
        """Count the messages written, per partition."""
        rows: dict[int, int] = {}
        for file in list(self.files.values()):
            rows[file.partition] = rows.get(file.partition, 0) + file.rows
        return rows

    def start(self) -> None:
        """Take samples in the background; the embedded server starts at the first sample."""
        self.run_once()
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and close the connections; a second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._try()
        self._queue.close()
        self._redis.close()

    def _loop(self) -> None:
        while self.failure is None and not self._stop.wait(self._interval_seconds):
            self._try()

    def _try(self) -> None:
        try:
            self.run_once()
        except (RedisMessageQueueError, redis.RedisError, OSError, ValueError) as error:
            self.failure = error

    def _look_at_files(self) -> None:
        # A file whose name begins with a dot is still being written.
        for path in self._paths.flights.glob("partition=*/[!.]*.parquet"):
            written = path.stat().st_mtime_ns
            if self._versions.get(path) != written:
                self.files[path] = read_lease_file(path)
                self._versions[path] = written
