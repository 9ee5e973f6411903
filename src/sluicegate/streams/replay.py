# Made from src/sluicegate/asyncio/streams/replay.py by `make format`; edit there.
"""The temporary group of a replay."""

from __future__ import annotations

from typing import Any, Unpack

from sluicegate.clock import elapsed_clock
from sluicegate.core.call import alone
from sluicegate.core.keys import GroupKeys
from sluicegate.core.transitions.groups import delete_group_operation, keep_group_call
from sluicegate.gateway import Gateway
from sluicegate.lease import Lease
from sluicegate.streams.group import ConsumerGroup, GroupOptions

__all__ = ["ReplayGroup"]

_KEEP_SHARE = 0.25  # of its life, after which a claim keeps the group alive


class ReplayGroup(ConsumerGroup):
    """A group that delivers a part of a stream's history again, and deletes itself at the end of its block.

    It never keeps messages from being trimmed. It expires when nothing is claimed here for `expires_seconds` and no
    lease is open; the next trim, replay or publish deletes it then.

    Args:
        keys: its keys.
        gateway: of the stream; it stays open.
        expires_seconds: how long it lives without a claim.
        consumer: name of this consumer.
        options: as for any group.
    """

    def __init__(
        self,
        keys: GroupKeys,
        gateway: Gateway,
        *,
        expires_seconds: float,
        consumer: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> None:
        super().__init__(keys.name, keys.group, gateway=gateway, consumer=consumer, **options)
        self._expires_seconds = expires_seconds
        self._kept_at = elapsed_clock()

    def claim(self, limit: int = 1, **options: Any) -> Lease:
        """Lease up to `limit` messages as any group does, and keep this group alive."""
        now = elapsed_clock()
        if now - self._kept_at > self._expires_seconds * _KEEP_SHARE:
            self._kept_at = now
            self.session.runner.run(alone(keep_group_call(self._keys)))
        return super().claim(limit, **options)

    def close(self) -> None:
        """Release the leases made here, and delete the group."""
        super().close()
        self.session.runner.run(delete_group_operation(self._keys))
