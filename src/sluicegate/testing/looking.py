"""Look at what a queue holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.testing.matching import ANYTHING, STATES, Expectation, Found

__all__ = ["assert_published"]


def assert_published(
    queue: RedisMessageQueue,
    *,
    payload: Any = ANYTHING,
    key: Any = ANYTHING,
    headers: Mapping[str, str] | None = None,
    count: int | None = None,
) -> list[Message]:
    """Assert that messages wait in a queue: pending, returned or delayed. Claims nothing and changes nothing.

    Args:
        queue: where to look.
        payload: what was published, compared as JSON unless it is a str or bytes; left out: any.
        key: its deduplication key, None for a message without one; left out: any.
        headers: headers that it has, among others.
        count: how many such messages, 0 for none; None: at least one.

    Returns:
        These messages, in the order in which they would be claimed.

    Raises:
        AssertionError: there are others. Shows ids, differences, and at most 200 characters of each payload.
    """
    depth = queue.depth()
    waiting = max(1, depth.pending, depth.returned, depth.delayed)
    found = [Found(state, message) for state in STATES for message in queue.peek(waiting, state=state)]
    return Expectation(payload, key, headers, count).check(queue.name, found, depth.in_flight)
