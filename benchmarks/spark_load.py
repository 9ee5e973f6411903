"""What a drain asks of Redis, and how its time grows with the messages."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import evalsha, median
from benchmarks.messages import orders
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import TASKS, Bench
from sluicegate.spark import drain

__all__ = ["bars", "run"]

CALLS = "Redis calls of a drain"
GROWTH = "A drain by its size"
_PER = 100_000
_LEASES_EACH = 2  # of each task
_LEASE_SECONDS = 3.0  # a beat every second
_SAME = 1.25  # what noise may make of equal costs


def run(
    bench: Bench, *, sizes: tuple[int, ...], lease_sizes: tuple[int, int], held_seconds: float, rounds: int
) -> dict[str, Figures]:
    """Measure the load of both kinds.

    Args:
        bench: session and server.
        sizes: messages to drain, ascending.
        lease_sizes: messages of a lease, small and large.
        held_seconds: how long a slow handler works on each lease.
        rounds: of each size, after one of the smallest to warm up.
    """
    calls: Figures = {}
    for seconds in (0.0, held_seconds):
        for size in lease_sizes:
            handler = f"handler of {seconds:g} s" if seconds else "no-op handler"
            calls[f"leases of {size:,}, {handler}"] = _calls(bench, size, seconds)
    return {CALLS: calls, GROWTH: _growth(bench, sizes, rounds)}


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Calls go by leases and by time, never by messages; seconds go by messages, and no faster."""
    quick_small, quick_large, slow_small, slow_large = figures[CALLS].values()
    *_, (few, before), (many, last) = figures[GROWTH].items()
    per_lease = "as many leases of more messages: {:.0f} and {:.0f} calls"
    return [
        _bar("drain: Redis calls, large / small leases", quick_large["calls"] / quick_small["calls"], 1,
             per_lease.format(quick_large["calls"], quick_small["calls"])),
        _bar("drain: the same while heartbeats go", slow_large["calls"] / slow_small["calls"], _SAME,
             per_lease.format(slow_large["calls"], slow_small["calls"])),
        _bar(f"drain: time per message at {many} / {few}", last["µs/message"] / before["µs/message"], _SAME,
             f"{before['seconds']:.2f} s and {last['seconds']:.2f} s"),
    ]  # fmt: skip


def _bar(name: str, measured: float, limit: float, detail: str) -> Bar:
    return Bar(name, "fast", measured, limit, False, "x", detail)


def _calls(bench: Bench, lease_size: int, held_seconds: float) -> dict[str, float]:
    """Script calls while two tasks drain two leases each, as INFO commandstats counts them."""

    def hold(batch: object) -> None:
        time.sleep(held_seconds)

    queue = bench.queue("calls")
    messages = TASKS * _LEASES_EACH * lease_size
    _publish(bench, "calls", messages)
    bench.client.config_resetstat()
    summary = drain(
        bench.spark, queue, hold, partitions=TASKS, batch_size=lease_size, lease_seconds=_LEASE_SECONDS, progress=False
    )
    calls, _ = evalsha(bench.client)
    queue.close()
    assert summary.acked == messages, f"{summary.acked} of {messages}"
    leases = sum(part.chunks for part in summary.partitions)
    return {"messages": messages, "leases": leases, "calls": calls, f"calls per {_PER:,}": calls * _PER / messages}


def _growth(bench: Bench, sizes: tuple[int, ...], rounds: int) -> Figures:
    """Seconds of a drain that decodes nothing, from the start of its job."""
    queue = bench.queue("growth")
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(rounds + 1):
        for size in sizes if number else sizes[:1]:
            _publish(bench, "growth", size)
            start = time.monotonic()
            summary = drain(bench.spark, queue, lambda batch: None, partitions=TASKS, progress=False)
            if number:
                seconds[size].append(time.monotonic() - start)
            assert summary.acked == size, f"{summary.acked} of {size}"
    queue.close()
    took = {size: median(times) for size, times in seconds.items()}
    return {
        f"{size:,}": {"seconds": took[size], "messages/s": size / took[size], "µs/message": 1e6 * took[size] / size}
        for size in sizes
    }


def _publish(bench: Bench, name: str, count: int) -> None:
    """Orders without deduplication keys, so that Redis forgets the messages as they are acked."""
    queue = bench.queue(name)
    for chunk in queue.publish_chunks(_orders(count), batch_size=1000):
        assert chunk.accepted == len(chunk.ids)
    queue.close()


def _orders(count: int) -> Iterator[object]:
    block = 50_000
    for first in range(0, count, block):
        yield from orders(min(block, count - first), first)
