"""What a producer does when its consumers fall behind: refuse, wait, or drop the oldest.

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
    """The default: an error at once; the queue is left as it is."""
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
    """A publish that waits until a consumer has made room, or until its time is up."""
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
    """For data that is worthless once it is old. It excludes deduplication and a cap on deliveries."""

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
