"""Publish orders once for two systems, replay them for a third, and keep the history short."""

import os

from sluicegate import RedisStreamQueue

stream = RedisStreamQueue(
    "orders",
    url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
    get_deduplication_key="order_id",
    max_length=1_000,
)
billing = stream.group("billing", start="beginning")
shipping = stream.group("shipping", start="beginning")

report = stream.publish_many({"type": "order_created", "order_id": f"A-{number}"} for number in (1, 2, 3, 2))
print(f"published {report.accepted}, refused {report.duplicates} duplicates")

for group in (billing, shipping):
    with group.claim(100) as lease:  # leaving the block acks the messages
        print(group.group_name, "got", [message.json()["order_id"] for message in lease])

# A temporary group, which is deleted at the end of the block.
with stream.replay(from_id=report.ids[1]) as audit, audit.claim(100) as lease:
    print("replayed", [message.json()["order_id"] for message in lease])

for group in (billing, shipping):
    print(f"group {group.group_name}: {group.lag()} messages to read")
stream.close()
