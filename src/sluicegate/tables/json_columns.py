"""Write the rows of Arrow columns as JSON objects, a column at a time.

The text is the one that `core.json` makes of the dict of each row, byte for byte. What Arrow's kernels do not write the
same way is written value by value; where that fails too, the rows have to be encoded one by one, which names the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate.core import json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonColumns", "Piece", "RowsUnlikeError", "holds_any", "is_text", "joined", "texts_are_utf8"]

_CONTROLS = bytes(range(32))
_SPECIAL = _CONTROLS + b'"\\'
_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_MAX_DEPTH = json.MAX_DEPTH // 2
_NULL = "null"

Piece: TypeAlias = "str | pa.Array"
"""A text of every row: one for all, or an array with one for each."""


class RowsUnlikeError(Exception):
    """Some rows cannot be written by columns; encoding them one by one names the first that is unfit, if one is."""


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """Writes columns as JSON.

    Attributes:
        sort_keys: write objects in the order of their names instead of the columns'.
        default: replaces values that JSON cannot carry.
        values: turns a column that JSON cannot carry into one that it can, or into values; None: `to_pylist` does.
    """

    sort_keys: bool = False
    default: json.Default | None = None
    values: Callable[[pa.Array, str], pa.Array | list[Any] | None] | None = None

    def objects(
        self, names: Sequence[str], columns: Sequence[pa.Array], path: str = "", depth: int = 1
    ) -> Iterator[Piece]:
        """Yield the pieces of the objects with these names and columns; joined, they are the text of each row.

        Raises:
            RowsUnlikeError: a value cannot be written by columns.
        """
        if len(set(names)) < len(names):
            raise RowsUnlikeError("a name occurs twice")
        if depth > _MAX_DEPTH:
            raise RowsUnlikeError("nested too deeply")
        order = sorted(range(len(names)), key=names.__getitem__) if self.sort_keys else range(len(names))
        text = "{"
        for place, index in enumerate(order):
            try:
                name = json.dumps(names[index]).decode()
            except ValueError:
                raise RowsUnlikeError("a name cannot be written") from None
            text += f"{',' if place else ''}{name}:"
            for piece in self._pieces(columns[index], f"{path}{names[index]}", depth):
                if isinstance(piece, str):
                    text += piece
                else:
                    yield text
                    yield piece
                    text = ""
        yield text + "}"

    def _pieces(self, column: pa.Array, path: str, depth: int) -> Iterator[Piece]:
        """Yield what stands for each value of a column; text without nulls has its quotes in the pieces beside it."""
        from pyarrow import types

        if self._is_foreign(column):
            changed = self.values(column, path) if self.values is not None else None
            if changed is None or isinstance(changed, list):
                yield self._one_by_one(column.to_pylist() if changed is None else changed)
                return
            column = changed
        kind = column.type
        if types.is_null(kind):
            yield _NULL
        elif is_text(kind) and not column.null_count:
            yield '"'
            yield _escaped(column)
            yield '"'
        elif types.is_struct(kind) and not column.null_count and kind.num_fields:
            yield from self.objects([field.name for field in kind], column.flatten(), f"{path}.", depth + 1)
        else:
            yield self._texts(column, path, depth)

    def _texts(self, column: pa.Array, path: str, depth: int) -> pa.Array:
        """Return the JSON text of each value, without nulls."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import types

        kind = column.type
        if types.is_boolean(kind):
            return _or_null(pc.if_else(column, "true", "false"))
        if types.is_integer(kind):
            return _or_null(column.cast(pa.string()))
        if types.is_floating(kind):
            return _numbers(column)
        if is_text(kind):
            return _or_null(pc.binary_join_element_wise('"', _escaped(column), '"', ""))
        if types.is_dictionary(kind):
            if len(column.dictionary) > len(column):
                return joined([*self._pieces(column.dictionary_decode(), path, depth)], len(column))
            texts = joined([*self._pieces(column.dictionary, path, depth)], len(column.dictionary))
            return _or_null(texts.take(column.indices))
        if depth > _MAX_DEPTH:
            raise RowsUnlikeError("nested too deeply")
        if types.is_struct(kind):
            names = [field.name for field in kind]
            texts = joined([*self.objects(names, column.flatten(), f"{path}.", depth + 1)], len(column))
        elif types.is_map(kind):
            texts = self._pairs(column, path, depth)
        else:
            texts = self._lists(column, path, depth)
        return texts if not column.null_count else pc.if_else(column.is_valid(), texts, _NULL)

    def _lists(self, column: Any, path: str, depth: int) -> pa.Array:
        """Write all elements at once; `flatten` leaves out the elements of nulls."""
        elements = column.flatten()
        texts = joined([*self._pieces(elements, f"{path}[]", depth + 1)], len(elements))
        return _bracketed(column, texts)

    def _pairs(self, column: pa.MapArray, path: str, depth: int) -> pa.Array:
        """Write maps as lists of pairs, which they are in Python."""
        import pyarrow as pa

        kind = column.type
        pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
        lists = column.cast(pa.list_(pa.field("entries", pair, nullable=False)))
        keys, values = lists.flatten().flatten()
        pieces: list[Piece] = [
            "[",
            *self._pieces(keys, f"{path}[]", depth + 1),
            ",",
            *self._pieces(values, f"{path}[]", depth + 1),
            "]",
        ]
        return _bracketed(lists, joined(pieces, len(keys)))

    def _is_foreign(self, column: pa.Array) -> bool:
        """Return whether kernels cannot write a column's own values as JSON."""
        from pyarrow import types

        kind = column.type
        if types.is_nested(kind) and not types.is_union(kind):
            known = (types.is_struct, types.is_list, types.is_large_list, types.is_fixed_size_list)
            return not (any(is_kind(kind) for is_kind in known) or (types.is_map(kind) and self.values is None))
        return not (
            types.is_null(kind)
            or types.is_boolean(kind)
            or types.is_integer(kind)
            or types.is_float32(kind)
            or types.is_float64(kind)
            or types.is_dictionary(kind)
            or is_text(kind)
        )

    def _one_by_one(self, values: list[Any]) -> pa.Array:
        import pyarrow as pa

        dumps, sort_keys, default = json.dumps, self.sort_keys, self.default
        try:
            texts = [dumps(value, sort_keys=sort_keys, default=default) for value in values]
        except Exception as error:
            raise RowsUnlikeError("a value cannot be written") from error
        return pa.array(texts, pa.binary()).cast(pa.string())


def joined(pieces: Sequence[Piece], count: int) -> pa.Array:
    """Join pieces to one text per row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if not any(isinstance(piece, pa.Array) for piece in merged):
        return pa.repeat(pa.scalar("".join(merged), pa.string()), count)
    if len(merged) == 1:
        return merged[0]
    return pc.binary_join_element_wise(*merged, "")


def texts_are_utf8(column: pa.Array) -> bool:
    """Return whether every text of a column is UTF-8; Arrow takes the text of files and other programs as it is."""
    import pyarrow as pa

    if _data(column).isascii():
        return True
    try:
        column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def holds_any(column: pa.Array, special: bytes) -> bytes:
    """Return those of the given ASCII characters that occur in a text column; those of nulls may be among them."""
    data = _data(column)
    if len(data.translate(None, special)) == len(data):
        return b""
    return bytes(sorted(set(data) & set(special)))


def _data(column: pa.Array) -> bytes:
    """Return the bytes of the texts, one after the other; of large columns only those of these rows."""
    if not len(column):
        return b""
    _, offsets, values = column.buffers()
    if values is None:
        return b""
    at = memoryview(offsets).cast("i")
    start, stop = at[column.offset], at[column.offset + len(column)]
    data: bytes = values[start:stop].to_pybytes()
    return data


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _escaped(column: pa.Array) -> pa.Array:
    """Escape text as JSON does, without its quotes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    if not texts_are_utf8(column):
        raise RowsUnlikeError("text is not UTF-8")
    for special in _escapes(holds_any(column, _SPECIAL)):
        column = pc.replace_substring(column, special, _escape(special))
    return column


def _escapes(found: bytes) -> str:
    """Return what to escape, the backslash first, because escapes contain it."""
    return "".join(sorted(found.decode(), key=lambda char: (char != "\\", char)))


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _numbers(column: pa.Array) -> pa.Array:
    """Write floats as Python does; Arrow would write 1.0 as 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(column):
        return pa.array([], pa.string())
    wide = column.cast(pa.float64())
    if not isfinite(pc.sum(wide).as_py() or 0) and pc.all(pc.is_finite(wide)).as_py() is False:  # nulls do not count
        raise RowsUnlikeError("NaN or an infinity")
    dumps = json.dumps_alike if _are_alike(wide) else json.dumps
    text = dumps(wide.to_pylist())[1:-1].decode()
    return pc.split_pattern(pa.array([text], pa.string()), ",").flatten()


def _are_alike(numbers: pa.Array) -> bool:
    """Return whether both encoders write these numbers alike: 0, and those of usual size."""
    import pyarrow.compute as pc

    (least, beyond), size = json.ALIKE, pc.abs(numbers)
    found = pc.min_max(size).as_py()
    if found["min"] is None or (found["min"] >= least and found["max"] < beyond):
        return True
    usual = pc.and_(pc.greater_equal(size, least), pc.less(size, beyond))
    return bool(pc.all(pc.or_(pc.equal(size, 0.0), usual)).as_py())


def _bracketed(column: Any, texts: pa.Array) -> pa.Array:
    """Join the texts of the elements of each list, without those of nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count or not pa.types.is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    else:
        offsets = column.offsets
        offsets = pc.subtract(offsets, offsets[0]) if offsets[0].as_py() else offsets
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return pc.binary_join_element_wise("[", inner, "]", "")


def _or_null(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.fill_null(texts, _NULL) if texts.null_count else texts
