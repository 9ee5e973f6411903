"""Drain the orders in two threads into one file per batch. Started again under its RUN_ID, it continues.

Usage: REDIS_URL=… python examples/tutorial/drain.py FOLDER RUN_ID [SECONDS]     SECONDS makes the work of a batch slow
"""

import os
import sys
import time
from pathlib import Path

from sluicegate import DrainContext, Message, RedisMessageQueue, drain

folder, run_id, seconds = Path(sys.argv[1]), sys.argv[2], float((*sys.argv, "0")[3])


def store(orders: list[Message], ctx: DrainContext) -> None:
    time.sleep(seconds)
    ctx.output_file(folder, ".jsonl").write_text("".join(order.text() + "\n" for order in orders))
    print(f"stored {len(orders)} orders", flush=True)


queue = RedisMessageQueue("orders", url=os.environ["REDIS_URL"])
summary = drain(queue, store, workers=2, worker_kind="thread", run_id=run_id)
print(f"{summary.acked} orders acked, {summary.taken_over} batches taken over")
