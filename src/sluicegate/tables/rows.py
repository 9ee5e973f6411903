"""Turn tables into messages: a JSON object for each row, encoded some thousand rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate import collector
from sluicegate.core.deduplication import KeyLayout, key_layout
from sluicegate.core.payload_limits import PayloadLimits
from sluicegate.core.publishing import EncodedRows, Publishing
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.extras import extra_needed
from sluicegate.tables.json_columns import JsonColumns, RowsUnlikeError, is_text, joined
from sluicegate.tables.key_columns import encoded_keys

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["SLICE_BYTES", "SLICE_ROWS", "TableLike", "TableRows", "batches_of", "cut"]

TableLike: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pd.DataFrame"
"""What `publish_table` takes."""

SLICE_ROWS = 1000
"""Rows that are encoded together: as many as a call publishes, so that Redis works while the next are encoded."""
SLICE_BYTES = 16 * 1024 * 1024
"""Bytes of the columns of these rows; a larger row is encoded alone."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Iterates over the rows of record batches, for `Publishing.batches`.

    What can be encoded by columns is yielded as `EncodedRows`; the rows of other slices are yielded as dicts, one by
    one, so that they are published, or refused, as those of `to_pylist()`.

    Attributes:
        batches: of rows with the same columns.
        publishing: how the queue encodes messages.
    """

    batches: Iterable[pa.RecordBatch]
    publishing: Publishing

    def __iter__(self) -> Iterator[EncodedRows | dict[str, Any]]:
        publishing, first = self.publishing, 0
        source = publishing.key_source
        layout = key_layout(source) if source is not None else None
        columns = JsonColumns(publishing.sort_keys, publishing.json_default)
        for batch in _sliced(self.batches):
            _refuse_equal_names(batch.schema.names)
            try:
                if publishing.key_function is not None and layout is None:
                    raise RowsUnlikeError("the key is made by a function of the row")
                if publishing.json_default is not None and _looks_inside(publishing.limits):
                    raise RowsUnlikeError("the limits are about what json_default replaces")
                encoded = _encoded(batch, columns, layout, publishing.limits)
            except RowsUnlikeError:
                yield from _one_by_one(batch, first)
            else:
                yield encoded
            first += batch.num_rows


def batches_of(table: Any) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table as record batches, some of them at a time.

    Raises:
        OptionTypeError: it is no table.
        ModuleNotFoundError: pyarrow is not installed.
    """
    with extra_needed("spark", "publish_table"):
        import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        return iter([table])
    if isinstance(table, pa.Table):
        return iter(table.to_batches(max_chunksize=SLICE_ROWS))
    if isinstance(table, pa.RecordBatchReader):
        return iter(table)
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return _of_pandas(table)
    raise OptionTypeError(
        "publish_table takes a pyarrow Table, RecordBatch or RecordBatchReader, or a pandas DataFrame, not "
        f"{type(table).__name__}; publish_many takes an iterable of dicts"
    )


def _of_pandas(frame: Any) -> Iterator[pa.RecordBatch]:
    """Convert some rows of a frame at a time, by the types that all of its rows have."""
    import pyarrow as pa

    _refuse_equal_names([str(name) for name in frame.columns])
    try:
        schema = pa.Schema.from_pandas(frame, preserve_index=False)
        for start in range(0, len(frame), SLICE_ROWS):
            part = frame.iloc[start : start + SLICE_ROWS].set_axis(schema.names, axis="columns")
            yield pa.RecordBatch.from_pandas(part, schema=schema, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        # Arrow's text may quote a value, so only its kind is repeated.
        raise ConfigurationError(
            f"a column of the frame has values of several types, or of one that Arrow lacks ({type(error).__name__}); "
            "convert it with astype, or publish frame.to_dict('records') with publish_many"
        ) from error


def _refuse_equal_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"the column {twice!r} occurs twice; rename one, since messages are made by name")


# ---------------------------------------------------------------------- slices


def _sliced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in record batches of about `SLICE_ROWS`, and of at most `SLICE_BYTES` unless one row has more."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for part, part_bytes in cut(batch, SLICE_ROWS):
            if held and (rows + part.num_rows > SLICE_ROWS or size + part_bytes > SLICE_BYTES):
                yield _merged(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + part_bytes
    if held:
        yield _merged(held)


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Cut a record batch at this number of rows, and in halves while it has more than `SLICE_BYTES`.

    Yields:
        A record batch, and about how many bytes its text has.
    """
    if batch.num_rows > rows:
        for start in range(0, batch.num_rows, rows):
            yield from cut(batch.slice(start, rows), rows)
        return
    size = _nbytes(batch)
    if batch.num_rows > 1 and size > SLICE_BYTES:
        half = batch.num_rows // 2
        yield from cut(batch.slice(0, half), rows)
        yield from cut(batch.slice(half), rows)
    elif batch.num_rows:
        yield batch, size


def _nbytes(batch: pa.RecordBatch) -> int:
    """Return about the size of the text: each row has the names of all fields, and its own value of a dictionary."""
    import pyarrow.compute as pc
    from pyarrow import types

    size: int = batch.nbytes + batch.num_rows * sum(map(_name_bytes, batch.schema))
    for column in batch.columns:
        if types.is_dictionary(column.type):  # the slices of a column share its dictionary
            size -= column.dictionary.nbytes
            if is_text(column.type.value_type) or _is_bytes(column.type.value_type):
                size += pc.sum(pc.binary_length(column.dictionary).take(column.indices), min_count=0).as_py()
    return size


def _is_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _name_bytes(field: pa.Field) -> int:
    from pyarrow import types

    inner = sum(map(_name_bytes, field.type)) if types.is_struct(field.type) else 0
    return len(field.name) + len('"":,') + inner


def _merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return several record batches as one."""
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]


# ---------------------------------------------------------------------- encoding


def _encoded(
    batch: pa.RecordBatch, columns: JsonColumns, layout: KeyLayout | None, limits: PayloadLimits
) -> EncodedRows:
    """Encode rows by columns.

    Raises:
        RowsUnlikeError: they have to be encoded one by one.
    """
    import pyarrow as pa

    names, arrays, count = batch.schema.names, batch.columns, batch.num_rows
    try:
        payloads = joined([*columns.objects(names, arrays)], count)
        if limits:
            payloads = _within(limits, batch.schema, payloads)
        keys = [] if layout is None else encoded_keys(layout, names, arrays, count).cast(pa.binary()).to_pylist()
        data, ends = _behind_one_another(payloads)
        return EncodedRows(data, ends, keys)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
        raise RowsUnlikeError("Arrow cannot write a column") from error


def _behind_one_another(texts: pa.Array) -> tuple[bytes | memoryview, list[int]]:
    """Return the bytes of all texts, none of which is null, and where each ends."""
    import pyarrow as pa

    array, count = texts.cast(pa.binary()), len(texts)
    if not count:
        return b"", []
    _, offsets, data = array.buffers()
    start, *ends = memoryview(offsets)[4 * array.offset : 4 * (array.offset + count + 1)].cast("i")
    return memoryview(data or b"")[start : ends[-1]], [end - start for end in ends] if start else ends


def _within(limits: PayloadLimits, schema: pa.Schema, payloads: pa.Array) -> pa.Array:
    """Return the payloads, which keep within the limits of the queue.

    Raises:
        RowsUnlikeError: some may not.
    """
    import pyarrow.compute as pc

    kinds = [field.type for field in schema]
    if limits.strict_payload_types and any(map(_holds_pairs, kinds)):
        raise RowsUnlikeError("a map is a list of tuples")
    if limits.max_payload_depth is not None and 1 + max(map(_levels, kinds), default=0) > limits.max_payload_depth:
        raise RowsUnlikeError("a row may be nested too deeply")
    if limits.max_payload_bytes is not None:
        longest = pc.max(pc.binary_length(payloads)).as_py() or 0
        if longest > limits.max_payload_bytes:
            raise RowsUnlikeError("a row is too large")
    return payloads


def _looks_inside(limits: PayloadLimits) -> bool:
    return limits.strict_payload_types or limits.max_payload_depth is not None


def _children(kind: pa.DataType) -> list[pa.DataType]:
    from pyarrow import types

    if types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def _holds_pairs(kind: pa.DataType) -> bool:
    from pyarrow import types

    return types.is_map(kind) or any(map(_holds_pairs, _children(kind)))


def _levels(kind: pa.DataType) -> int:
    """Return how deep the lists and objects of a type are nested."""
    from pyarrow import types

    inner = max(map(_levels, _children(kind)), default=0)
    return inner + (2 if types.is_map(kind) else int(types.is_nested(kind)))


def _one_by_one(batch: pa.RecordBatch, first: int) -> Iterator[dict[str, Any]]:
    """Yield rows as dicts.

    Raises:
        ValueError: Python has no such value, or a text is not UTF-8; names the column, and `position` is the row's.
    """
    for start in range(0, batch.num_rows, SLICE_ROWS):
        part = batch.slice(start, SLICE_ROWS)
        try:
            with collector.paused():
                rows = part.to_pylist()
        except Exception:  # noqa: BLE001  (whatever it is, the same row raises it again)
            yield from _before_unreadable(part, first + start)
            return
        yield from rows


def _before_unreadable(batch: pa.RecordBatch, first: int) -> Iterator[dict[str, Any]]:
    """Yield rows up to the first that cannot be read, and raise an error that names it."""
    for index in range(batch.num_rows):
        row: dict[str, Any] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                row[name] = column[index].as_py()
            except Exception as error:  # noqa: BLE001
                why = "text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a value that Python lacks"
                unfit = ValueError(f"column {name!r} holds {why} ({type(error).__name__}); cast it, or repair it")
                unfit.__dict__["position"] = first + index
                raise unfit from None
        yield row
