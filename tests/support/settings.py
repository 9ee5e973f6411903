"""Settings of a test run, from the environment."""

from __future__ import annotations

import os

import redis

# The randomized tests do this many times more than usual, with other seeds.
THOROUGH = int(os.environ.get("SLUICEGATE_TEST_THOROUGH", "0"))
# A complete run accepts no test that the machine cannot run. CI sets it.
COMPLETE = os.environ.get("SLUICEGATE_TEST_COMPLETE", "") == "1"
# All flavours and protocols are combined. `scripts/matrix.py` sets it, because versions of redis-py differ there.
PRODUCT = os.environ.get("SLUICEGATE_TEST_PRODUCT", "") == "full"
# A file that gets a line of JSON per finished test. `scripts/run_tests.py` sets it and shows the progress.
REPORT = os.environ.get("SLUICEGATE_TEST_REPORT", "")

UNIX_SPEAKS_RESP3 = not redis.__version__.startswith("7.")
"""Whether a synchronous client of redis-py can have a unix socket and RESP3: version 7 raises for both together."""
