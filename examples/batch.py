"""Publish a batch, drain it with two consumers, and wait until all of it has ended.

Starts a Redis server in `build/batch` by itself.

Usage: python examples/batch.py
"""

import threading
from pathlib import Path

from sluicegate import RedisMessageQueue

URL = f"embedded://{Path('build/batch').absolute()}"
BATCH_ID = "orders 2026-11-29"


def consume() -> None:
    with RedisMessageQueue("orders", url=URL) as queue:
        while lease := queue.claim(400):
            with lease:
                for message in lease:
                    if message.json()["order_id"] == 13:
                        lease.bury(message, error="no tea in stock")


def main() -> None:
    with RedisMessageQueue("orders", url=URL) as queue:
        batch = queue.batch(({"order_id": number} for number in range(1500)), batch_id=BATCH_ID)
        again = queue.batch(({"order_id": number} for number in range(1500)), batch_id=BATCH_ID)
        assert again.report == batch.report  # a retry of the publish rejoins its batch

        consumers = [threading.Thread(target=consume) for _ in range(2)]
        for consumer in consumers:
            consumer.start()
        status = queue.get_batch(BATCH_ID).wait(timeout_seconds=60)
        print(f"{status.done} of {status.total} done, {status.dead} dead, complete: {status.is_complete}")
        for consumer in consumers:
            consumer.join()

        queue.redrive()
        print(f"complete after a redrive: {batch.status().is_complete}")
        queue.claim(1).ack()
        print(f"{batch.status().done} done, complete: {batch.status().is_complete}")


if __name__ == "__main__":
    main()
