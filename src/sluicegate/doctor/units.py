"""Numbers in the words of findings."""

from __future__ import annotations

__all__ = ["count", "duration", "size"]

_UNITS = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def count(number: float, one: str, many: str | None = None) -> str:
    """Return `1 message` or `2,000 messages`."""
    rounded = round(number)
    return f"{rounded:,} {one if rounded == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Return a number of bytes as `1.4 GB`."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.0f} bytes"


def duration(seconds: float) -> str:
    """Return a duration as `250 ms`, `4 s`, `12 min`, `3.5 h` or `2 days`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.3g} days"
