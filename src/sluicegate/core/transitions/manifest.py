"""A manifest shows a lease and the messages that it still holds; it needs no token and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.leased import LeasedEntries, only_between

__all__ = ["LeaseView", "manifest_call"]

_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A lease view is what a read-only look at a lease shows.

    Attributes:
        state: `open`; `ended`, when the record of its end is kept; `unknown` without either.
        token: the token of the present or the last consumer; empty for an unknown lease.
        takeovers: how often an open lease was taken over.
        size: messages that were claimed.
        held: messages of an open lease that have no verdict.
        left_seconds: time until an open lease expires unless extended; 0 or less when it has expired.
        how: how an ended lease ended, such as `acked` or `returned`.
        acked: messages of an ended lease that were acked.
        returned: messages of an ended lease that were returned.
        buried: messages of an ended lease that were buried.
        slots: those asked for that are still held.
        entries: the stored values in these slots: messages, or a block of several under its first slot.
    """

    state: Literal["open", "ended", "unknown"]
    token: bytes = b""
    takeovers: int = 0
    size: int = 0
    held: int = 0
    left_seconds: float = 0
    how: str = ""
    acked: int = 0
    returned: int = 0
    buried: int = 0
    slots: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list, repr=False)

    @property
    def opening(self) -> str:
        """Identifies the opening that is open, or was the last to end; "" for an unknown lease."""
        return self.token.rpartition(b":")[2].decode(errors="replace")

    def leased(self) -> LeasedEntries:
        """Return the messages that were read, with the delivery counts that their consumer sees."""
        return LeasedEntries(self.entries, self.slots, 1 + self.takeovers)


def manifest_call(
    keys: QueueKeys, name: bytes, first: int = 1, last: int = 0, *, max_bytes: int = _MAX_BYTES
) -> Call[LeaseView]:
    """Prepare the call that shows a lease and the entries of its slots from `first` to `last`.

    `name` is the lease's id as `keys.lease_name` makes it.
    """
    return Call(
        scripts.load("manifest"),
        (keys.lease(name), keys.leases, keys.closed(name), keys.counters),
        (name, first, last, max_bytes),
        lambda reply: _decode(reply, first, last),
    )


def _decode(reply: list[Any], first: int, last: int) -> LeaseView:
    state, *rest = reply
    if state == b"open":
        token, takeovers, size, held, left_ms, slots, values = rest
        slots, entries = only_between(slots, values, first, last)
        return LeaseView("open", token, takeovers, size, held, left_ms / 1000, slots=slots, entries=entries)
    if state == b"ended":
        token, how, size, acked, returned, buried = rest
        return LeaseView(
            "ended", token, size=size, how=how.decode(errors="replace"), acked=acked, returned=returned, buried=buried
        )
    return LeaseView("unknown")
