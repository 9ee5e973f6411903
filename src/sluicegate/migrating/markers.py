"""Moves deduplication keys of redis-message-queue: they are refused for as long as they would be there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sluicegate.core.call import with_markers
from sluicegate.core.entry import encode_deduplication_key
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError, PayloadTooLargeError
from sluicegate.gateway import RedisGateway
from sluicegate.migrating import calls
from sluicegate.migrating.plan import MovedPart
from sluicegate.migrating.sources import MessageQueueSource
from sluicegate.operation_runner import OperationRunner

__all__ = ["count_markers", "move_markers"]

_PATTERN = re.compile(rb"([\[\]*?\\])")


def count_markers(gateway: RedisGateway, source: MessageQueueSource) -> int:
    """Count the deduplication keys that a queue holds; reads the names of all keys of its server."""
    return sum(map(len, _found(gateway, source)))


def move_markers(
    source: RedisGateway, target: RedisGateway, keys: QueueKeys, place: MessageQueueSource, moved: MovedPart
) -> None:
    """Hold in the queue what is held at the source, with what is left of its time.

    The keys of the source stay: they expire by themselves, and publishers that were not stopped yet still see them.
    """
    runner = OperationRunner(target, keys.name)
    prefix, owner = place.key("deduplication") + place.separator.encode(), b"moved-from-" + place.name.encode()[:200]
    for names in _found(source, place):
        _, described = source.execute(calls.describe_keys_call(names))
        held_keys, lives = [], []
        for name, found in zip(names, described, strict=True):
            key = _encoded(name.removeprefix(prefix))
            if found.kind != "string" or found.left_ms <= 0 or key is None:
                if found.kind != "none":
                    moved.leave("not a deduplication key with an end")
                continue
            held_keys.append(key)
            lives.append(found.left_ms)
        if held_keys:
            held = runner.run(with_markers(calls.move_markers_call(keys, held_keys, owner, lives)))
            moved.moved += held
            moved.known += len(held_keys) - held


def _found(gateway: RedisGateway, source: MessageQueueSource) -> Iterator[list[bytes]]:
    """Yield the names of deduplication keys, page by page."""
    prefix = source.key("deduplication") + source.separator.encode()
    pattern, cursor, near = _PATTERN.sub(rb"\\\1", prefix) + b"*", b"0", source.key("pending")
    while True:
        cursor, *names = gateway.execute(calls.find_keys_call(near, pattern, cursor=cursor))
        names = [name for name in names if b":publish_operation_result:" not in name]
        if names:
            yield names
        if cursor == b"0":
            return


def _encoded(name: bytes) -> bytes | None:
    try:
        return encode_deduplication_key(name.decode())
    except (UnicodeDecodeError, ConfigurationError, PayloadTooLargeError):
        return None
