"""Bytes per message in Redis: pending with its marker, in flight in batches of 1,000, and left after the ack."""

from __future__ import annotations

from sluicegate import RedisMessageQueue
from tests.benchmarks.measure import used_memory
from tests.benchmarks.messages import BATCH, KEY_FIELD, PAYLOAD_BYTES, QUEUE, key_bytes, orders
from tests.benchmarks.report import Bar
from tests.conformance.servers import RedisServer, programs

__all__ = ["bars", "run"]


def run(count: int, *, still_seconds: float) -> dict[str, float]:
    """Fill a fresh server with `count` messages, lease them all, ack them all."""
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client:
            queue = RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
            queue.depth()
            empty = used_memory(client, still_seconds)
            for first in range(0, count, 10 * BATCH):
                queue.publish_many(orders(min(10 * BATCH, count - first), first))
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
        "pending bytes": pending / count,
        "in flight bytes": in_flight / count,
        "in flight / pending": in_flight / pending,
        "left after ack bytes": acked / count,
    }


def bars(sizes: dict[str, dict[str, float]]) -> list[Bar]:
    """The worst size decides: Redis doubles its tables, so bytes per message depend on the count."""
    heaviest = max(sizes.values(), key=lambda size: size["pending bytes"])
    steepest = max(sizes.values(), key=lambda size: size["in flight / pending"])
    what = f"queue {QUEUE!r}, keys of {key_bytes()} bytes, payload {PAYLOAD_BYTES}"
    return [
        Bar("memory in flight / pending", "fast", steepest["in flight / pending"], 1.3, False, "x",
            f"{steepest['messages']:,.0f} messages, {what}"),
        Bar("memory per pending message and marker", "fast", heaviest["pending bytes"], 450, False, "bytes",
            f"{heaviest['messages']:,.0f} messages, {what}"),
    ]  # fmt: skip
