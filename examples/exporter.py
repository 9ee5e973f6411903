"""Serve the metrics of every queue, stream and group on a Redis, until Ctrl-C.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/exporter.py [PORT]
"""

import os
import sys

from sluicegate.metrics import serve

port = int(sys.argv[1]) if len(sys.argv) > 1 else 9464
with serve(url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"), port=port) as exporter:
    print(f"serving {exporter.url}", flush=True)
    try:
        exporter.wait()
    except KeyboardInterrupt:
        print("stopped")
