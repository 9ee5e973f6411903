"""What each transition costs the server and the wire, per message, in batches of 1,000."""

from __future__ import annotations

from collections.abc import Callable

import redis

from benchmarks.measure import counters, evalsha
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, orders
from sluicegate import Lease, RedisMessageQueue

__all__ = ["run"]


def run(client: redis.Redis, *, count: int) -> dict[str, dict[str, float]]:
    """Publish, publish again (all duplicates), claim and ack `count` messages; each step by itself."""
    client.flushall()
    queue = RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
    messages = orders(count)
    queue.publish_many(messages[:1])  # loads the script
    with queue.claim(BATCH):
        pass
    client.flushall()
    figures = {
        "publish": _cost(client, count, lambda: queue.publish_many(messages)),
        "publish, all duplicates": _cost(client, count, lambda: queue.publish_many(messages)),
    }
    leases: list[Lease] = []
    claim = lambda: leases.extend(queue.claim(BATCH) for _ in range(-(-count // BATCH)))  # noqa: E731
    figures["claim"] = _cost(client, count, claim)
    assert sum(len(lease) for lease in leases) == count

    def ack() -> None:
        for lease in leases:
            lease.ack()

    figures["ack"] = _cost(client, count, ack)
    queue.close()
    return figures


def _cost(client: redis.Redis, count: int, work: Callable[[], object]) -> dict[str, float]:
    client.config_resetstat()
    idle = _asking(client)
    before = counters(client)
    work()
    after = counters(client)
    calls, script_us = evalsha(client)
    return {
        "Redis CPU µs": 1e6 * (after.cpu - before.cpu) / count,
        "script µs": script_us / count,
        "script ms/call": script_us / calls / 1000,
        "bytes to Redis": (after.received - before.received - idle[0]) / count,
        "bytes from Redis": (after.sent - before.sent - idle[1]) / count,
    }


def _asking(client: redis.Redis) -> tuple[int, int]:
    """Bytes that reading the counters takes by itself."""
    first, second = counters(client), counters(client)
    return second.received - first.received, second.sent - first.sent
