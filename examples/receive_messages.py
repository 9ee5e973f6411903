"""Handle orders one by one until a signal arrives; the current order is finished first.

Start it in three terminals, and `send_messages` in two. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/receive_messages.py
"""

import json
import os

from sluicegate import GracefulInterruptHandler, RedisMessageQueue


def handle(payload: bytes | str) -> None:
    order = json.loads(payload)
    print(f"handled: {order['order_id']}", flush=True)


def main() -> None:
    interrupt = GracefulInterruptHandler()
    queue = RedisMessageQueue(
        "example-orders",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=interrupt,
        visibility_timeout_seconds=30,
    )
    print("waiting for orders", flush=True)
    while not interrupt.is_interrupted():
        with queue.process_message() as payload:
            if payload is not None:
                handle(payload)
    queue.close()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
