"""Compute the expected result with pandas, from the CSV file alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from example_dags.demo.data import EMPTY, KEY_FIELDS, TEXT_FIELDS

__all__ = ["Expected", "average_delays", "compute_expected", "in_order", "keys_of", "read_flights"]

GROUP = ["carrier", "month"]
TOTALS = ["delay_minutes", "flights"]


@dataclass(frozen=True, slots=True)
class Expected:
    """Holds the expected result.

    Attributes:
        flights: every row of the file in the order of the keys, whole numbers as Int64, empty cells as missing.
        keys: one per flight, all different.
        delays: per carrier and month, the sum of arrival delays in minutes and the number of flights that have one.
        months: rows per month.
    """

    flights: pd.DataFrame
    keys: frozenset[str]
    delays: pd.DataFrame
    months: dict[int, int]

    @property
    def count(self) -> int:
        """Return the number of flights in the file."""
        return len(self.flights)


def compute_expected(path: Path) -> Expected:
    """Read the file and compute the result.

    Raises:
        ValueError: the deduplication key is not unique in the data, so that duplicates would not be duplicates.
    """
    flights = read_flights(path)
    keys = keys_of(flights)
    unique = frozenset(keys)
    if len(unique) != len(flights):
        raise ValueError(f"{len(flights) - len(unique)} rows of {path} share their key with another row")
    months = {int(str(month)): int(rows) for month, rows in flights["month"].value_counts().items()}
    return Expected(in_order(flights, keys), unique, average_delays(flights), months)


def read_flights(path: Path) -> pd.DataFrame:
    """Read the whole file; only the file's own marks mean a missing value, not those that pandas assumes."""
    text: dict[Hashable, Any] = dict.fromkeys(TEXT_FIELDS, "string")
    flights = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=list(EMPTY))
    # pandas reads whole numbers with gaps as float64, exact here; Int64 refuses what is not whole.
    return flights.astype({name: "Int64" for name in flights.columns if name not in TEXT_FIELDS})


def keys_of(flights: pd.DataFrame) -> list[str]:
    """Return the deduplication key of every row."""
    columns = [flights[name].tolist() for name in KEY_FIELDS]
    return ["-".join(map(str, parts)) for parts in zip(*columns, strict=True)]


def in_order(flights: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the same rows in the order of their keys."""
    return flights.take(pc.sort_indices(pa.array(keys)).to_numpy()).reset_index(drop=True)


def average_delays(flights: pd.DataFrame) -> pd.DataFrame:
    """Compute sums and counts rather than means: two engines agree exactly on whole numbers."""
    arrived = flights.dropna(subset=["arr_delay"])
    totals = arrived.groupby(GROUP, as_index=False).agg(
        delay_minutes=("arr_delay", "sum"), flights=("arr_delay", "size")
    )
    return totals.astype(
        {"carrier": "string", "month": "int64", "delay_minutes": "int64", "flights": "int64"}
    ).sort_values(GROUP, ignore_index=True)
