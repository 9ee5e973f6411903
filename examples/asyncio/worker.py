"""Handle events by their type with asyncio, beside the other tasks of a program.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/worker.py
"""

import asyncio
import os

from pydantic import BaseModel

from sluicegate.asyncio import GracefulInterruptHandler, RedisMessageQueue
from sluicegate.asyncio.worker import Worker


class Order(BaseModel):
    """An order; a payload that does not fit is buried with the path to the problem."""

    order_id: int
    cents: int


async def on_created(order: Order) -> None:
    await asyncio.sleep(0.01)
    print(f"created: {order.order_id} for {order.cents / 100:.2f}", flush=True)


def on_archived(order: Order) -> None:
    """Archive an order; a plain function runs in a thread, so that it may block."""
    print("archived:", order.order_id, flush=True)


async def main() -> None:
    queue = RedisMessageQueue(
        "example-orders-by-type",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=GracefulInterruptHandler(),
    )
    worker = Worker(queue, concurrency=50)
    worker.register("order_created", on_created)
    worker.register("order_archived", on_archived)

    async with queue, worker:  # the worker runs in the background
        for number in range(3):
            order = {"order_id": number, "cents": 1999}
            await queue.publish(order, headers={"type": "order_created"})
            await queue.publish(order, headers={"type": "order_archived"})
        await queue.publish({"order_id": "unknown"}, headers={"type": "order_created"})
        while (depth := await queue.depth()).ready or depth.in_flight:
            await asyncio.sleep(0.05)
        for dead in await queue.peek(10, state="dead"):
            print("buried:", dead.error, flush=True)


asyncio.run(main())
