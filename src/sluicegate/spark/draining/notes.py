"""What one call of `drain` remembers in Redis, for all its tasks and their attempts."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _access

__all__ = ["RETENTION_SECONDS", "Notes"]

RETENTION_SECONDS = 86_400.0  # how long a retry still finds what an earlier attempt did: about 250 bytes per chunk
_SEPARATOR = b"\x1f"  # no message id holds it


class Notes:
    """Which messages a call of `drain` gave back, so that none of its claims takes them again; and from which leases.

    Args:
        queue: that is drained.
        call_id: names the call.
    """

    def __init__(self, queue: RedisMessageQueue, call_id: str) -> None:
        self._queue = queue
        self._call_id = call_id

    def write(self, lease_id: str, given_back: Sequence[Message], *, failed: bool) -> None:
        """Note what goes back of a lease, before it does, and that its handler failed."""
        members = [message.id.encode() for message in given_back]
        if members:
            members.append(self._lease(lease_id))
        if failed:
            members.append(self._failure(lease_id))
        if members:
            _access.note(self._queue, self._call_id, members, life_seconds=RETENTION_SECONDS)

    def of(self, lease_id: str) -> tuple[bool, bool]:
        """Whether something of a lease went back, and whether its handler failed."""
        back, failed = _access.note(self._queue, self._call_id, [self._lease(lease_id), self._failure(lease_id)])
        return back, failed

    def _lease(self, lease_id: str) -> bytes:
        """As a claim looks for it: such a lease is not opened anew when all of it went back."""
        return _SEPARATOR + _access.lease_name(self._queue, lease_id)

    def _failure(self, lease_id: str) -> bytes:
        return _SEPARATOR + self._lease(lease_id)
