"""Remember returned: note what a run returns to the queue, so that its own claims can exclude it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = ["remember_returned_call"]


def remember_returned_call(
    keys: QueueKeys, run: bytes, members: Sequence[bytes], *, life_seconds: float = 86_400
) -> Call[tuple[bool, ...]]:
    """Prepare the call that notes members for a run and answers which of them were noted before.

    Args:
        keys: the keys of the queue.
        run: the run's key, as `keys.run` makes it.
        members: ids of messages, or other names that the run chooses.
        life_seconds: how long they are remembered; 0 only asks.
    """
    return Call(scripts.load("remember_returned"), (keys.leases, run), (ceil(life_seconds * 1000), *members), _decode)


def _decode(reply: list[int]) -> tuple[bool, ...]:
    return tuple(found == 1 for found in reply)
