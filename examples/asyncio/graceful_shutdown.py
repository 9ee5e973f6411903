"""A worker that takes orders in batches and stops at a signal: what is done stays done, the rest goes back at once.

SIGINT, SIGTERM or SIGHUP ends it after the order in hand; a second signal ends it the hard way. Released orders are
claimable by others immediately and do not count as delivered. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/graceful_shutdown.py [SECONDS_PER_ORDER]
"""

import asyncio
import os
import sys

from sluicegate.asyncio import GracefulInterruptHandler, RedisMessageQueue


async def main(seconds_per_order: float = 0.1) -> None:
    interrupt = GracefulInterruptHandler()
    queue = RedisMessageQueue(
        "example-batches",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=interrupt,
    )
    print("waiting for orders", flush=True)
    while not interrupt.is_interrupted():
        async with await queue.claim(100, wait_seconds=5) as lease:
            done = []
            for message in lease:
                if interrupt.is_interrupted():
                    break
                await asyncio.sleep(seconds_per_order)
                print("handled:", message.text(), flush=True)
                done.append(message)
            await lease.ack(done)
            await lease.release()  # whatever has no verdict yet; nothing, as a rule
    clean = await queue.shutdown(timeout=10)
    await queue.aclose()
    print("stopped", "with nothing in hand" if clean else "with work in hand", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*(float(argument) for argument in sys.argv[1:2])))
