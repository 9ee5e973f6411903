"""Handle what is in a queue, and print how long publishes, claims and leases took.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/measured_consumer.py
"""

import os

from prometheus_client import generate_latest

from sluicegate import RedisMessageQueue
from sluicegate.metrics import instrument

with RedisMessageQueue("measured", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0")) as queue:
    instrument(queue)
    queue.publish_many({"order": number} for number in range(100))
    while lease := queue.claim(10):
        lease.ack()

# A service would serve them: prometheus_client.start_http_server(9465)
for line in generate_latest().decode().splitlines():
    if line.startswith("sluicegate_client_hold_duration_seconds_count"):
        print(line)
