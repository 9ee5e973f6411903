"""Show what a publish does when consumers fall behind: refuse, wait, or drop the oldest messages.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/backpressure.py
"""

import os
import threading
from uuid import uuid4

from sluicegate import QueueBackpressureError, RedisMessageQueue

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
NAME = f"example-full-{uuid4().hex[:6]}"


def refuse() -> None:
    """Refuse, the default: the publish raises at once and does not change the queue."""
    queue = RedisMessageQueue(NAME, url=URL, max_pending_length=2)
    queue.publish_many(["first", "second"])
    try:
        queue.publish("third")
    except QueueBackpressureError as full:
        print("refused:", full)
    report = queue.publish_many(["third", "fourth"], partial=True)
    print("partial batch:", report.accepted, "accepted,", report.refused, "refused")
    queue.close()


def wait() -> None:
    """Wait until a consumer has made room, or until the timeout."""
    queue = RedisMessageQueue(
        NAME,
        url=URL,
        max_pending_length=2,
        pending_overload_policy="block",
        pending_overload_block_timeout_seconds=10,
    )

    def consume() -> None:
        with queue.process_message() as payload:
            print("consumed:", payload)

    consumer = threading.Timer(0.3, consume)
    consumer.start()
    queue.publish("third")
    print("published: third, after a wait")
    consumer.join()
    queue.close()


def drop_oldest() -> None:
    """Drop the oldest messages, for data that loses its value with age; no deduplication and no delivery cap."""
    queue = RedisMessageQueue(
        NAME,
        url=URL,
        max_pending_length=2,
        pending_overload_policy="drop_oldest",
        max_delivery_count=None,
        on_event=lambda event: print("event:", event.operation, event.outcome, event.count),
    )
    queue.publish("fourth")
    print("left:", [message.text() for message in queue.peek(10)])
    queue.purge("pending")
    queue.close()


if __name__ == "__main__":
    refuse()
    wait()
    drop_oldest()
