"""Handle events by their type with four threads, until a signal arrives; handlers that run are finished first.

A payment that fails is retried three times, one that makes no sense is buried at once. Connects to REDIS_URL, or to
redis://localhost:6379/0.

Usage: python examples/worker.py [NUMBER_OF_ORDERS_TO_PUBLISH_FIRST]
"""

import logging
import os
import sys
from typing import Any

import tenacity

from sluicegate import GracefulInterruptHandler, RedisMessageQueue
from sluicegate.worker import Delivery, Middleware, Reject, Retry, Worker

log = logging.getLogger("example")
queue = RedisMessageQueue(
    "example-events",
    url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
    interrupt=GracefulInterruptHandler(),
)
worker = Worker(queue, concurrency=4, stop_timeout_seconds=20)


@worker.handler("order_created")
def on_created(order: dict[str, Any]) -> None:
    log.info("created: %s", order["order_id"])


@worker.handler("order_paid", retry=Retry(max_attempts=3, backoff=tenacity.wait_fixed(0.2)))
def on_paid(payment: dict[str, Any], delivery: Delivery) -> bool:
    if payment["cents"] < 0:
        raise Reject("negative amount")
    paid = payment["order_id"] % 10 != 3 or delivery.attempt > 1  # every tenth bank is slow
    log.info("%s: %s", "paid" if paid else "not paid yet", payment["order_id"])
    return paid  # False is a failure


class Audit(Middleware):
    """Logs what failed, and how often."""

    def on_error(self, delivery: Delivery, error: Exception) -> None:
        log.info("attempt %s of %s: %s", delivery.attempt, delivery.max_attempts, type(error).__name__)


worker.use(Audit())


def main(orders: int = 0) -> None:
    queue.publish_many({"type": "order_created", "order_id": number} for number in range(orders))
    queue.publish_many(
        {"type": "order_paid", "order_id": number, "cents": -1 if number == 7 else 100} for number in range(orders)
    )
    log.info("waiting for events")
    report = worker.run()
    queue.close()
    log.info("stopped: %d handled, %d failed, %d rejected", report.handled, report.failed, report.rejected)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(*(int(argument) for argument in sys.argv[1:2]))
