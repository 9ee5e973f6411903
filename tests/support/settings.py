"""Settings of a test run, from the environment."""

from __future__ import annotations

import os

# The randomized tests do this many times more than usual, with other seeds.
THOROUGH = int(os.environ.get("SLUICEGATE_TEST_THOROUGH", "0"))
# A complete run accepts no test that the machine cannot run. CI sets it.
COMPLETE = os.environ.get("SLUICEGATE_TEST_COMPLETE", "") == "1"
# All flavours and protocols are combined. `scripts/matrix.py` sets it, because versions of redis-py differ there.
PRODUCT = os.environ.get("SLUICEGATE_TEST_PRODUCT", "") == "full"
# A file that gets a line of JSON per finished test. `scripts/run_tests.py` sets it and shows the progress.
REPORT = os.environ.get("SLUICEGATE_TEST_REPORT", "")
