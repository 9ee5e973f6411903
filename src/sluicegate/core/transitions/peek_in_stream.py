"""A peek into a stream shows messages of its history."""

from __future__ import annotations

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import StreamKeys

__all__ = ["peek_in_stream_call"]


def peek_in_stream_call(keys: StreamKeys, after: str, count: int) -> Call[list[bytes]]:
    """Prepare the call that shows up to `count` messages behind the id `after`, as stored messages."""
    return Call(scripts.load("peek_in_stream"), (keys.stream,), (after.encode(), count), list)
