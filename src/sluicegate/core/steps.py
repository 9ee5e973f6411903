"""Administration works in bounded steps. Each acts on messages that a page named, and may be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["RECEIPT_MS", "Step", "Steps", "Target", "target_args"]

RECEIPT_MS = 3_600_000
"""Life of the receipt of a step: longer than any call is retried."""


@dataclass(frozen=True, slots=True)
class Target:
    """A message that a step shall act on.

    Attributes:
        name: its id, or its whole entry in a sorted set.
        marker: the key of its deduplication marker, b"" for none.
    """

    name: bytes = field(repr=False)
    marker: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """Identifies one step of one operation; a repeat of the call carries the same."""

    nonce: bytes
    number: int


class Steps:
    """Numbers the steps of one operation."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._number = 0

    def next(self) -> Step:
        """Make the next step."""
        self._number += 1
        return Step(self._nonce, self._number)


def target_args(targets: Sequence[Target]) -> tuple[list[bytes], list[bytes | int]]:
    """Return the marker keys of the targets, and per target its name and the position of its marker, 0 for none."""
    markers: list[bytes] = []
    args: list[bytes | int] = []
    for target in targets:
        if target.marker:
            markers.append(target.marker)
        args += (target.name, len(markers) if target.marker else 0)
    return markers, args
