"""An extension moves the deadline of an open lease."""

from __future__ import annotations

from enum import Enum
from math import ceil

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = ["Extended", "extend_call"]


class Extended(Enum):
    """Whether a lease was extended."""

    OK = b"ok"
    LOST = b"lost"
    OVER = b"over"
    """The lease has reached the longest life that the queue allows."""


def extend_call(
    keys: QueueKeys, name: bytes, token: bytes, *, lease_seconds: float, max_lease_seconds: float = 0
) -> Call[Extended]:
    """Prepare the call that moves the deadline to now plus `lease_seconds`.

    The deadline never passes `max_lease_seconds` after the opening, unless that is 0.
    """
    return Call(
        scripts.load("extend"),
        (keys.lease(name), keys.leases),
        (name, token, ceil(lease_seconds * 1000), ceil(max_lease_seconds * 1000)),
        Extended,
    )
