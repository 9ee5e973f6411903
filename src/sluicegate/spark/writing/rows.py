"""Turn the rows of a DataFrame into messages: payloads, headers and deduplication keys, from Arrow columns.

JSON follows the core's rules. A type that JSON lacks becomes text: dates and times in ISO 8601, timestamps in UTC,
decimals as digits, binary as Base64. NaN and infinities are refused with the name of their column.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

from sluicegate.core import json
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.deduplication import KeyLayout, compile_key_function, key_fields, key_layout
from sluicegate.core.entry import encode_deduplication_key, encode_headers
from sluicegate.errors import ConfigurationError
from sluicegate.tables.json_columns import JsonColumns, Piece, RowsUnlikeError, joined
from sluicegate.tables.key_columns import encoded_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["RowPlan", "Rows", "plan_rows"]

_TEXTS = ("string", "char", "varchar")
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_ATOMS = _WHOLE | {"boolean", "float", "double", "binary", "date", "timestamp", "timestamp_ntz", "void"}
_FAMILIES = (*_TEXTS, "decimal", "time(")
_PAYLOAD = "payload"


@dataclass(frozen=True, slots=True)
class Rows:
    """Holds the fields of some rows as messages, by position: as columns as far as they were made by columns.

    Attributes:
        count: of the rows.
        texts: the payloads as they are stored, or the pieces that they are joined of.
        some_headers: the encoded headers, empty for none; None where no row has any.
        key_texts: the encoded deduplication keys; None for messages without keys.
    """

    count: int
    texts: list[bytes] | tuple[Piece, ...]
    some_headers: list[bytes] | None
    key_texts: list[bytes] | pa.Array | None

    @property
    def payloads(self) -> list[bytes]:
        """Return the payloads as they are stored."""
        return _bytes(joined(self.texts, self.count)) if isinstance(self.texts, tuple) else self.texts

    @property
    def headers(self) -> list[bytes]:
        """Return the encoded headers, empty for none."""
        return [b""] * self.count if self.some_headers is None else self.some_headers

    @property
    def keys(self) -> list[bytes] | None:
        """Return the encoded deduplication keys; None for messages without keys."""
        return self.key_texts if isinstance(self.key_texts, (list, NoneType)) else _bytes(self.key_texts)

    def parts(self) -> list[bytes]:
        """Return the client's part of each entry."""
        us = SEPARATOR
        if isinstance(self.texts, tuple) and self.some_headers is None and not isinstance(self.key_texts, list):
            key: list[Piece] = [] if self.key_texts is None else [self.key_texts]
            return _bytes(joined([us.decode(), *key, 2 * us.decode(), *self.texts], self.count))
        if self.keys is None:
            return [us + us + header + us + data for header, data in zip(self.headers, self.payloads, strict=True)]
        rows = zip(self.keys, self.headers, self.payloads, strict=True)
        return [us + key + us + header + us + data for key, header, data in rows]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Says which columns become what; a plain value, made on the driver and sent to the tasks.

    Attributes:
        columns: all names, in order.
        payload: the column that is published; None: all columns but the headers, as one JSON object.
        as_json: whether the payload column is neither text nor binary, and is published as JSON.
        headers: the column of maps with the headers.
        key_column: the column with the deduplication key.
        key_source: or the template, field or fields that make the key of a row.
        sort_keys: whether JSON objects are sorted by name instead of by column.
    """

    columns: tuple[str, ...]
    payload: str | None = None
    as_json: bool = False
    headers: str | None = None
    key_column: str | None = None
    key_source: str | tuple[str, ...] | None = None
    sort_keys: bool = False

    @property
    def keyed(self) -> bool:
        """Return whether the rows have deduplication keys."""
        return self.key_column is not None or self.key_source is not None

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """Turn some rows into messages.

        Raises:
            ValueError: a row cannot be a message; the text names the column, never its value.
            ConfigurationError: a deduplication key is null or empty; the text names the column.
        """
        found, count = dict(zip(self.columns, batch.columns, strict=True)), batch.num_rows
        return Rows(count, self._payloads(found, count), self._headers(found), self._keys(found, count))

    def _payloads(self, found: dict[str, Any], count: int) -> list[bytes] | tuple[Piece, ...]:
        if self.payload is None:
            names = [name for name in self.columns if name != self.headers]
            columns = [found[name] for name in names]
            try:
                return tuple(JsonColumns(self.sort_keys, values=_converted).objects(names, columns))
            except RowsUnlikeError:
                return [json.dumps(row, sort_keys=self.sort_keys) for row in _objects(names, columns, count)]
        column = found[self.payload]
        _refuse_nulls(column, f"payload column {self.payload!r}", "filter such rows out, or publish other columns")
        if self.as_json:
            return [json.dumps(value, sort_keys=self.sort_keys) for value in _values(column, self.payload)]
        return _bytes(column)

    def _headers(self, found: dict[str, Any]) -> list[bytes] | None:
        if self.headers is None:
            return None
        encoded: dict[tuple[Any, ...], bytes] = {}
        headers = []
        for pairs in found[self.headers].to_pylist():
            known = tuple(pairs or ())
            if known not in encoded:
                if any(value is None for _, value in known):
                    raise ValueError(f"headers column {self.headers!r} has a null value; leave such a header out")
                encoded[known] = encode_headers(dict(known))
            headers.append(encoded[known])
        return headers

    def _keys(self, found: dict[str, Any], count: int) -> list[bytes] | pa.Array | None:
        if self.key_column is None and self.key_source is None:
            return None
        if self.key_column is not None:
            layout = KeyLayout(["", ""], [(self.key_column,)])
        else:
            layout = key_layout(self.key_source or "")
        try:
            return encoded_keys(layout, [*found], [*found.values()], count)
        except RowsUnlikeError:
            return self._keys_one_by_one(found)

    def _keys_one_by_one(self, found: dict[str, Any]) -> list[bytes]:
        if self.key_column is not None:
            what = f"deduplication key column {self.key_column!r}"
            column = found[self.key_column]
            _refuse_nulls(column, what, _GIVE_KEYS)
            texts = [str(value) for value in _values(column, self.key_column)]
            if "" in texts:
                raise ConfigurationError(f"{what} is empty in {texts.count('')} of {len(texts)} rows; {_GIVE_KEYS}")
        else:
            source = self.key_source if isinstance(self.key_source, str) else list(self.key_source or ())
            names = list(dict.fromkeys(path.split(".")[0] for path in key_fields(source)))
            for name in names:
                _refuse_nulls(found[name], f"column {name!r}, of which the deduplication key is made,", _GIVE_KEYS)
            make, columns = compile_key_function(source), [found[name] for name in names]
            texts = [make(row) for row in _objects(names, columns, len(columns[0]))]
        return [encode_deduplication_key(text) for text in texts]


_GIVE_KEYS = "give every row a key (dropna, coalesce), or leave the option out for automatic keys"


def plan_rows(
    schema: StructType,
    *,
    payload: str | None = None,
    headers: str | None = None,
    key_column: str | None = None,
    key_source: str | Sequence[str] | None = None,
    sort_keys: bool = False,
) -> RowPlan:
    """Decide which columns become what, and refuse columns that no row could make valid.

    Args:
        schema: the schema of the DataFrame.
        payload: the column to publish; None: `payload` if it is a text or binary column, else all columns as JSON.
        headers: a column of maps from text to text.
        key_column: the column with the deduplication key.
        key_source: or a template, a field name or a list of them that makes the key of a row, read as JSON.
        sort_keys: the queue's option.

    Raises:
        ConfigurationError: a column is missing, occurs twice or has a type that cannot be published.
    """
    columns = tuple(field.name for field in schema.fields)
    kinds = {field.name: field.dataType.jsonValue() for field in schema.fields}
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ConfigurationError(f"the column {twice[0]!r} occurs twice; rename one, since messages are made by name")
    _find(payload, kinds, "payloadColumn")
    if payload is None and _PAYLOAD in kinds and _is_stored(kinds[_PAYLOAD]):
        payload = _PAYLOAD
    if _find(headers, kinds, "headersColumn") is not None and not _is_text_map(kinds[headers or ""]):
        raise ConfigurationError(f"headersColumn {headers!r} must be a map<string,string>; make one with map()")
    kind = _find(key_column, kinds, "deduplicationKeyColumn")
    if kind is not None and not (isinstance(kind, str) and (kind in _WHOLE or kind.startswith(_TEXTS))):
        raise ConfigurationError(f"deduplicationKeyColumn {key_column!r} must hold text or whole numbers; cast it")
    for path in key_fields(key_source) if key_source is not None else []:
        _check(_find(path.split(".")[0], kinds, f"the deduplication key's field {path!r}"), path)
    if key_source is not None:
        compile_key_function(key_source)
    for name in [payload] if payload is not None else [name for name in columns if name != headers]:
        _check(kinds[name], name)
    as_json = payload is not None and not _is_stored(kinds[payload])
    if as_json and isinstance(kinds[payload or ""], str):
        raise ConfigurationError(f"payloadColumn {payload!r} must hold text, binary, structs, arrays or maps")
    source = key_source if key_source is None or isinstance(key_source, str) else tuple(key_source)
    return RowPlan(columns, payload, as_json, headers, key_column, source, sort_keys)


def _find(name: str | None, kinds: dict[str, Any], option: str) -> Any:
    if name is None:
        return None
    if name not in kinds:
        raise ConfigurationError(f"{option} names the column {name!r}; there are {', '.join(kinds) or 'none'}")
    return kinds[name]


def _is_stored(kind: Any) -> bool:
    return isinstance(kind, str) and (kind == "binary" or kind.startswith(_TEXTS))


def _is_text_map(kind: Any) -> bool:
    return isinstance(kind, dict) and kind["type"] == "map" and {kind["keyType"], kind["valueType"]} == {"string"}


def _check(kind: Any, path: str) -> None:
    """Refuse a type that no JSON value can represent."""
    if isinstance(kind, str):
        if kind not in _ATOMS and not kind.startswith(_FAMILIES):
            raise ConfigurationError(f"column {path!r} has the type {kind}, which JSON cannot carry; cast it to string")
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            _check(field["type"], f"{path}.{field['name']}")
    elif kind["type"] == "array":
        _check(kind["elementType"], f"{path}[]")
    elif kind["type"] == "map":
        if not isinstance(kind["keyType"], str) or not (
            kind["keyType"] in _WHOLE or kind["keyType"].startswith(_TEXTS)
        ):
            raise ConfigurationError(f"column {path!r} is a map whose keys are neither text nor whole numbers")
        _check(kind["valueType"], f"{path}{{}}")
    else:
        raise ConfigurationError(f"column {path!r} has the type {kind['type']}, which JSON cannot carry; cast it")


# ---------------------------------------------------------------------- values


def _refuse_nulls(column: pa.Array, what: str, how: str) -> None:
    if column.null_count:
        raise ConfigurationError(f"{what} is null in {column.null_count} of {len(column)} rows; {how}")


def _bytes(column: pa.Array) -> list[bytes]:
    """Return text and binary as they are stored; Arrow's text is UTF-8 already."""
    import pyarrow as pa

    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    found: list[bytes] = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return found


def _converted(column: pa.Array, path: str) -> Any:
    """Return a column that JSON lacks as one that it has; None for one whose own values are JSON's."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_temporal(kind) or types.is_decimal(kind):
        return _texts(column)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.array(_values(column, path), pa.string())
    return _values(column, path)


def _objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> Iterator[dict[str, Any]]:
    """Return an iterator over the rows as dicts."""
    if not columns:
        return iter([{} for _ in range(count)])
    values = [_values(column, name) for name, column in zip(names, columns, strict=True)]
    return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def _values(column: pa.Array, path: str) -> list[Any]:
    """Return a column as JSON values.

    Raises:
        ValueError: it holds NaN, an infinity or text that is not UTF-8; the text names the column.
    """
    from pyarrow import types

    kind = column.type
    if types.is_floating(kind):
        _refuse_infinite(column, path)
    elif types.is_temporal(kind) or types.is_decimal(kind):
        column = _texts(column)
    elif types.is_struct(kind):
        return _structs(column, path)
    elif types.is_map(kind):
        return _maps(column, path)
    elif types.is_list(kind) or types.is_large_list(kind):
        return _lists(column, path)
    elif types.is_binary(kind) or types.is_large_binary(kind):
        return [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise ValueError(f"column {path!r} holds text that is not UTF-8; cast it to binary") from None
    return found


def _refuse_infinite(column: pa.Array, path: str) -> None:
    import pyarrow.compute as pc

    if pc.all(pc.is_finite(column)).as_py() is False:  # nulls do not count
        raise ValueError(
            f"column {path!r} holds NaN or an infinity, which JSON lacks; replace it by null, or cast it to string"
        )


def _texts(column: pa.Array) -> pa.Array:
    """Write dates and times in ISO 8601 and decimals as digits; an instant is written in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return texts if column.type.tz is None else pc.binary_join_element_wise(texts, "Z", "")
    return column.cast(pa.string())


def _structs(column: pa.StructArray, path: str) -> list[Any]:
    names = [column.type.field(index).name for index in range(column.type.num_fields)]
    rows = list(_objects([f"{path}.{name}" for name in names], column.flatten(), len(column)))
    short = [dict(zip(names, row.values(), strict=True)) for row in rows]
    if not column.null_count:
        return short
    return [row if valid else None for row, valid in zip(short, column.is_valid().to_pylist(), strict=True)]


def _lists(column: Any, path: str) -> list[Any]:
    """Convert all elements at once; `flatten` leaves out the elements of nulls."""
    elements, lengths = iter(_values(column.flatten(), f"{path}[]")), column.value_lengths().to_pylist()
    return [None if length is None else [next(elements) for _ in range(length)] for length in lengths]


def _maps(column: pa.MapArray, path: str) -> list[Any]:
    offsets = column.offsets.to_pylist()  # of these rows; keys and items are those of the whole array
    first, count = offsets[0], offsets[-1] - offsets[0]
    names = [str(name) for name in _values(column.keys.slice(first, count), path)]
    pairs = list(zip(names, _values(column.items.slice(first, count), f"{path}{{}}"), strict=True))
    rows = zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
    return [dict(pairs[start - first : end - first]) if valid else None for start, end, valid in rows]
