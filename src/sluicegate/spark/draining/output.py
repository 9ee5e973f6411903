"""Files named by a lease: each attempt replaces what earlier ones wrote of it, and there is never a moment without."""

from __future__ import annotations

import math
import os
import re
import uuid
from pathlib import Path

__all__ = ["OutputFiles", "output_path"]

_KEY = re.compile(r"(?P<lease>.+?)(?:-(?P<first>\d+)-(?P<last>\d+))?")


class OutputFiles:
    """The files that one call of a handler writes.

    They get their names when the call has ended well, in this order: on disk, renamed, and only then what they replace
    is removed. So a worker may be killed at any point, and an attempt that Spark has given up may go on beside its
    successor: what was in place once stays in place, under this name or in the file of a larger part of the lease.

    Args:
        key: `DrainContext.lease_key`.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._lease, _ = _part(key)
        self._drafts: dict[Path, Path] = {}  # by where they are to be

    def draft(self, folder: str | os.PathLike[str], suffix: str) -> Path:
        """Where to write what becomes `folder/{key}{suffix}`; the folder is made."""
        target = output_path(folder, self._key, suffix)
        if target not in self._drafts:
            # Readers of folders, Spark's among them, pass over names that begin with a dot. Of its own, because a
            # worker that was given up may be writing still.
            self._drafts[target] = target.with_name(f".{self._key}.{uuid.uuid4().hex}{suffix}")
        return self._drafts[target]

    def place(self) -> None:
        """Put the files where they are to be.

        Raises:
            FileNotFoundError: one of them was not written.
        """
        for target, draft in self._drafts.items():
            if not draft.exists():
                raise FileNotFoundError(
                    f"process asked for an output file {target.name!r} and wrote nothing to the path that it was given"
                )
        for target, draft in self._drafts.items():
            _to_disk(draft)
            draft.replace(target)
            _to_disk(target.parent)
            _tidy(target.parent, self._lease, target.name.removeprefix(self._key))

    def drop(self) -> None:
        """Remove what has no place yet."""
        for draft in self._drafts.values():
            draft.unlink(missing_ok=True)


def output_path(folder: str | os.PathLike[str], key: str, suffix: str) -> Path:
    """Where the file of a lease, or of a part of one, is to be; the folder is made."""
    if "/" in suffix or "\0" in suffix:
        raise ValueError(f"suffix must be the end of a file name, such as '.parquet', not {suffix!r}")
    target = Path(folder, f"{key}{suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _tidy(folder: Path, lease: str, suffix: str) -> None:
    """Of the parts of one lease that attempts wrote with different luck, keep those that no other part contains."""
    parts = {}
    for file in folder.glob(f"{lease}*"):
        name, slots = _part(file.name.removesuffix(suffix))
        if name == lease and file.name.endswith(suffix):
            parts[file] = slots
    for file, (first, last) in parts.items():
        if any(begin <= first and last <= end for other, (begin, end) in parts.items() if other != file):
            file.unlink(missing_ok=True)


def _part(key: str) -> tuple[str, tuple[float, float]]:
    """The lease that a key is of, and the first and last slot of its part."""
    match = _KEY.fullmatch(key)
    if match is None or match["first"] is None:
        return key, (1, math.inf)
    return match["lease"], (int(match["first"]), int(match["last"]))


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
