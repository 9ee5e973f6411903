"""Publish an order every half second until a signal arrives; send every third twice, as a producer that retries would.

Start it in two terminals, and `receive_messages` in three. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/send_messages.py [HOW_MANY] [SECONDS_BETWEEN]
"""

import asyncio
import os
import sys
from uuid import uuid4

from sluicegate.asyncio import GracefulInterruptHandler, RedisMessageQueue


async def main(how_many: int = sys.maxsize, seconds_between: float = 0.5) -> None:
    interrupt = GracefulInterruptHandler()
    queue = RedisMessageQueue(
        "example-orders",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        get_deduplication_key="order_id",
    )
    producer = uuid4().hex[:6]
    for number in range(how_many):
        if interrupt.is_interrupted():
            break
        order = {"order_id": f"{producer}-{number}", "amount": number % 100 + 0.5}
        for _ in range(2 if number % 3 == 2 else 1):
            fresh = await queue.publish(order, headers={"producer": producer})
            print(f"{'published' if fresh else 'refused as a duplicate'}: {order['order_id']}", flush=True)
        await asyncio.sleep(seconds_between)
    await queue.aclose()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*(int(argument) for argument in sys.argv[1:2]), *(float(argument) for argument in sys.argv[2:3])))
