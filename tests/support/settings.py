"""What the environment says about a run of the tests."""

from __future__ import annotations

import os

# How much more the randomized tests do than in a usual run, and with other seeds.
THOROUGH = int(os.environ.get("SLUICEGATE_TEST_THOROUGH", "0"))
