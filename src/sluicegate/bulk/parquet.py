"""Read the rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from sluicegate.errors import ConfigurationError

__all__ = ["DamagedParquetError", "check_can_read", "rows"]

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
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(stream, pre_buffer=False) as file:  # which would keep every row group that was read
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS, row_groups=[group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
    except pyarrow.ArrowException as error:
        raise DamagedParquetError(str(error)) from error
