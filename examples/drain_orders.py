"""Drain a queue with two worker processes into a file per lease; Ctrl-C lets each worker finish its chunk.

A worker that is killed is started again and takes over the chunk that it held. The same RUN_ID again, after a crash of
the whole program, continues where it stopped. Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/drain_orders.py FOLDER [RUN_ID]
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sluicegate import DrainContext, DrainFailedError, GracefulInterruptHandler, Message, RedisMessageQueue, drain


@dataclass(frozen=True)
class Store:
    """The handler. Worker processes import it, so it stands at the top level of the module."""

    folder: Path

    def __call__(self, batch: list[Message], ctx: DrainContext) -> None:
        rows = []
        for message in batch:
            order = message.json()
            if order["amount"] < 0:
                ctx.bury(message, error="negative amount")
            else:
                rows.append(order)
        ctx.output_file(self.folder, ".json").write_text(json.dumps(rows))


def main(folder: Path, run_id: str | None = None) -> int:
    queue = RedisMessageQueue(
        "example-orders",
        url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        interrupt=GracefulInterruptHandler(),
    )
    try:
        summary = drain(queue, Store(folder), workers=2, run_id=run_id)
    except DrainFailedError as failed:
        print(failed)
        return 1
    print(f"{summary.acked} orders stored, {summary.buried} buried, in {summary.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
