"""What must not grow: the time of a settle with what is in flight, of one reaping step, the bytes of a heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import redis

from benchmarks.measure import counters, evalsha, median, used_memory
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import Lease, RedisMessageQueue
from sluicegate.core import scripts
from tests.support.servers import RedisServer, programs
from tests.support.waiting import wait_until

__all__ = ["steps"]

_SAME = 1.25  # what noise may make of equal costs
_LEASES_OF = 10  # many leases are the harder case: their deadlines are in one sorted set
_ACKS = 300
_BEATS = 50
_HELD = ((10, 1_000), (10_000, 1_000), (100, 1_000_000))


def steps(settings: Settings) -> Iterator[Step]:
    """Each by itself."""
    rounds = settings["limit_rounds"]
    yield "settling", lambda: _found("Settling, by messages in flight", _settles(settings["in_flight"], rounds), _flat)
    yield "reaping", lambda: _found("Reaping", _reaps(settings["expired"], rounds), _short)
    yield "heartbeats", lambda: _found("Heartbeats", _heartbeats(), _small)
    yield "leases of one message", lambda: _found("Leases of one message", _single(settings), _light)


def _found(title: str, figures: Figures, bars: Callable[[Figures], list[Bar]]) -> Found:
    return Found({title: figures}, bars(figures))


def _reaps(expired: int, rounds: int) -> Figures:
    return {f"{expired:,} in leases of {size:,}": _reap(expired, size, rounds) for size in (BATCH, _LEASES_OF)}


def _heartbeats() -> Figures:
    return {f"{count:,} of {size:,} B": _heartbeat(count, size) for count, size in _HELD}


def _single(settings: Settings) -> Figures:
    return {f"{size:,} B": _single_leases(settings["held"], size, settings["still"]) for size in (200, 1_000)}


def _flat(settles: Figures) -> list[Bar]:
    (few, first), *_, (many, last) = settles.items()
    return [
        _bar(f"{name}: Redis time at {many} / {few} in flight", last[column] / first[column], _SAME, "x",
             f"{first[column]:.0f} and {last[column]:.0f} µs in Redis")
        for name, column in (("ack of one", "ack of one, Redis µs"), ("ack of 1,000", "ack of 1,000, Redis µs"))
    ]  # fmt: skip


def _short(reaping: Figures) -> list[Bar]:
    return [
        _bar(f"reaping {label}", row["longest reap ms"], 10, "ms", "longest call, median of rounds")
        for label, row in reaping.items()
    ]


def _small(beats: Figures) -> list[Bar]:
    found = [_bar(f"heartbeat of {label}", row["bytes to Redis"], 300, "bytes", f"queue {QUEUE!r}")
             for label, row in beats.items()]  # fmt: skip
    sent = [row["bytes to Redis"] for row in beats.values()]
    return [*found, _bar("heartbeats: largest - smallest", max(sent) - min(sent), 8, "bytes", "digits in the token")]


def _light(single: Figures) -> list[Bar]:
    held = single["200 B"]
    return [_bar("lease of one message", held["lease bytes"], 700, "bytes", "message of 200 B and its lease")]


def _bar(name: str, measured: float, limit: float, unit: str, detail: str) -> Bar:
    return Bar(name, "fast", measured, limit, False, unit, detail)


@contextmanager
def _server() -> Iterator[redis.Redis]:
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client:
            yield client
    finally:
        server.remove()


def _publish(queue: RedisMessageQueue, count: int, payload: Callable[[int], Any]) -> None:
    for first in range(0, count, BATCH):
        queue.publish_many([payload(number) for number in range(first, min(first + BATCH, count))])


def _settles(flights: Sequence[int], rounds: int) -> Figures:
    """Acks of one-message leases and of whole batches, while so many others are in flight."""
    found: Figures = {}
    for flight in flights:
        with _server() as client, closing(RedisMessageQueue(QUEUE, client=client)) as queue:
            _publish(queue, flight, lambda number: f"message {number:0180}")
            others = [queue.claim(_LEASES_OF, lease_seconds=3600) for _ in range(flight // _LEASES_OF)]
            singles = [_acks(client, queue, _ACKS, 1) for _ in range(rounds)]
            batches = [_acks(client, queue, 5, BATCH) for _ in range(rounds)]
            assert queue.depth().in_flight == sum(map(len, others)) == flight
            found[f"{flight:,}"] = {
                "ack of one, Redis µs": median(figures[0] for figures in singles),
                "ack of one, wall µs": median(figures[1] for figures in singles),
                "ack of 1,000, Redis µs": median(figures[0] for figures in batches),
                "ack of 1,000, wall µs": median(figures[1] for figures in batches),
            }
    return found


def _ran_out(queue: RedisMessageQueue, messages: int) -> bool:
    return queue.depth().expired == messages


def _acks(client: redis.Redis, queue: RedisMessageQueue, leases: int, size: int) -> tuple[float, float]:
    """Microseconds of an ack: in the script, and by the clock."""
    _publish(queue, leases * size, lambda number: f"acked {number:0180}")
    claimed = [queue.claim(size, lease_seconds=3600) for _ in range(leases)]
    client.config_resetstat()
    start = time.perf_counter()
    for lease in claimed:
        lease.ack()
    wall = time.perf_counter() - start
    calls, script_us = evalsha(client)
    assert calls == leases
    return script_us / calls, 1e6 * wall / leases


def _reap(expired: int, size: int, rounds: int) -> dict[str, float]:
    """Let leases expire and claim everything again, to measure the longest call that blocked Redis."""
    longest, claims, calls, seconds = [], [], [], []
    for _ in range(rounds):
        with _server() as client, closing(RedisMessageQueue(QUEUE, client=client)) as queue:
            _publish(queue, expired, lambda number: f"message {number:0180}")
            leases = [queue.claim(size, lease_seconds=3600) for _ in range(expired // size)]
            while leases:  # what nobody refers to is not released at the end
                leases.pop().extend(0.001)
            wait_until(partial(_ran_out, queue, expired), "all leases have run out")
            client.config_set("slowlog-max-len", 100_000)
            client.config_set("slowlog-log-slower-than", 0)
            start = time.perf_counter()
            back = 0
            while back < expired:
                back += len(queue.claim(BATCH, lease_seconds=3600))
            seconds.append(time.perf_counter() - start)
            client.config_set("slowlog-log-slower-than", -1)
            log = client.slowlog_get(100_000)
            took = {name: _durations(log, name) for name in ("reap", "claim")}
            calls.append(len(took["reap"]))
            longest.append(max(took["reap"]))
            claims.append(max(took["claim"]))
    return {
        "longest reap ms": median(longest),
        "worst of all rounds ms": max(longest),
        "longest claim ms": median(claims),
        "reaps": median(calls),
        "s": median(seconds),
    }


def _durations(log: list[dict[str, Any]], name: str) -> list[float]:
    """Milliseconds of each call of a script."""
    sha = scripts.load(name).sha
    return [entry["duration"] / 1000 for entry in log if entry["command"].startswith(b"EVALSHA " + sha)]


def _heartbeat(count: int, size: int) -> dict[str, float]:
    """Return one extension of a lease that holds so many messages of so many bytes."""
    with _server() as client, closing(RedisMessageQueue(QUEUE, client=client)) as queue:
        step = max(1, min(BATCH, 10_000_000 // size))
        for first in range(0, count, step):
            queue.publish_many([f"{number:0{size}}" for number in range(first, min(first + step, count))])
        lease = queue.claim(count, lease_seconds=3600)  # which stops at 8 MiB
        assert len(lease) == count or len(lease) * size > 8_000_000
        lease.extend()
        asking = _beats(client, lease, 0)
        sent = _beats(client, lease, _BEATS)
        return {
            "messages held": len(lease),
            "bytes to Redis": (sent[0] - asking[0]) / _BEATS,
            "bytes from Redis": (sent[1] - asking[1]) / _BEATS,
        }


def _beats(client: redis.Redis, lease: Lease, count: int) -> tuple[int, int]:
    """Bytes to and from the server during so many extensions, and during the asking for them."""
    before = counters(client)
    for _ in range(count):
        lease.extend()
    after = counters(client)
    return after.received - before.received, after.sent - before.sent


def _single_leases(count: int, size: int, still_seconds: float) -> dict[str, float]:
    """Bytes per deduplicated message, waiting and each in a lease of its own."""
    with (
        _server() as client,
        closing(RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)) as queue,
    ):
        queue.depth()
        empty = used_memory(client, still_seconds)
        for first in range(0, count, BATCH):
            queue.publish_many(orders(min(BATCH, count - first), first, payload_bytes=size))
        pending = used_memory(client, still_seconds) - empty
        leases = [queue.claim(lease_seconds=3600) for _ in range(count)]
        in_flight = used_memory(client, still_seconds) - empty
        assert sum(map(len, leases)) == count
        for lease in leases:
            lease.ack()
        markers = used_memory(client, still_seconds) - empty
    return {
        "pending bytes": pending / count,
        "in flight bytes": in_flight / count,
        "in flight / pending": in_flight / pending,
        "marker bytes": markers / count,
        "lease bytes": (in_flight - markers) / count,
    }
