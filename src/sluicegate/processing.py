# Made from src/sluicegate/asyncio/processing.py by `make format`; edit there.
"""Processes one message: claims it, and settles it as its handler ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sluicegate.errors import CleanupFailedError, LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.session import Session

__all__ = ["one_message", "shown"]

_log = logging.getLogger("sluicegate")


@contextmanager
def one_message(session: Session, claim: Callable[..., Lease]) -> Iterator[Lease]:
    """Claim a message and yield its lease, which is empty when none came in time.

    A handler's error propagates. That the lease was lost is logged and never raised.

    Args:
        session: of the queue.
        claim: the queue's method.

    Raises:
        CleanupFailedError: the handler finished, but its message could not be acked.
    """
    lease = claim(wait_seconds=session.config.message_wait_interval_seconds)
    handled = False
    try:
        with lease:
            yield lease
            handled = True
    except LeaseLostError as lost:
        if lost.lease_id != lease.id:
            raise
        _log.warning("queue %r: %s", session.keys.name, lost)
    except RedisMessageQueueError as failure:
        if not handled:
            raise
        name = session.keys.name
        raise CleanupFailedError(
            f"queue {name!r}: the handler finished, but its message could not be acked "
            f"({type(failure).__name__}); it will be delivered again",
            queue=name,
            operation="settle",
            message_id=lease.messages[0].id,
        ) from failure


def shown(payload: bytes, *, decodes: bool) -> Any:
    """A payload as handlers get it: a str when the client decodes and it is UTF-8, else bytes."""
    if not decodes:
        return payload
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
