"""Log every event of a queue and count it for Prometheus: one handler, safe labels only.

An event's `error` may hold payloads or passwords, so metrics and logs get only the name of its type.
Connects to REDIS_URL, or to redis://localhost:6379/0. Needs `pip install prometheus-client`.

Usage: python examples/asyncio/observability.py
"""

import asyncio
import logging
import os
from uuid import uuid4

from prometheus_client import REGISTRY, Counter, Histogram, generate_latest

from sluicegate.asyncio import QueueEvent, RedisMessageQueue

log = logging.getLogger("orders")
messages = Counter("queue_messages", "Messages by what happened to them", ["queue", "operation", "outcome", "error"])
seconds = Histogram("queue_call_seconds", "How long the calls take", ["queue", "operation"])


async def on_event(event: QueueEvent) -> None:
    error = event.exception_type or ""
    messages.labels(event.queue, event.operation, event.outcome, error).inc(event.count)
    if event.duration_seconds is not None:
        seconds.labels(event.queue, event.operation).observe(event.duration_seconds)
    log.info("%s %s: %d %s", event.operation, event.outcome, event.count, error)


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    queue = RedisMessageQueue(
        f"example-observed-{uuid4().hex[:6]}",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        get_deduplication_key="order_id",
        message_wait_interval_seconds=0,
        on_error="bury",
        on_event=on_event,
    )
    orders = [{"order_id": "a"}, {"order_id": "b"}, {"order_id": "a"}]
    for order in orders:
        await queue.publish(order)
    async with queue.process_message():
        pass  # leaving the block acks the order
    try:
        async with queue.process_message():
            raise ValueError("an order that nobody can handle")
    except ValueError:
        (dead,) = await queue.peek(1, state="dead")
        log.info("buried: %s for %s", dead.id, dead.error_type)
    await queue.purge("dead")
    await queue.aclose()
    print(generate_latest(REGISTRY).decode())


if __name__ == "__main__":
    asyncio.run(main())
