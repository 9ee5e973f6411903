"""Wait until 1,000 orders are ready, or one has been ready for ten minutes. Reading claims nothing.

Usage: REDIS_URL=… python examples/tutorial/gate.py
"""

import os
import time

from sluicegate import RedisMessageQueue
from sluicegate.gates import Gate

queue = RedisMessageQueue("orders", url=os.environ["REDIS_URL"])
gate = Gate(min_ready=1000, max_age_seconds=600)

while not (fired_by := gate.fired_by(depth := queue.depth())):
    print(f"{depth.ready} ready; the gate opens when {gate.condition}", flush=True)
    time.sleep(1)

print(f"open by {fired_by}: {depth.ready} orders are ready")
