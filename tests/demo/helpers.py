"""Small inputs for the parts of the demo."""

from __future__ import annotations

import itertools
import os
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from example_dags.demo.data import EMPTY, TEXT_FIELDS, find_csv, read_rows

Row = dict[str, str]


def some_rows(count: int = 60) -> list[Row]:
    """Return the first flights of the year, as they stand in the file."""
    return list(itertools.islice(read_rows(find_csv()), count))


def write_csv(path: Path, rows: Iterable[Row], *, end: str = "\n") -> Path:
    """Return a zipped CSV file like the real one."""
    rows = list(rows)
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", "\n".join(lines) + end)
    return path


def typed(row: Row) -> dict[str, object]:
    """Return a row as the message that it becomes."""
    return {name: None if cell in EMPTY else cell if name in TEXT_FIELDS else int(cell) for name, cell in row.items()}


def write_lease(
    folder: Path,
    rows: Iterable[Row],
    *,
    partition: int = 0,
    name: str = "lease",
    pid: int = 0,
    lease_id: str = "run/0/0",
) -> Path:
    """Return a lease's file like those of the DAG."""
    messages = [{"message_id": f"{name}-{number}", **typed(row)} for number, row in enumerate(rows)]
    text = {*TEXT_FIELDS, "message_id"}
    schema = pa.schema([(column, pa.string() if column in text else pa.int64()) for column in messages[0]])
    about = {
        "partition": partition, "chunk": 0, "lease_id": lease_id, "deliveries": 1, "pid": pid or os.getpid(),
        "started": time.time(),
    }  # fmt: skip
    table = pa.Table.from_pylist(messages, schema.with_metadata({key: str(value) for key, value in about.items()}))
    target = folder / f"partition={partition}" / f"{name}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{name}.draft")
    pq.write_table(table, draft)
    draft.replace(target)
    return target
