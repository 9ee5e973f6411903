"""A worker process on a group of a stream, which tests kill: each handler appends the number of its message to a file.

Usage: python -m tests.worker.handling_process URL FILE FLAVOUR
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import tenacity

from sluicegate.worker import Delivery, Reject, Retry

CONCURRENCY = 4
LEASE_SECONDS = 0.4
OPTIONS: dict[str, Any] = {"visibility_timeout_seconds": LEASE_SECONDS, "max_delivery_count": 100}
WORKER: dict[str, Any] = {"concurrency": CONCURRENCY, "retry": Retry(backoff=tenacity.wait_none())}


def handle(order: dict[str, Any], delivery: Delivery, file: int) -> bool:
    """Note the message; every tenth fails at its first attempt, and every tenth after that is rejected."""
    number = order["n"]
    os.write(file, f"{number} {delivery.attempt}\n".encode())
    time.sleep(0.002)
    if number % 10 == 4:
        raise Reject(f"number {number}")
    return number % 10 != 3 or delivery.attempt > 1


def in_threads(url: str, file: int) -> None:
    from sluicegate.streams import ConsumerGroup
    from sluicegate.worker import Worker

    worker = Worker(ConsumerGroup("orders", "billing", url=url, **OPTIONS), **WORKER)

    def on_created(order: dict[str, Any], delivery: Delivery) -> bool:
        return handle(order, delivery, file)

    worker.register("created", on_created)
    worker.run()


async def in_asyncio(url: str, file: int) -> None:
    from sluicegate.asyncio.streams import ConsumerGroup
    from sluicegate.asyncio.worker import Worker

    worker = Worker(ConsumerGroup("orders", "billing", url=url, **OPTIONS), **WORKER)

    async def on_created(order: dict[str, Any], delivery: Delivery) -> bool:
        return await asyncio.to_thread(handle, order, delivery, file)

    worker.register("created", on_created)
    await worker.run()


if __name__ == "__main__":
    at, path, flavour = sys.argv[1:]
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if flavour == "asyncio":
        asyncio.run(in_asyncio(at, notes))
    else:
        in_threads(at, notes)
