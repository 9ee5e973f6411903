"""Tables of messages need no pandas, which takes longer to import than a small drain takes."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from sluicegate.tables import arrays

PROGRAM = """
import sys
import pyarrow as pa
from sluicegate import Message
from sluicegate.core.leased import LeasedEntries
from sluicegate.leased_messages import LeasedMessages
from sluicegate.tables.columns import Columns

prefix = b"1" + b"0" * 28
entries = [prefix + b"id-%d" % at + key + b'{"n": %d, "s": "x"}' % at for at, key in enumerate((K, N))]
leased = LeasedMessages(LeasedEntries(entries, None, 2))
schema = pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.string())])
assert Columns.of(schema).table(leased).column("n").to_pylist() == [0, 1]
assert Columns.of(None).table(leased).column("deduplication_key").to_pylist() == ["key", None]
assert Columns.of(None).table(list(leased)).num_rows == 2
assert Columns.of(schema).table([]).num_rows == 0
print("pandas" in sys.modules)
"""


def test_tables_of_messages_and_of_payloads_import_no_pandas() -> None:
    program = PROGRAM.replace("(K, N)", r"(b'\x1fkey\x1f\x1f', b'\x1f\x1f\x1f')")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_arrays_are_those_that_arrow_makes() -> None:
    values = [b"", b"one", b"\x00\xff", "ü".encode()]
    assert arrays.binaries(values).equals(pa.array(values, pa.binary()))
    assert arrays.binaries([]).equals(pa.array([], pa.binary()))
    assert arrays.texts([b"a", "ü".encode()]).equals(pa.array(["a", "ü"]))
    assert arrays.int32s([1, -2]).equals(pa.array([1, -2], pa.int32()))
    assert (arrays.int32_scalar(7), arrays.int64_scalar(-7), arrays.text_scalar("\n")) == (
        pa.scalar(7, pa.int32()),
        pa.scalar(-7, pa.int64()),
        pa.scalar("\n"),
    )
    arrays.binaries(values).validate(full=True)


def test_more_bytes_than_an_array_takes_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_MAX_BYTES", 3)
    assert arrays.binaries([b"ab", b"cd"]).to_pylist() == [b"ab", b"cd"]
