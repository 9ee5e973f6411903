"""Deduplication markers that end with their message."""

from __future__ import annotations

from collections.abc import Iterable

from sluicegate.core.entry import split_entry
from sluicegate.core.keys import QueueKeys

__all__ = ["bound_markers"]

_BOUND = ord("2")


def bound_markers(keys: QueueKeys, entries: Iterable[tuple[int, bytes]]) -> tuple[tuple[int, bytes], ...]:
    """Slot and marker key of each message whose marker must be freed when it ends, for `SettleRequest.bound`.

    Args:
        keys: of the queue.
        entries: slots, ascending, with their entries. One without such a marker costs a look at its first byte.
    """
    return tuple([(slot, keys.dedup(split_entry(entry)[1])) for slot, entry in entries if entry[0] == _BOUND])
