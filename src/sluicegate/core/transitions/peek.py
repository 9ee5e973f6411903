"""A peek shows stored values of one state without claiming them."""

from __future__ import annotations

from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["peek_call", "peek_operation"]

_KINDS = {"pending": b"list", "dead": b"dead", "completed": b"history", "failed": b"history"}


def peek_call(keys: QueueKeys, state: str, count: int, *, offset: int = 0) -> Call[list[bytes]]:
    """Prepare the call that shows up to `count` values of a state, after skipping `offset` of them.

    Args:
        keys: the keys of the queue.
        state: `pending`, `returned`, `delayed`, `dead`, `completed`, `failed` or `set_aside`.
        count: the largest number of values.
        offset: values to skip.
    """
    kind = _KINDS.get(state, b"zset")
    if state == "pending" and keys.group:
        kind = b"unread"
    args = (kind, count, offset, keys.group.encode())
    return Call(scripts.load("peek"), (getattr(keys, state), keys.dead_records, keys.counters), args, _decode)


def peek_operation(keys: QueueKeys, state: str, count: int, *, offset: int = 0) -> Operation[list[bytes]]:
    """Show up to `count` values of a state, after skipping `offset` of them."""
    values: list[bytes] = yield peek_call(keys, state, count, offset=offset)
    return values


def _decode(reply: list[Any]) -> list[bytes]:
    return [value for value in reply if value]
