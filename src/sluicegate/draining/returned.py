"""What one call of a drain remembers in Redis, for all of its partitions and their attempts."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.consumer import QueueConsumer
from sluicegate.core.bounds import SEPARATOR
from sluicegate.draining import lease_access
from sluicegate.message import Message

__all__ = ["RETENTION_SECONDS", "ReturnedMessages"]

RETENTION_SECONDS = 86_400.0  # how long a retry still finds what an earlier attempt did: about 250 bytes per chunk


class ReturnedMessages:
    """The messages that a call of a drain gave back, so that none of its claims takes them again.

    It also remembers the leases that gave something back, and those whose handler failed.

    Args:
        queue: the queue that is drained.
        call_id: names the call.
    """

    def __init__(self, queue: QueueConsumer, call_id: str) -> None:
        self._queue = queue
        self._call_id = call_id

    def remember(self, lease_id: str, given_back: Sequence[Message], *, failed: bool) -> None:
        """Remember, before the settle, what a lease gives back and whether its handler failed."""
        members = [message.id.encode() for message in given_back]
        if members:
            members.append(self._lease(lease_id))
        if failed:
            members.append(self._failure(lease_id))
        if members:
            lease_access.remember_returned(self._queue, self._call_id, members, life_seconds=RETENTION_SECONDS)

    def known_of(self, lease_id: str) -> tuple[bool, bool]:
        """Return whether a lease returned any message, and whether its handler failed."""
        members = [self._lease(lease_id), self._failure(lease_id)]
        back, failed = lease_access.remember_returned(self._queue, self._call_id, members)
        return back, failed

    def _lease(self, lease_id: str) -> bytes:
        """Return the lease as a claim asks for it; a lease whose messages all returned is not opened anew."""
        return SEPARATOR + self._queue.session.keys.lease_name(lease_id)

    def _failure(self, lease_id: str) -> bytes:
        return SEPARATOR + self._lease(lease_id)
