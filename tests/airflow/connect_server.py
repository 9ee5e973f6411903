"""Serve Spark Connect until the process is ended.

Usage: python -m tests.airflow.connect_server PORT READY     READY: a file that appears when clients may come
"""

from __future__ import annotations

import sys
from pathlib import Path


def serve(port: str, ready: Path) -> None:
    """Start the server, and wait for the end of the standard input."""
    from pyspark.sql import SparkSession

    (
        SparkSession.builder.master("local[2]")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.port", port)
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .getOrCreate()
    )
    ready.touch()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
