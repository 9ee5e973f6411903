"""This module has the functions of `sluicegate.testing` for asyncio queues."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sluicegate._arguments import Handler
from sluicegate.asyncio.queue import RedisMessageQueue
from sluicegate.message import Message
from sluicegate.testing.matching import ANYTHING, STATES, DrainCounts, Expectation, Found

__all__ = ["assert_published", "drain_inline"]


async def assert_published(
    queue: RedisMessageQueue,
    *,
    payload: Any = ANYTHING,
    key: Any = ANYTHING,
    headers: Mapping[str, str] | None = None,
    count: int | None = None,
) -> list[Message]:
    """Do the same as `sluicegate.testing.assert_published`."""
    depth = await queue.depth()
    waiting = max(1, depth.pending, depth.returned, depth.delayed)
    found = [Found(state, message) for state in STATES for message in await queue.peek(waiting, state=state)]
    return Expectation(payload, key, headers, count).check(queue.name, found, depth.in_flight)


async def drain_inline(
    queue: RedisMessageQueue,
    handler: Handler,
    *,
    limit: int | None = None,
    raise_errors: bool = True,
) -> DrainCounts:
    """Do the same as `sluicegate.testing.drain_inline`; the handler may be async."""
    counts = DrainCounts()

    async def record(payload: Any) -> Any:
        try:
            result = handler(payload)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            counts.errors.append(error)
            raise

    while (limit is None or counts.deliveries < limit) and (await queue.depth()).ready:
        try:
            if not await queue.process_message_callback(record):
                break
        except Exception as error:
            if raise_errors or not any(error is recorded for recorded in counts.errors):
                raise
            counts.failed += 1
        else:
            counts.handled += 1
    return counts
