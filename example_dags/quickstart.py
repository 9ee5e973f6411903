"""Try Sluicegate in eight lines: Redis starts by itself, duplicates are refused, a batch is leased and acked."""

import time
from pathlib import Path

from sluicegate import RedisMessageQueue

url = f"embedded://{Path('build/quickstart').resolve()}"
queue = RedisMessageQueue("orders", url=url, get_deduplication_key="{shop}:{order_id}")

first = time.time_ns()  # new order ids at each run
orders = [{"shop": "acme", "order_id": first + number % 900, "cents": number} for number in range(1000)]
report = queue.publish_many(orders)
print(f"published {report.accepted}, refused {report.duplicates} duplicates, {queue.depth().ready} are ready")

with queue.claim(limit=1000, lease_seconds=60) as lease:  # leaving the block acks
    cents = sum(message.json()["cents"] for message in lease)
print(f"leased and acked {lease.counts.acked} orders over {cents / 100:,.2f}; {queue.depth().in_flight} left in flight")
