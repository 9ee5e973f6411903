"""Handle orders, several at a time, until a signal arrives; the current orders are finished first.

Start it in three terminals, and `send_messages` in two. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/receive_messages.py
"""

import asyncio
import json
import os

from sluicegate.asyncio import GracefulInterruptHandler, RedisMessageQueue

TASKS = 4


async def handle(payload: bytes | str) -> None:
    order = json.loads(payload)
    print(f"handled: {order['order_id']}", flush=True)


async def consume(queue: RedisMessageQueue, interrupt: GracefulInterruptHandler) -> None:
    while not interrupt.is_interrupted():
        async with queue.process_message() as payload:
            if payload is not None:
                await handle(payload)


async def main() -> None:
    interrupt = GracefulInterruptHandler()
    queue = RedisMessageQueue(
        "example-orders",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=interrupt,
        visibility_timeout_seconds=30,
    )
    print("waiting for orders", flush=True)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(TASKS):
            tasks.create_task(consume(queue, interrupt))
    await queue.aclose()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
