"""`depth()` and one heartbeat: the same cost at any size, one round trip, few bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import redis

from benchmarks.measure import counters, evalsha, median
from benchmarks.messages import BATCH, QUEUE
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

_CALLS = 300
_SAME = 1.25  # what noise may make of equal costs
_MAX_BYTES = 300


@dataclass(slots=True)
class _Side:
    """A server with so many messages, and the calls to measure on it."""

    server: RedisServer
    client: redis.Redis
    calls: dict[str, Callable[[], object]]
    script_us: dict[str, list[float]] = field(default_factory=dict)
    wall_us: dict[str, list[float]] = field(default_factory=dict)


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(tuple(settings["sizes"]), rounds=settings["rounds"])
        return Found({"Depth and heartbeat": figures}, bars(figures))

    yield "depth and heartbeat", measure


def run(sizes: tuple[int, int], *, rounds: int) -> Figures:
    """Measure both calls on both sizes in turn."""
    with ExitStack() as stack:
        sides = {size: _side(stack, size) for size in sizes}
        for _ in range(rounds):
            for side in sides.values():
                for name in side.calls:
                    _measure(side, name)
        return {
            f"{name} at {size:,}": {
                "Redis µs/call": median(side.script_us[name]),
                "wall µs/call": median(side.wall_us[name]),
                **_traffic(side, side.calls[name]),
            }
            for size, side in sides.items()
            for name in side.calls
        }


def bars(figures: Figures) -> list[Bar]:
    """Return the larger size against the smaller, and the traffic of one call."""
    found = []
    for name in ("depth", "heartbeat"):
        small, large = (figure for label, figure in figures.items() if label.startswith(name))
        sizes = " and ".join(label.removeprefix(f"{name} at ") for label in figures if label.startswith(name))
        how = f"{small['Redis µs/call']:.0f} and {large['Redis µs/call']:.0f} µs in Redis at {sizes} messages"
        found += [
            Bar(f"{name}: Redis time, large / small", "fast", large["Redis µs/call"] / small["Redis µs/call"], _SAME,
                False, "x", how),
            Bar(f"{name}: round trips", "fast", large["round trips"], 1, False, "calls", "counted by MONITOR"),
            Bar(f"{name}: sent", "fast", large["bytes to Redis"], _MAX_BYTES, False, "bytes", f"queue {QUEUE!r}"),
        ]  # fmt: skip
    return found


def _side(stack: ExitStack, size: int) -> _Side:
    """Half of the messages pending, half in flight in batches of 1,000."""
    server = RedisServer(programs()[0]).start()
    stack.callback(server.remove)
    client = stack.enter_context(server.client())
    queue = RedisMessageQueue(QUEUE, client=client)
    stack.callback(queue.close)
    for first in range(0, size, BATCH):
        queue.publish_many([f"message {number}" for number in range(first, min(first + BATCH, size))])
    half = size // 2
    leases = [queue.claim(min(BATCH, half), lease_seconds=3600) for _ in range(0, half, BATCH)]
    depth = queue.depth()
    assert (depth.pending, depth.in_flight) == (size - half, half)
    return _Side(server, client, {"depth": queue.depth, "heartbeat": leases[0].extend})


def _measure(side: _Side, name: str) -> None:
    call = side.calls[name]
    side.client.config_resetstat()
    start = time.perf_counter()
    for _ in range(_CALLS):
        call()
    wall = time.perf_counter() - start
    calls, script_us = evalsha(side.client)
    assert calls == _CALLS
    side.wall_us.setdefault(name, []).append(1e6 * wall / _CALLS)
    side.script_us.setdefault(name, []).append(script_us / _CALLS)


def _traffic(side: _Side, call: Callable[[], object]) -> dict[str, float]:
    """Return what one call sends and is sent."""
    first, second = counters(side.client), counters(side.client)
    call()
    third = counters(side.client)
    return {
        "round trips": _round_trips(side, call),
        "bytes to Redis": third.received - second.received - (second.received - first.received),
        "bytes from Redis": third.sent - second.sent - (second.sent - first.sent),
    }


def _round_trips(side: _Side, call: Callable[[], object]) -> int:
    """Commands that clients send during one call, as MONITOR sees them; what scripts call is marked there."""
    sent = 0
    with side.server.client() as watching, watching.monitor() as monitor:
        call()
        side.client.echo("end of the call")
        while not (command := monitor.next_command())["command"].startswith("ECHO"):
            sent += command["client_type"] != "lua"
    return sent
