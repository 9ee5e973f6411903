"""Bytes per message in Redis: pending with its marker, in flight in batches of 1,000, and left after the ack."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import used_memory
from benchmarks.messages import BATCH, KEY_FIELD, PAYLOAD_BYTES, QUEUE, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]


def steps(settings: Settings) -> Iterator[Step]:
    """Yield all sizes at once, since the worst of them decides."""

    def measure() -> Found:
        sizes = {
            f"{count:,} with keys of {key_bytes}": run(count, key_bytes, still_seconds=settings["still"])
            for count in settings["memory"]
            for key_bytes in settings["keys"]
        }
        return Found({"Memory": sizes}, bars(list(sizes.values())))

    yield "memory", measure


def run(count: int, key_bytes: int, *, still_seconds: float) -> dict[str, float]:
    """Fill a fresh server with `count` messages, lease them all, ack them all."""
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client:
            queue = RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
            queue.depth()
            empty = used_memory(client, still_seconds)
            for first in range(0, count, 10 * BATCH):
                queue.publish_many(orders(min(10 * BATCH, count - first), first, key_bytes=key_bytes))
            pending = used_memory(client, still_seconds) - empty
            leases = [queue.claim(BATCH) for _ in range(-(-count // BATCH))]
            assert sum(len(lease) for lease in leases) == count
            in_flight = used_memory(client, still_seconds) - empty
            for lease in leases:
                lease.ack()
            acked = used_memory(client, still_seconds) - empty
            queue.close()
    finally:
        server.remove()
    return {
        "messages": count,
        "key bytes": key_bytes,
        "pending bytes": pending / count,
        "in flight bytes": in_flight / count,
        "in flight / pending": in_flight / pending,
        "left after ack bytes": acked / count,
    }


def bars(sizes: list[dict[str, float]]) -> list[Bar]:
    """Return the worst of the sizes: Redis doubles tables and rounds allocations, so count and key length matter."""
    heaviest = max(sizes, key=lambda size: size["pending bytes"])
    steepest = max(sizes, key=lambda size: size["in flight / pending"])
    return [
        Bar("memory in flight / pending", "fast", steepest["in flight / pending"], 1.3, False, "x", _how(steepest)),
        Bar("memory per pending message and marker", "fast", heaviest["pending bytes"], 390, False, "bytes",
            _how(heaviest)),
    ]  # fmt: skip


def _how(size: dict[str, float]) -> str:
    keys = f"keys of {size['key bytes']:.0f} bytes"
    return f"{size['messages']:,.0f} messages, payload {PAYLOAD_BYTES}, {keys}, queue {QUEUE!r}"
