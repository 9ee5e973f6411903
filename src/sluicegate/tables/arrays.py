"""Make Arrow arrays and scalars out of buffers.

`pyarrow.array` and `pyarrow.scalar`, and every kernel that is given a Python value, look whether the value is one of
pandas, and import pandas for that. In each of Spark's Python workers this takes a second and a half of processor time
and some 60 MB, of which a drain into Arrow tables needs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["binaries", "int32_scalar", "int32s", "int64_scalar", "text_scalar", "texts"]

_MAX_BYTES = 2**31 - 1


def binaries(values: Sequence[bytes]) -> pa.Array:
    """Make a binary array without nulls."""
    import pyarrow as pa

    return _joined(values, pa.binary())


def texts(values: Sequence[bytes]) -> pa.Array:
    """Make a string array without nulls of texts in UTF-8, which is not checked."""
    import pyarrow as pa

    return _joined(values, pa.string())


def int32s(values: Sequence[int]) -> pa.Array:
    """Make an int32 array without nulls."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(array("i", values))])


def int32_scalar(value: int) -> pa.Scalar:
    """Make an int32 scalar."""
    return int32s([value])[0]


def int64_scalar(value: int) -> pa.Scalar:
    """Make an int64 scalar."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", [value]))])[0]


def text_scalar(value: str) -> pa.Scalar:
    """Make a string scalar."""
    return texts([value.encode()])[0]


def _joined(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    data = b"".join(values)
    if len(data) > _MAX_BYTES:
        return pa.array(values, kind)  # says why it cannot
    offsets = array("i", [0])
    offsets.extend(accumulate(map(len, values)))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
