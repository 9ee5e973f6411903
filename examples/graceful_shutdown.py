"""Handle orders in batches and stop at a signal: handled orders stay acked, the others are released at once.

SIGINT, SIGTERM or SIGHUP ends the worker after the current order; a second signal ends it immediately. Other consumers
can claim released orders at once, and the delivery is not counted. Connects to REDIS_URL, or to redis://localhost:6379/0.

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
            lease.release()  # messages without a verdict; usually none
    clean = queue.shutdown(timeout=10)
    queue.close()
    print("stopped", "with nothing unsettled" if clean else "with unsettled orders", flush=True)


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:2]))
