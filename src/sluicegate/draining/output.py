"""Files named by a lease: an attempt replaces the files of earlier attempts, and no row is ever missing meanwhile."""

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

    They get their names once the call has succeeded: each file is synced to disk, then renamed, and only then the files
    that it replaces are removed. So a worker may be killed at any point, and an abandoned attempt may continue
    beside its successor. A row that was in place once stays in place, under this name or in the file of a larger part
    of the lease.

    Args:
        key: `DrainContext.lease_key`.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._lease, _ = _part(key)
        self._drafts: dict[Path, Path] = {}  # by final path

    def draft(self, folder: str | os.PathLike[str], suffix: str) -> Path:
        """Return the path of the draft that becomes `folder/{key}{suffix}`, and create the folder."""
        target = output_path(folder, self._key, suffix)
        if target not in self._drafts:
            # Readers of folders, Spark's among them, skip names that begin with a dot. The name is unique, because a
            # worker that was given up may still be writing.
            self._drafts[target] = target.with_name(f".{self._key}.{uuid.uuid4().hex}{suffix}")
        return self._drafts[target]

    def place(self) -> None:
        """Give the files their names.

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
            _remove_contained(target.parent, self._lease, target.name.removeprefix(self._key))

    def drop(self) -> None:
        """Remove the files that have no name yet."""
        for draft in self._drafts.values():
            draft.unlink(missing_ok=True)


def output_path(folder: str | os.PathLike[str], key: str, suffix: str) -> Path:
    """Return the final path for the file of a lease, or of a part of one, and create the folder."""
    if "/" in suffix or "\0" in suffix:
        raise ValueError(f"suffix must be the end of a file name, such as '.parquet', not {suffix!r}")
    target = Path(folder, f"{key}{suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _remove_contained(folder: Path, lease: str, suffix: str) -> None:
    """Remove the files of one lease whose slots another of its files contains."""
    parts = {}
    for file in folder.glob(f"{lease}*"):
        name, slots = _part(file.name.removesuffix(suffix))
        if name == lease and file.name.endswith(suffix):
            parts[file] = slots
    for file, (first, last) in parts.items():
        if any(begin <= first and last <= end for other, (begin, end) in parts.items() if other != file):
            file.unlink(missing_ok=True)


def _part(key: str) -> tuple[str, tuple[float, float]]:
    """Return the lease of a key, and the first and last slot of its part."""
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
