"""What a producer does when its consumers fall behind: refuse, wait, or drop the oldest.

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
    """The default: an error at once; the queue is left as it is."""
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
    """A publish that waits until a consumer has made room, or until its time is up."""
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
    """For data that is worthless once it is old. It excludes deduplication and a cap on deliveries."""
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
