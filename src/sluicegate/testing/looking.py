"""This module checks which messages a queue holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluicegate.consumer import QueueConsumer
from sluicegate.message import Message
from sluicegate.testing.matching import ANYTHING, STATES, Expectation, Found

__all__ = ["assert_published"]


def assert_published(
    queue: QueueConsumer,
    *,
    payload: Any = ANYTHING,
    key: Any = ANYTHING,
    headers: Mapping[str, str] | None = None,
    count: int | None = None,
) -> list[Message]:
    """Assert that messages wait in a queue (pending, returned or delayed), without changing it.

    Args:
        queue: the queue to check.
        payload: the published payload, compared as JSON unless it is a str or bytes; any payload if omitted.
        key: the deduplication key, None for a message without one; any key if omitted.
        headers: headers that the message must have, among others.
        count: number of such messages, 0 for none; None for at least one.

    Returns:
        The matching messages, in the order in which they would be claimed.

    Raises:
        AssertionError: another number of messages matches. The text shows ids, differences, and at most 200
            characters of each payload.
    """
    depth = queue.depth()
    waiting = max(1, depth.pending, depth.returned, depth.delayed)
    found = [Found(state, message) for state in STATES for message in queue.peek(waiting, state=state)]
    return Expectation(payload, key, headers, count).check(queue.name, found, depth.in_flight)
