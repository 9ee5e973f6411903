"""This module handles the messages of a queue in the thread of the test."""

from __future__ import annotations

from typing import Any

from sluicegate._arguments import Handler
from sluicegate.consumer import QueueConsumer
from sluicegate.testing.matching import DrainCounts

__all__ = ["drain_inline"]


def drain_inline(
    queue: QueueConsumer,
    handler: Handler,
    *,
    limit: int | None = None,
    raise_errors: bool = True,
) -> DrainCounts:
    """Handle messages in this thread, as `process_message_callback` does, until none is ready, without waiting.

    If the handler raises, the queue's `on_error` and `retry_backoff` decide what happens to the message. A delayed
    retry is not waited for.

    Args:
        queue: the queue to drain.
        handler: called with each payload.
        limit: maximum number of deliveries; None continues until no message is ready.
        raise_errors: raise the first error of a handler after its message is settled; False counts it and continues.

    Returns:
        The numbers of handled and failed deliveries, with the errors.

    Raises:
        Exception: an error of the handler, unless `raise_errors` is False, or any error of Redis or the queue.
    """
    counts = DrainCounts()

    def record(payload: Any) -> Any:
        try:
            return handler(payload)
        except Exception as error:
            counts.errors.append(error)
            raise

    while (limit is None or counts.deliveries < limit) and queue.depth().ready:
        try:
            if not queue.process_message_callback(record):
                break
        except Exception as error:
            if raise_errors or not any(error is recorded for recorded in counts.errors):
                raise
            counts.failed += 1
        else:
            counts.handled += 1
    return counts
