"""Show what a publish does when consumers fall behind: refuse, wait, or drop the oldest messages.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/backpressure.py
"""

import asyncio
import os
from uuid import uuid4

from sluicegate.asyncio import QueueBackpressureError, QueueEvent, RedisMessageQueue

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
NAME = f"example-full-{uuid4().hex[:6]}"


async def refuse() -> None:
    """Refuse, the default: the publish raises at once and does not change the queue."""
    queue = RedisMessageQueue(NAME, url=URL, max_pending_length=2)
    await queue.publish_many(["first", "second"])
    try:
        await queue.publish("third")
    except QueueBackpressureError as full:
        print("refused:", full)
    report = await queue.publish_many(["third", "fourth"], partial=True)
    print("partial batch:", report.accepted, "accepted,", report.refused, "refused")
    await queue.aclose()


async def wait() -> None:
    """Wait until a consumer has made room, or until the timeout."""
    queue = RedisMessageQueue(
        NAME,
        url=URL,
        max_pending_length=2,
        pending_overload_policy="block",
        pending_overload_block_timeout_seconds=10,
    )

    async def consume() -> None:
        await asyncio.sleep(0.3)
        async with queue.process_message() as payload:
            print("consumed:", payload)

    consumer = asyncio.create_task(consume())
    await queue.publish("third")
    print("published: third, after a wait")
    await consumer
    await queue.aclose()


async def drop_oldest() -> None:
    """Drop the oldest messages, for data that loses its value with age; no deduplication and no delivery cap."""

    def tell(event: QueueEvent) -> None:
        print("event:", event.operation, event.outcome, event.count)

    queue = RedisMessageQueue(
        NAME,
        url=URL,
        max_pending_length=2,
        pending_overload_policy="drop_oldest",
        max_delivery_count=None,
        on_event=tell,
    )
    await queue.publish("fourth")
    print("left:", [message.text() for message in await queue.peek(10)])
    await queue.purge("pending")
    await queue.aclose()


async def main() -> None:
    await refuse()
    await wait()
    await drop_oldest()


if __name__ == "__main__":
    asyncio.run(main())
