"""How many messages a publish needs to store a block, and how many it stores in one, for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sluicegate.core import packing


@contextmanager
def small_blocks(least: int = 2, most: int = 5) -> Iterator[None]:
    """Let small publishes make small blocks."""
    with patch.object(packing, "MIN_MESSAGES", least), patch.object(packing, "MAX_MESSAGES", most):
        yield
