"""Publish the orders of a file, one JSON object per line; an order that was published before is refused.

Usage: REDIS_URL=… python examples/tutorial/publish.py FILE
"""

import json
import os
import sys

from sluicegate import RedisMessageQueue

queue = RedisMessageQueue("orders", url=os.environ["REDIS_URL"], get_deduplication_key="{tenant}:{order_id}")

with open(sys.argv[1]) as lines:
    report = queue.publish_many(json.loads(line) for line in lines)

print(f"published {report.accepted}, refused {report.duplicates} duplicates")
