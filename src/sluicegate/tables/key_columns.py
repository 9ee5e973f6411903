"""Make the deduplication keys of Arrow rows by columns, equal to those that `core.deduplication` makes row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluicegate.core.bounds import MAX_KEY_BYTES
from sluicegate.core.deduplication import KeyLayout
from sluicegate.core.keys import RESERVED
from sluicegate.tables.json_columns import Piece, RowsUnlikeError, holds_any, is_text, joined, texts_are_utf8

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encoded_keys"]


def encoded_keys(layout: KeyLayout, names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return the key of each row as text, encoded as entries contain it.

    Args:
        layout: the fields of the key and what stands between them.
        names: of the columns.
        columns: of the rows.
        count: of the rows.

    Raises:
        RowsUnlikeError: a row has no key, or one that is encoded differently.
    """
    import pyarrow.compute as pc

    found = dict(zip(names, columns, strict=True))
    pieces: list[Piece] = [layout.literals[0]]
    for path, literal in zip(layout.paths, layout.literals[1:], strict=True):
        pieces += [_encoded(_field(found, path), layout.escapes), literal]
    keys = _marked(joined(pieces, count))
    if not count:
        return keys
    shortest, longest = pc.min_max(pc.binary_length(keys)).as_py().values()
    if not shortest or longest > MAX_KEY_BYTES:
        raise RowsUnlikeError("a key is empty or too long")
    return keys


def _field(found: dict[str, pa.Array], path: Sequence[str]) -> pa.Array:
    """Return the texts of a field, which has one in each row."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    column = found.get(path[0])
    for name in path[1:]:
        if column is None or not types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise RowsUnlikeError("a field is missing")
        column = pc.struct_field(column, name)
    if column is not None and types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column is None or column.null_count:
        raise RowsUnlikeError("a field is missing or null")
    if not is_text(column.type) and not types.is_integer(column.type):
        raise RowsUnlikeError("a field is neither text nor an integer")
    column = column.cast(pa.string())
    if not texts_are_utf8(column):
        raise RowsUnlikeError("text is not UTF-8")
    return column


def _encoded(column: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    """Encode what separates fields within a field, as `core.deduplication` does."""
    import pyarrow.compute as pc

    for char, code in escapes:
        column = pc.replace_substring(column, char, code)
    return column


def _marked(keys: pa.Array) -> pa.Array:
    """Encode what has a meaning in a key, the percent sign first, because the codes of the others contain it."""
    import pyarrow.compute as pc

    reserved = holds_any(keys, RESERVED)
    for mark in sorted(reserved.decode(), key=lambda char: (char != "%", char)):
        keys = pc.replace_substring(keys, mark, f"%{ord(mark):02X}")
    return keys
