"""A replay moves a group of a stream back, so that it delivers messages again."""

from __future__ import annotations

from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import GroupKeys
from sluicegate.core.stream_ids import StreamId
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["replay_call", "replay_operation"]

_RECEIPT_MS = 3_600_000
_NO_GROUP = -1


def replay_call(keys: GroupKeys, nonce: bytes, position: str) -> Call[tuple[int, str]]:
    """Prepare the call that moves a group back behind `position`."""
    return Call(
        scripts.load("replay"),
        (keys.stream, keys.published(nonce), keys.wakeup),
        (keys.group.encode(), position.encode(), _RECEIPT_MS),
        _decode,
    )


def replay_operation(keys: GroupKeys, nonce: bytes, first: StreamId, *, emits_events: bool = False) -> Operation[str]:
    """Move a group back, so that `first` is the next message that it delivers, and then those behind it.

    Messages that the group still holds (in flight, returned, delayed, dead) stay, and are delivered twice where the
    replay covers them.

    Args:
        keys: the keys of the group.
        nonce: identifies this replay.
        first: the id of the first message, which need not exist.
        emits_events: whether to emit an event.

    Returns:
        The id that the group had read last.

    Raises:
        ConfigurationError: there is no such group, or it has not read so far yet and would skip messages.
    """
    position = str(first.before)
    state, before = yield replay_call(keys, nonce, position)
    if state == _NO_GROUP:
        raise ConfigurationError(f"stream {keys.name!r} has no group {keys.group!r} to replay into; create it first")
    if not state:
        raise ConfigurationError(
            f"group {keys.group!r} of stream {keys.name!r} has read up to {before} only; a replay from {first} would "
            "skip messages"
        )
    if emits_events:
        yield QueueEvent(EventOperation.REPLAY, EventOutcome.SUCCESS, keys.name, 0)
    return str(before)


def _decode(reply: list[Any]) -> tuple[int, str]:
    return reply[0], reply[1].decode()
