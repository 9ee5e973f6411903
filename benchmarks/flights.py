"""The flights of the demo as the bytes that a publish stores."""

from __future__ import annotations

from itertools import islice

from example_dags.demo.data import EMPTY, TEXT_FIELDS, find_csv, read_rows
from sluicegate.core.publishing import encode_payload

__all__ = ["flights"]


def flights(limit: int | None) -> list[bytes]:
    """Return the first `limit` flights, or all, as JSON: numbers as numbers, empty cells as null."""
    return [encode_payload(_typed(row)) for row in islice(read_rows(find_csv()), limit)]


def _typed(row: dict[str, str]) -> dict[str, str | int | None]:
    return {name: None if cell in EMPTY else cell if name in TEXT_FIELDS else int(cell) for name, cell in row.items()}
