"""A worker that takes orders in batches and stops at a signal: what is done stays done, the rest goes back at once.

SIGINT, SIGTERM or SIGHUP ends it after the order in hand; a second signal ends it the hard way. Released orders are
claimable by others immediately and do not count as delivered. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/graceful_shutdown.py [SECONDS_PER_ORDER]
"""

import os
import sys
import time

from sluicegate import GracefulInterruptHandler, RedisMessageQueue


def main(seconds_per_order: float = 0.1) -> None:
    interrupt = GracefulInterruptHandler()
    queue = RedisMessageQueue(
        "example-batches",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=interrupt,
    )
    print("waiting for orders", flush=True)
    while not interrupt.is_interrupted():
        with queue.claim(100, wait_seconds=5) as lease:
            done = []
            for message in lease:
                if interrupt.is_interrupted():
                    break
                time.sleep(seconds_per_order)
                print("handled:", message.text(), flush=True)
                done.append(message)
            lease.ack(done)
            lease.release()  # whatever has no verdict yet; nothing, as a rule
    clean = queue.shutdown(timeout=10)
    queue.close()
    print("stopped", "with nothing in hand" if clean else "with work in hand", flush=True)


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:2]))
