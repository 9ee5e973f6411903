"""A path names a value in a payload. Each step costs the same to add; only errors format paths."""

from __future__ import annotations

from sluicegate.core.bounds import shorten

__all__ = ["ROOT", "Path", "words"]

Path = tuple["Path", str | int] | tuple[()]
ROOT: Path = ()
_MAX_NAME_LENGTH = 80  # of one step in words: a name may be megabytes long, and errors carry no payloads


def words(path: Path) -> str:
    """Format a path in the usual notation, such as `$.lines[2].price`; long names are shortened."""
    steps = []
    while path:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{shorten(step, _MAX_NAME_LENGTH)}")
    return "$" + "".join(reversed(steps))
