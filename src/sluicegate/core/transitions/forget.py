"""A forget frees a deduplication key."""

from __future__ import annotations

from sluicegate.core import scripts
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.entry import encode_deduplication_key
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["forget_call", "forget_operation"]


def forget_call(keys: QueueKeys, encoded_key: bytes, owner: bytes = b"") -> Call[bytes]:
    """Prepare the call that answers the id of the message that holds a key, b"" for none.

    With an `owner`, it frees the key if that message holds it.
    """
    markers = keys.markers.locate([encoded_key])
    return Call(
        scripts.load("forget"),
        (keys.marker_counters, keys.leases, *markers.buckets),
        (owner, markers.chain, markers.fields),
        or_chain(keys.markers, lambda reply: reply[0]),
        again=lambda: forget_call(keys, encoded_key, owner),
    )


def forget_operation(keys: QueueKeys, key: str, *, emits_events: bool = False) -> Operation[bool]:
    """Free a deduplication key, whatever message holds it: the next message under it is accepted.

    The message that held it is not touched. Do not forget a key while a publish under it is still being retried: its
    next attempt would find the key free.

    Args:
        keys: the keys of the queue.
        key: the deduplication key.
        emits_events: whether to emit an event when the key was held.

    Returns:
        Whether the key was held.

    Raises:
        TypeError: the key is not a str.
        ConfigurationError: it is empty or holds a lone surrogate.
    """
    if not isinstance(key, str):
        raise TypeError(f"a deduplication key must be a str, not {type(key).__name__}")
    if not key:
        raise ConfigurationError("a deduplication key must not be empty")
    encoded = encode_deduplication_key(key)
    owner = yield from with_markers(forget_call(keys, encoded))
    if not owner:
        return False
    yield from with_markers(forget_call(keys, encoded, owner))
    if emits_events:
        message_id = owner.partition(SEPARATOR)[0].decode(errors="replace")
        yield QueueEvent(EventOperation.FORGET, EventOutcome.SUCCESS, keys.name, message_id=message_id)
    return True
