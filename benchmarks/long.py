"""The long run: ten million deduplicated messages, the time of each million, and the largest key of their markers.

Usage: python -m benchmarks.long [--million N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, orders
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["main"]

_MAX_KEY_BYTES = 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Publish, ack and measure; 0 when no key of the markers is larger than a megabyte."""
    parser = argparse.ArgumentParser(prog="bench-long", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--million", type=float, default=10, help="millions of messages")
    options = parser.parse_args(arguments)
    table = Table("messages", "wall µs", "Redis CPU µs", "buckets", "largest, bytes")
    server, largest = RedisServer(programs()[0]).start(), 0
    try:
        with server.client() as client:
            queue = RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
            step = 100 * BATCH
            for first in range(0, int(options.million * 1_000_000), step):
                rows = orders(step, first)
                cpu, begun = _cpu(client), time.monotonic()
                assert queue.publish_many(rows).accepted == step
                wall, used = time.monotonic() - begun, _cpu(client) - cpu
                client.unlink(queue.session.keys.pending)  # the markers stay, which this is about
                if (first // step) % 10 == 9 or first == 0:
                    sizes = [client.memory_usage(key, samples=0) for key in client.scan_iter("*:markers:*", 10_000)]
                    largest = max(largest, *sizes)
                    done = f"{first + step:,}"
                    table.add_row(done, _each(wall, step), _each(used, step), f"{len(sizes):,}", f"{max(sizes):,}")
            queue.close()
    finally:
        server.remove()
    Console().print(table)
    return int(largest > _MAX_KEY_BYTES)


def _cpu(client: object) -> float:
    found = client.info("cpu")  # type: ignore[attr-defined]
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def _each(seconds: float, count: int) -> str:
    return f"{1e6 * seconds / count:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
