"""Read the rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DamagedParquetError", "batches", "check_can_read", "rows"]

_ROWS = 1000


class DamagedParquetError(Exception):
    """The file is no Parquet file, or it is damaged or cut short."""


def check_can_read(path: object) -> None:
    """Fail before the file is opened when pyarrow is missing.

    Raises:
        ConfigurationError: pyarrow cannot be imported.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"{path} cannot be read: Parquet needs pyarrow where it is read; pip install pyarrow ({error})"
        ) from error


def rows(stream: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row, from 1, and the row; at most one row group is in memory.

    Raises:
        DamagedParquetError: it cannot be read further.
    """
    number = 0
    for batch in batches(stream, _ROWS):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def batches(stream: IO[bytes], count: int) -> Iterator[pyarrow.RecordBatch]:
    """Yield `count` rows at a time, fewer at the end of a row group; at most one row group is in memory.

    Raises:
        DamagedParquetError: it cannot be read further.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(stream, pre_buffer=False) as file:  # which would keep every row group that was read
            for group in range(file.num_row_groups):
                yield from file.iter_batches(count, row_groups=[group])
    except pyarrow.ArrowException as error:
        raise DamagedParquetError(str(error)) from error
