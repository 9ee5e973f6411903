"""Turn messages into Arrow columns; Arrow's kernels split the entries, a column at a time."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING

from sluicegate.core import json
from sluicegate.core.block import Block, Slices
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import KINDS, PREFIX_LENGTH
from sluicegate.core.keys import decode_name
from sluicegate.core.leased import LeasedEntries
from sluicegate.errors import MalformedStoredMessageError
from sluicegate.leased_messages import LeasedMessages
from sluicegate.message import Message
from sluicegate.tables import arrays

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["FIELDS", "message_arrays", "to_pandas", "to_table"]

FIELDS = ("id", "payload", "headers", "deduplication_key", "delivery_count", "sequence", "enqueued_at")
_PARTS = 4  # of an entry: prefix and id, deduplication key, headers, payload
_MALFORMED = "a stored value is not a Sluicegate entry"
_ID, _KEY, _HEADERS, _PAYLOAD = range(_PARTS)


def to_table(messages: Sequence[Message]) -> pa.Table:
    """Make a table with one row per message, in claim order; for `lease.leased` without an object per message.

    Columns: `id` string, never null, `payload` binary, `headers` map<string, string> (empty without headers),
        `deduplication_key` string (null without one), `delivery_count` int32, `sequence` int64, `enqueued_at`
        timestamp[us, UTC].

    Raises:
        MalformedStoredMessageError: a value is not an entry.
    """
    import pyarrow as pa

    arrays = message_arrays(messages, FIELDS)
    fields = [pa.field(name, array.type, nullable=name != "id") for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def message_arrays(messages: Sequence[Message], wanted: Collection[str]) -> dict[str, pa.Array]:
    """Return the wanted fields of the messages by name, each as an array with one value per message.

    Raises:
        MalformedStoredMessageError: a value is not an entry.
    """
    import pyarrow as pa

    if not messages:
        return {name: pa.nulls(0, _types()[name]) for name in wanted}
    if isinstance(messages, LeasedMessages) and messages.stored.has_blocks:
        return _arrays_of_pieces(messages.stored, wanted)
    return _arrays_of_entries(_stored(messages), _begun(messages), wanted)


def _arrays_of_entries(
    stored: Sequence[bytes], begun: pa.Scalar | pa.Array, wanted: Collection[str]
) -> dict[str, pa.Array]:
    """Return the wanted fields of messages that are stored one by one."""
    import pyarrow as pa
    from pyarrow import compute as pc

    entries = arrays.binaries(stored)
    parts = pc.split_pattern(entries, SEPARATOR, max_splits=_PARTS - 1)
    if len(parts.values) != _PARTS * len(parts) or _bytes(pc.binary_slice(entries, 0, 1)).strip(b"".join(KINDS)):
        raise MalformedStoredMessageError(_MALFORMED)

    def part(position: int) -> pa.Array:
        return pc.list_element(parts, arrays.int32_scalar(position))

    makers = {
        "id": lambda: pc.binary_replace_slice(part(_ID), 0, PREFIX_LENGTH, b"").cast(pa.string()),
        "payload": lambda: part(_PAYLOAD),
        "headers": lambda: _headers(part(_HEADERS)),
        "deduplication_key": lambda: _keys(part(_KEY)),
        # One digit more is read, so that the whole prefix is checked.
        "delivery_count": lambda: pc.add(
            pc.shift_right(_numbers(entries, 25, 29), arrays.int64_scalar(4)).cast(pa.int32()),
            begun,
        ),
        "sequence": lambda: _numbers(entries, 1, 13),
        "enqueued_at": lambda: pc.multiply(_numbers(entries, 13, 25), arrays.int64_scalar(1000)).cast(
            _types()["enqueued_at"]
        ),
    }
    try:
        return {name: makers[name]() for name in wanted}
    except pa.ArrowInvalid:
        raise MalformedStoredMessageError(_MALFORMED) from None


def _arrays_of_pieces(stored: LeasedEntries, wanted: Collection[str]) -> dict[str, pa.Array]:
    """Return the wanted fields of the messages of a lease that holds blocks, whose columns are slices of the blocks."""
    import pyarrow as pa

    begun = arrays.int32_scalar(stored.begun)
    found: list[dict[str, pa.Array]] = []
    for are_blocks, pieces in groupby(stored.pieces(), lambda piece: isinstance(piece, Block)):
        if are_blocks:
            blocks = [piece for piece in pieces if isinstance(piece, Block)]
            found.append(_arrays_of_blocks(blocks, stored.begun, wanted))
        else:
            found.append(_arrays_of_entries([piece for piece in pieces if isinstance(piece, bytes)], begun, wanted))
    return {name: pa.concat_arrays([columns[name] for columns in found]) for name in wanted}


def _arrays_of_blocks(blocks: Sequence[Block], begun: int, wanted: Collection[str]) -> dict[str, pa.Array]:
    """Return the wanted fields of the messages in blocks."""
    import pyarrow as pa

    count = sum(block.count for block in blocks)

    def joined(columns: Iterable[Slices]) -> pa.Array:
        return pa.concat_arrays([
            pa.Array.from_buffers(
                pa.binary(), len(offsets) // 4 - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            )
            for offsets, data in columns
        ])  # fmt: skip

    def times() -> pa.Array:
        values = array("q")
        for block in blocks:
            values.extend(array("q", [block.enqueued_ms * 1000]) * block.count)
        return pa.Array.from_buffers(_types()["enqueued_at"], count, [None, pa.py_buffer(values)])

    def headers() -> pa.Array:
        if not any(block.headers for block in blocks):
            return _no_headers(count)
        return _headers(arrays.binaries(list(chain.from_iterable([block.headers] * block.count for block in blocks))))

    makers: dict[str, Callable[[], pa.Array]] = {
        "id": lambda: joined(block.id_slices() for block in blocks).cast(pa.string()),
        "payload": lambda: joined(block.payloads() for block in blocks),
        "headers": headers,
        "deduplication_key": lambda: _keys(joined(block.keys() for block in blocks)),
        "delivery_count": lambda: arrays.int32s(array("i", [begun]) * count),
        "sequence": lambda: _sequences(blocks, count),
        "enqueued_at": times,
    }
    try:
        return {name: makers[name]() for name in wanted}
    except pa.ArrowInvalid:
        raise MalformedStoredMessageError(_MALFORMED) from None


def _sequences(blocks: Sequence[Block], count: int) -> pa.Array:
    """Return the sequences of the messages; of blocks that follow one another without a gap, as one range."""
    import pyarrow as pa
    from pyarrow import compute as pc

    columns = [block.sequences() for block in blocks]
    if _follow_one_another(columns):
        before = arrays.int64_scalar(columns[0][0] - 1)
        ones = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array("q", [1]) * count)])
        return pc.cumulative_sum(ones, start=before)
    values = array("q")
    for column in columns:
        values.extend(column)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])


def _follow_one_another(columns: Sequence[Sequence[int]]) -> bool:
    """Return whether these are ranges without a gap between them."""
    ranges = [column for column in columns if isinstance(column, range)]
    return len(ranges) == len(columns) and all(one.stop == other.start for one, other in pairwise(ranges))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Turn a table into a pandas frame without losing values.

    Integers and booleans become pandas' nullable types (`Int64`, `Int32`, `boolean`, …), so that a null does not turn a
    column into floats; times with a zone become `datetime64[us, UTC]`, dates Python's, maps lists of pairs. Floats keep
    numpy's type, in which a null is NaN; text and binaries are `object` columns with None for null.
    """
    import pandas as pd
    import pyarrow as pa

    nullable = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get, ignore_metadata=True)
    return frame


def _stored(messages: Sequence[Message]) -> list[bytes]:
    """Return the entries of messages."""
    if isinstance(messages, LeasedMessages):
        return messages.stored.entries()
    return [message.entry for message in messages]


def _begun(messages: Sequence[Message]) -> pa.Scalar | pa.Array:
    """Return how many deliveries of each message have begun and not ended."""
    if isinstance(messages, LeasedMessages):
        return arrays.int32_scalar(messages.stored.begun)
    return arrays.int32s([message.deliveries_begun for message in messages])


def _types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "id": pa.string(),
        "payload": pa.binary(),
        "headers": pa.map_(pa.string(), pa.string()),
        "deduplication_key": pa.string(),
        "delivery_count": pa.int32(),
        "sequence": pa.int64(),
        "enqueued_at": pa.timestamp("us", "UTC"),
    }


def _bytes(column: pa.Array) -> bytes:
    """Return the values of a new binary array, concatenated."""
    _, offsets, values = column.buffers()
    size = int.from_bytes(offsets[4 * len(column) : 4 * len(column) + 4].to_pybytes(), sys.byteorder)
    return values[:size].to_pybytes() if size else b""


def _numbers(entries: pa.Array, start: int, stop: int) -> pa.Array:
    """Read the hexadecimal numbers between two positions; all digits are decoded at once.

    Raises:
        MalformedStoredMessageError: an entry has no number there.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    digits = pc.binary_replace_slice(pc.binary_slice(entries, start, stop), 0, 0, b"0" * (16 - (stop - start)))
    try:
        numbers = array("q", bytes.fromhex(_bytes(digits).decode("ascii")))
    except ValueError:
        raise MalformedStoredMessageError(_MALFORMED) from None
    if len(numbers) != len(entries):  # fromhex skips blanks among the digits
        raise MalformedStoredMessageError(_MALFORMED)
    if sys.byteorder == "little":
        numbers.byteswap()
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _keys(raw: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    keys = raw.cast(pa.string())
    lengths = pc.binary_length(raw)
    if pc.min(lengths).as_py() == 0:
        keys = pc.if_else(pc.equal(lengths, arrays.int32_scalar(0)), pa.nulls(1, pa.string())[0], keys)
    if b"%" in _bytes(raw):  # an encoded character
        return pa.array([None if key is None else decode_name(key) for key in keys.to_pylist()], pa.string())
    return keys


def _headers(raw: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    if not pc.sum(pc.binary_length(raw), min_count=0).as_py():
        return _no_headers(len(raw))
    return pa.array([list(json.loads(one).items()) if one else [] for one in raw.to_pylist()], _types()["headers"])


def _no_headers(count: int) -> pa.Array:
    import pyarrow as pa

    kind = _types()["headers"]
    offsets, entries = pa.py_buffer(bytes(4 * (count + 1))), pa.nulls(0, kind.field(0).type)
    return pa.Array.from_buffers(kind, count, [None, offsets], children=[entries])
