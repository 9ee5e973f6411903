"""Turn JSON payloads into typed Arrow columns, with one call of Arrow's reader per block of messages.

Payloads are joined by newlines. Each must begin with `{` and end with `}`; the reader refuses a newline inside a
string, and `}` newline `{` is JSON nowhere but between two documents. So every joint is one, and as many rows as
messages mean that each payload is exactly one object: no row can shift, whatever a payload holds. The braces also
keep a `null` from being the first document of a text, which ends the process in some versions of the reader.
"""

from __future__ import annotations

import json as stdlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sluicegate.core import json
from sluicegate.errors import RedisMessageQueueError
from sluicegate.tables.arrays import int32s, text_scalar
from sluicegate.tables.raw_json import holds_text, reshaped
from sluicegate.tables.types import holds_map, holds_variant, is_variant, reading_type
from sluicegate.tables.variants import to_variants

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PayloadError", "read_payloads"]

_SPACE = " \t\r\n"
_MAX_BYTES = 2**31 - 1  # of a block of the reader
_FEWEST_TO_SIFT = 16
_KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
Instants = Callable[["pa.DataType"], "pa.DataType"]


class PayloadError(RedisMessageQueueError, ValueError):
    """Payloads of a batch do not fit the declared schema; the text names the messages and the field, never the payload.

    Attributes:
        positions: the positions of all such messages in the batch, from 0, ascending.
        message_ids: their ids.
        reason: what is wrong with the first one.
    """

    def __init__(self, message: str, *, positions: Sequence[int], message_ids: Sequence[str], reason: str) -> None:
        super().__init__(message)
        self.positions = tuple(positions)
        self.message_ids = tuple(message_ids)
        self.reason = reason


def read_payloads(payloads: pa.Array, schema: pa.Schema) -> tuple[list[pa.Array], list[int]]:
    """Read payloads into one array per field, or return no arrays and the positions of payloads that do not fit.

    A missing field is null, as is a null one; fields that are not declared are ignored. Integers are read as doubles
    and decimals; no other value is converted to another type.

    Args:
        payloads: a binary array without nulls.
        schema: as `_types.arrow_type` makes its types.
    """
    import pyarrow as pa

    if not len(payloads):
        return [pa.nulls(0, field.type) for field in schema], []
    parts: list[list[pa.Array]] = []
    bad: list[int] = []
    _search(payloads, range(len(payloads)), schema, parts, bad)
    if bad:
        return [], sorted(bad)
    return (parts[0] if len(parts) == 1 else [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]), []


def explain(payload: bytes, schema: pa.Schema) -> str:
    """Say why a payload cannot be read, without quoting anything of it but declared names."""
    import pyarrow as pa

    pairs: list[tuple[str, Any]] = []

    def keep(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs[:] = found  # the outermost object is the last to be complete
        return dict(found)

    try:
        value = json.loads(payload)
        if not isinstance(value, dict):
            return f"it is {_kind(value)}, and no object"
        stdlib.loads(payload, object_pairs_hook=keep)
    except (ValueError, RecursionError):
        return "it is not JSON"
    names = [name for name, _ in pairs]
    for field in schema:
        if names.count(field.name) > 1:
            return f"field {field.name!r} stands in it twice"
        if type(value.get(field.name)) not in _kinds_for(field):
            return _explain_field(value, field, field.name)
    for field in schema:
        if _read(pa.array([payload], pa.binary()), pa.schema([field])) is not None:
            continue
        return _explain_field(value, field, field.name)
    return "it cannot be read by Arrow"


def _explain_field(parent: dict[str, Any], field: pa.Field, top: str, path: str = "") -> str:
    """Say what is wrong with a field that does not fit, and at which path if a part of it is the cause.

    Args:
        parent: the object that holds the field.
        field: does not fit.
        top: the name of the declared field that it is or is a part of.
        path: to the part, from `$` on; "" for the declared field itself.
    """
    import pyarrow as pa

    what = f"field {top!r} at {path}" if path else f"field {top!r}"
    value = parent.get(field.name)
    if value is None:
        return f"{what} is {'null' if field.name in parent else 'missing'}, and declared as not null"
    for step, part, inner in _parts(value, field.type):
        if not _fits(part.get(inner.name), inner):
            return _explain_field(part, inner, top, f"{path or f'$.{top}'}{step}")
    hint = " (a time without a zone)" if field.type == pa.timestamp("us") else ""
    return f"{what} is {_kind(value)} that does not fit {field.type}{hint}"


def _parts(value: Any, arrow: pa.DataType) -> Iterator[tuple[str, dict[str, Any], pa.Field]]:
    """Yield the parts of a value: the step of the path to each, the object that holds it, and its field.

    The keys of a map are published and not declared, so no path shows them.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_struct(arrow) and isinstance(value, dict):
        for index in range(arrow.num_fields):
            yield f".{arrow.field(index).name}", value, arrow.field(index)
    elif types.is_list(arrow) and isinstance(value, list):
        for at, item in enumerate(value):
            yield f"[{at}]", {"item": item}, pa.field("item", arrow.value_type, arrow.value_field.nullable)
    elif types.is_map(arrow) and isinstance(value, dict):
        for item in value.values():
            yield ".*", {"value": item}, pa.field("value", arrow.item_type, arrow.item_field.nullable)


def _fits(value: Any, field: pa.Field) -> bool:
    import pyarrow as pa

    try:
        text = json.dumps({field.name: value})
    except ValueError:  # a number that only the text of the payload can hold: the whole is to blame
        return True
    return _read(pa.array([text], pa.binary()), pa.schema([field])) is not None


def _search(
    payloads: pa.Array, places: Sequence[int], schema: pa.Schema, parts: list[list[pa.Array]], bad: list[int]
) -> None:
    """Read a block; halve a block that cannot be read until each bad payload is alone.

    Payloads with a value of a wrong kind are found first and at once, because a field that never fits would otherwise
    cost two calls of the reader per payload.

    Args:
        payloads: of the block.
        places: their positions in the batch.
        schema: to read.
        parts: gets the columns of each block that can be read.
        bad: gets the positions of the others, in no order.
    """
    arrays = _read(payloads, schema)
    if arrays is not None:
        parts.append(arrays)
        return
    unfit = _of_wrong_kind(payloads, schema) if len(payloads) >= _FEWEST_TO_SIFT else set()
    if unfit:
        bad += [places[at] for at in unfit]
        kept = [at for at in range(len(payloads)) if at not in unfit]
        payloads, places = payloads.take(_indices(kept)), [places[at] for at in kept]
    _halve(payloads, places, schema, parts, bad, unreadable=not unfit)


def _halve(
    payloads: pa.Array,
    places: Sequence[int],
    schema: pa.Schema,
    parts: list[list[pa.Array]],
    bad: list[int],
    *,
    unreadable: bool = False,
) -> None:
    """Do as `_search` without looking at kinds; `unreadable` says that the block has been tried."""
    arrays = None if unreadable or not len(payloads) else _read(payloads, schema)
    if arrays is not None:
        parts.append(arrays)
    elif len(payloads) == 1:
        bad.append(places[0])
    elif len(payloads):
        middle = len(payloads) // 2
        _halve(payloads[:middle], places[:middle], schema, parts, bad)
        _halve(payloads[middle:], places[middle:], schema, parts, bad)


def _of_wrong_kind(payloads: pa.Array, schema: pa.Schema) -> set[int]:
    """Return positions of payloads with a value that no payload may have; those that cannot be parsed are left out."""
    kinds = [(field.name, _kinds_for(field)) for field in schema]
    found = set()
    for at, payload in enumerate(payloads.to_pylist()):
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and any(type(value.get(name)) not in allowed for name, allowed in kinds):
            found.add(at)
    return found


def _kinds_for(field: pa.Field) -> set[type]:
    """Return the Python types of the JSON values that may fit a field."""
    from pyarrow import types

    arrow = field.type
    if types.is_string(arrow) or is_variant(arrow):
        return {bool, int, float, str, list, dict, type(None)}
    if types.is_boolean(arrow):
        kinds: set[type] = {bool}
    elif types.is_integer(arrow):
        kinds = {int}
    elif types.is_floating(arrow):
        kinds = {int, float}
    elif types.is_decimal(arrow):
        kinds = {int, float, str}
    elif types.is_list(arrow):
        kinds = {list}
    elif types.is_struct(arrow) or types.is_map(arrow):
        kinds = {dict}
    else:
        kinds = {str}
    return kinds | {type(None)} if field.nullable else kinds


def _indices(positions: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(positions, pa.int64())


def _read(payloads: pa.Array, schema: pa.Schema) -> list[pa.Array] | None:
    """Return the columns of a block, None if any of its payloads does not fit."""
    mapped = [field for field in schema if holds_map(field.type) or holds_variant(field.type)]
    plain = [field for field in schema if field not in mapped]
    found: dict[str, pa.Array] = {}
    try:
        if plain:
            found |= _parse_plain(payloads, plain)
        if mapped:
            found |= _parse(_reshaped(payloads, mapped), mapped)
    except (ValueError, TypeError, RecursionError):  # Arrow's errors are ValueErrors
        return None
    return [found[field.name] for field in schema]


def _parse_plain(payloads: pa.Array, fields: list[pa.Field]) -> dict[str, pa.Array]:
    """Parse fields without maps; rewrite the payloads only if a value that is no string may stand in for one."""
    try:
        return _parse(payloads, fields)
    except ValueError:
        if not any(holds_text(field.type) for field in fields):
            raise
        return _parse(_reshaped(payloads, fields), fields)


def _reshaped(payloads: pa.Array, fields: list[pa.Field]) -> pa.Array:
    import pyarrow as pa

    return pa.array([reshaped(payload, fields) for payload in payloads.to_pylist()], pa.binary())


def _parse(payloads: pa.Array, fields: list[pa.Field]) -> dict[str, pa.Array]:
    data = _joined(payloads)
    try:
        return _parse_block(data, len(payloads), fields, lambda arrow: arrow)
    except ValueError:
        if not any("timestamp" in str(field.type) for field in fields):
            raise
        # Digits below the microsecond, as some languages write them, can only be read as what they are; but
        # nanoseconds end in 2262, so they come second.
        return _parse_block(data, len(payloads), fields, _nanoseconds)


def _joined(payloads: pa.Array) -> pa.Buffer:
    """Build the text for the reader.

    Raises:
        ValueError: a payload is no object, or not UTF-8 (which the reader does not look at).
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    texts = payloads.cast(pa.string())
    if not _are_braced(texts):
        texts = pc.ascii_trim(texts, _SPACE)
        if not _are_braced(texts):
            raise ValueError("no object")
    whole = pa.ListArray.from_arrays(int32s([0, len(texts)]), texts)
    return pc.binary_join(whole, text_scalar("\n"))[0].as_buffer()


def _are_braced(texts: pa.Array) -> bool:
    from pyarrow import compute as pc

    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _parse_block(data: pa.Buffer, rows: int, fields: list[pa.Field], instants: Instants) -> dict[str, pa.Array]:
    """Read the columns of a text with one object per row.

    Raises:
        ValueError: it does not fit.
    """
    import pyarrow as pa
    from pyarrow import json as reader

    if data.size >= _MAX_BYTES:
        raise ValueError("too large for one block")
    asked = [pa.field(field.name, reading_type(field.type, instants)) for field in fields]
    table = reader.read_json(
        pa.BufferReader(data),
        # One block: where it were cut, a payload that holds newlines could be cut too.
        read_options=reader.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=reader.ParseOptions(explicit_schema=pa.schema(asked), unexpected_field_behavior="ignore"),
    )
    if table.num_rows != rows:
        raise ValueError("more objects than payloads")
    arrays = {field.name: _conform(table.column(field.name), field) for field in fields}
    if not all(_holds(arrays[field.name], field) for field in fields):
        raise ValueError("null where it must not be")
    if not all(_is_finite(array) for array in arrays.values()):
        raise ValueError("a number out of range, or one that JSON has not")
    return arrays


def _conform(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return _as_type(array, field.type)


def _as_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert the columns that were read into the wanted ones, without a copy if only names and nullability differ.

    Raises:
        ValueError: a text that is no date or no Base64, a time with a zone that is to have none, or a name that is no
            number.
    """
    import pyarrow as pa
    from pyarrow import types

    if array.type == wanted:
        return array
    if is_variant(wanted):
        return to_variants(array, wanted)
    if types.is_binary(wanted):
        return pa.array([None if text is None else _from_base64(text) for text in array.to_pylist()], wanted)
    if types.is_struct(wanted):
        children = [_as_type(array.field(index), wanted.field(index).type) for index in range(wanted.num_fields)]
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:1], children=children)
    if types.is_list(wanted):
        children = [_as_type(array.values, wanted.value_type)]
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], children=children)
    if types.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        children = [_as_type(array.values, entries)]
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], children=children)
    if types.is_string(array.type) and types.is_integer(wanted):
        return _numbers(array, wanted)
    if types.is_string(array.type) and types.is_timestamp(wanted):
        return _local_times(array, wanted)
    return array.cast(wanted, safe=not types.is_timestamp(wanted))


def _numbers(names: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert the names of a map to numbers; each must be in its one notation, so that no two become one key."""
    from pyarrow import compute as pc

    numbers = names.cast(wanted)
    if pc.all(pc.equal(numbers.cast(names.type), names)).as_py() is False:
        raise ValueError("a name that is no number as it is written")
    return numbers


def _local_times(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert to times without a zone; the cast refuses a zone, which the JSON reader would convert to UTC."""
    import pyarrow as pa

    try:
        return texts.cast(wanted)
    except ValueError:  # more digits than microseconds have
        return texts.cast(pa.timestamp("ns")).cast(wanted, safe=False)


def _is_finite(array: pa.Array) -> bool:
    """Return whether no float, at any depth, is NaN or infinite.

    The reader accepts these words, which are not JSON, and turns numbers that a float cannot hold into infinities.
    """
    from pyarrow import compute as pc
    from pyarrow import types

    if types.is_floating(array.type):
        return pc.all(pc.is_finite(array)).as_py() is not False  # nulls are left out
    if types.is_struct(array.type):
        return all(_is_finite(array.field(index)) for index in range(array.type.num_fields))
    if types.is_list(array.type):
        return _is_finite(array.values)
    if types.is_map(array.type):
        return _is_finite(array.items)
    return True


def _holds(array: pa.Array, field: pa.Field) -> bool:
    """Return whether no value is null that must not be, in the column and in its parts."""
    from pyarrow import types

    if not field.nullable and array.null_count:
        return False
    if types.is_struct(field.type):
        below = array.drop_null() if array.null_count else array
        return all(_holds(below.field(index), field.type.field(index)) for index in range(field.type.num_fields))
    if types.is_list(field.type):
        return _holds(array.flatten(), field.type.value_field)
    if types.is_map(field.type):
        return _holds(array.items, field.type.item_field)
    return True


def _nanoseconds(arrow: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("ns", arrow.tz)


def _from_base64(text: str) -> bytes:
    import base64

    return base64.b64decode(text, validate=True)


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS[type(value)]
