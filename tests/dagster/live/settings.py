"""What the deployment, its code locations and the tests have to agree on."""

from __future__ import annotations

LIMITED_QUEUE = "limited"
"""The queue of whose runs the instance starts one at a time."""

RETRY_BUDGET_SECONDS = 10.0
"""How long a drain waits for a Redis that went away."""

TICK_SECONDS = 15
"""How long a tick may take."""
