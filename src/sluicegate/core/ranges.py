"""Slots of a lease are sent as ranges such as "1-3,5"."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["format_ranges", "parse_ranges"]


def format_ranges(slots: Iterable[int]) -> str:
    """Format ascending slots as ranges."""
    parts: list[str] = []
    first = last = 0
    for slot in slots:
        if first and slot == last + 1:
            last = slot
            continue
        if first:
            parts.append(_part(first, last))
        first = last = slot
    if first:
        parts.append(_part(first, last))
    return ",".join(parts)


def parse_ranges(text: str) -> list[int]:
    """Parse ranges into their slots, in order."""
    slots: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        slots.extend(range(int(first), int(last or first) + 1))
    return slots


def _part(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
