"""Time and CPU of a stretch of work, and what a server says of itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

__all__ = ["Counters", "Sample", "counters", "evalsha", "measured", "median", "used_memory"]

_STILL_WITHIN_SECONDS = 120.0


@dataclass(slots=True)
class Sample:
    """What one stretch of work took, in seconds.

    Attributes:
        wall: by the clock.
        client_cpu: of this process.
        redis_cpu: of the server's main thread.
    """

    wall: float = 0.0
    client_cpu: float = 0.0
    redis_cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Counters:
    """A server's running totals.

    Attributes:
        cpu: seconds of its main thread.
        received: bytes from clients.
        sent: bytes to clients.
    """

    cpu: float
    received: int
    sent: int


def counters(client: redis.Redis) -> Counters:
    """Read the totals; asking costs the server a few microseconds and about a hundred bytes."""
    cpu, stats = client.info("cpu"), client.info("stats")
    seconds = cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]
    return Counters(seconds, stats["total_net_input_bytes"], stats["total_net_output_bytes"])


@contextmanager
def measured(client: redis.Redis) -> Iterator[Sample]:
    """Fill a sample with what the block takes."""
    sample = Sample()
    redis_cpu, client_cpu, start = counters(client).cpu, time.process_time(), time.perf_counter()
    yield sample
    sample.wall = time.perf_counter() - start
    sample.client_cpu = time.process_time() - client_cpu
    sample.redis_cpu = counters(client).cpu - redis_cpu


def evalsha(client: redis.Redis) -> tuple[int, float]:
    """Script calls since the last CONFIG RESETSTAT, and the microseconds that the server spent in them."""
    stats = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    return stats["calls"], stats["usec"]


def used_memory(client: redis.Redis, still_seconds: float) -> int:
    """Bytes that the server uses once it has stood still for so long: a table that doubled moves in the meantime."""
    before, same = -1, 0
    deadline = time.monotonic() + _STILL_WITHIN_SECONDS
    while same < 10:
        assert time.monotonic() < deadline, f"its memory moves for {_STILL_WITHIN_SECONDS:g} s"
        time.sleep(still_seconds / 10)
        now: int = client.info("memory")["used_memory"]
        same = same + 1 if now == before else 0
        before = now
    return before


def median(values: Iterable[float]) -> float:
    return statistics.median(values)
