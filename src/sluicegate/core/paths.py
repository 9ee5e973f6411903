"""Where in a payload a value lies: built while walking at a constant cost per step, put into words for errors only."""

from __future__ import annotations

from sluicegate.core.bounds import cut

__all__ = ["ROOT", "Path", "words"]

Path = tuple["Path", str | int] | tuple[()]
ROOT: Path = ()
_MAX_NAME_LENGTH = 80  # of one step in words: a name may be megabytes long, and errors carry no payloads


def words(path: Path) -> str:
    """A path in the usual notation, such as `$.lines[2].price`; long names are cut."""
    steps = []
    while path:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{cut(step, _MAX_NAME_LENGTH)}")
    return "$" + "".join(reversed(steps))
