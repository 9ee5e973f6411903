"""The prepared call of a repair's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = ["Mended", "repair_part"]


@dataclass(frozen=True, slots=True)
class Mended:
    """What one part of a repair found.

    Attributes:
        next: where the next call of this part goes on; empty at its end.
        count: things mended; of the end of a recount, by how much the gauge was wrong.
        names: of leases, or keys of their hashes.
        over: another repair recounts, or this one has ended.
    """

    next: bytes
    count: int
    names: list[bytes]
    over: bool = False


def repair_part(
    keys: QueueKeys,
    part: str,
    nonce: bytes,
    *,
    place: bytes = b"",
    most: int = 0,
    text: bytes = b"",
    names: Sequence[bytes] = (),
) -> Call[Mended]:
    """One bounded part of a repair; see the script for what its arguments mean to which part."""
    return Call(
        scripts.load("repair"),
        (
            keys.leases,
            keys.counters,
            keys.wakeup,
            keys.pending,
            keys.returned,
            keys.set_aside,
            keys.dead,
            keys.dead_records,
            *(keys.lease(name) for name in names),
        ),
        (part.encode(), nonce, place, most, text, *names),
        _mended,
    )


def _mended(reply: list[Any]) -> Mended:
    over = reply[0] == b"over"
    return Mended(b"" if over else reply[0], reply[1], reply[2:], over)
