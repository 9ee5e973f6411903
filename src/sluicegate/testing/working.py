"""Work on what a queue holds, in the thread of the test."""

from __future__ import annotations

from typing import Any

from sluicegate._queue_base import Handler
from sluicegate.queue import RedisMessageQueue
from sluicegate.testing.matching import DrainCounts

__all__ = ["drain_inline"]


def drain_inline(
    queue: RedisMessageQueue,
    handler: Handler,
    *,
    limit: int | None = None,
    raise_errors: bool = True,
) -> DrainCounts:
    """Handle messages in this thread, as `process_message_callback` does, until none is ready. Never waits.

    What a handler error makes of its message is the queue's `on_error` and `retry_backoff`: a retry that is to come
    later is not waited for.

    Args:
        queue: what to drain.
        handler: is called with each payload.
        limit: most deliveries; None: until nothing is ready.
        raise_errors: let the first error of a handler through, once its message is settled; False: count it and go on.

    Returns:
        How many were handled and how many failed, with the errors.

    Raises:
        Exception: what the handler raised, unless `raise_errors` is False; always what Redis or the queue raised.
    """
    counts = DrainCounts()

    def noting(payload: Any) -> Any:
        try:
            return handler(payload)
        except Exception as error:
            counts.errors.append(error)
            raise

    while (limit is None or counts.deliveries < limit) and queue.depth().ready:
        try:
            if not queue.process_message_callback(noting):
                break
        except Exception as error:
            if raise_errors or not any(error is noted for noted in counts.errors):
                raise
            counts.failed += 1
        else:
            counts.handled += 1
    return counts
