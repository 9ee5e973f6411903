"""Convert column types between Spark's JSON form, Arrow's types, and the types that the JSON reader reads.

Independent of the installed Spark: its own conversions change their signatures from version to version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Kind",
    "arrow_type",
    "holds_map",
    "holds_variant",
    "is_variant",
    "kind_of",
    "reading_type",
    "refuse_inexact",
]

Kind: TypeAlias = "str | dict[str, Any]"
"""A Spark type as `DataType.jsonValue()` gives it: a name, or a dict for structs, arrays and maps."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_EXACT_DIGITS = 15  # of a decimal that survives being a double on its way
_HOW = "declare it as string and convert it yourself"
_VARIANT_MARK = (b"variant", b"true")
_KEYS = ("string", "byte", "short", "integer", "long")


def arrow_type(kind: Kind, where: str) -> pa.DataType:
    """Return the Arrow type that Spark requires of a column.

    Args:
        kind: Spark's type.
        where: name of the column, for errors.

    Raises:
        ConfigurationError: a type that cannot be read out of JSON.
    """
    import pyarrow as pa

    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind == "variant":
            return _variant()
        atoms = {name: make() for name, make in _atoms().items()}
        if kind not in atoms:
            raise ConfigurationError(f"column {where!r} has the type {kind}, which cannot be read out of JSON; {_HOW}")
        return atoms[kind]
    if kind["type"] == "struct":
        return pa.struct(struct_fields(kind, where))
    if kind["type"] == "array":
        return pa.list_(
            pa.field("element", arrow_type(kind["elementType"], f"{where}[]"), nullable=kind["containsNull"])
        )
    if kind["type"] == "map":
        if kind["keyType"] not in _KEYS:
            raise ConfigurationError(
                f"column {where!r} is a map whose keys are neither strings nor whole numbers, as names in JSON are"
            )
        value = arrow_type(kind["valueType"], f"{where}{{}}")
        return pa.map_(
            pa.field("key", arrow_type(kind["keyType"], where), nullable=False),
            pa.field("value", value, nullable=kind["valueContainsNull"]),
        )
    raise ConfigurationError(f"column {where!r} has the type {kind['type']}, which cannot be read out of JSON; {_HOW}")


def struct_fields(kind: dict[str, Any], where: str = "") -> list[pa.Field]:
    """Return the fields of a struct or a schema.

    Raises:
        ConfigurationError: a type that cannot be read out of JSON, no field, or two of one name.
    """
    import pyarrow as pa

    names = [field["name"] for field in kind["fields"]]
    if not names:
        raise ConfigurationError(
            f"column {where!r} is a struct without fields" if where else "the schema has no columns"
        )
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"the name {name!r} stands twice in {f'column {where!r}' if where else 'the schema'}"
            )
    return [
        pa.field(
            field["name"],
            arrow_type(field["type"], f"{where}.{field['name']}" if where else field["name"]),
            nullable=field["nullable"],
        )
        for field in kind["fields"]
    ]


def kind_of(arrow: pa.DataType, where: str) -> Kind:
    """Return Spark's type for an Arrow type; Spark's units of time, zones and offset sizes replace Arrow's.

    Raises:
        ConfigurationError: a type that Spark or JSON has not, such as an unsigned integer.
    """
    from pyarrow import types

    for name, make in _atoms().items():
        if arrow == make():
            return name
    if types.is_large_string(arrow) or types.is_string_view(arrow):
        return "string"
    if types.is_large_binary(arrow) or types.is_binary_view(arrow) or types.is_fixed_size_binary(arrow):
        return "binary"
    if types.is_date64(arrow):
        return "date"
    if types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_struct(arrow):
        return struct_of([arrow.field(index) for index in range(arrow.num_fields)], where)
    if types.is_list(arrow) or types.is_large_list(arrow):
        element = arrow.value_field
        return {"type": "array", "elementType": kind_of(element.type, f"{where}[]"), "containsNull": element.nullable}
    if types.is_map(arrow):
        return {
            "type": "map",
            "keyType": kind_of(arrow.key_type, where),
            "valueType": kind_of(arrow.item_type, f"{where}{{}}"),
            "valueContainsNull": arrow.item_field.nullable,
        }
    raise ConfigurationError(f"column {where!r} has the Arrow type {arrow}, which Spark has not; take one that it has")


def struct_of(fields: list[pa.Field], where: str = "") -> dict[str, Any]:
    """Return Spark's struct for Arrow fields.

    Raises:
        ConfigurationError: as `kind_of`.
    """
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": kind_of(field.type, f"{where}.{field.name}" if where else field.name),
                "nullable": field.nullable,
                "metadata": {},
            }
            for field in fields
        ],
    }


def reading_type(
    arrow: pa.DataType, instants: Callable[[pa.DataType], pa.DataType] = lambda arrow: arrow
) -> pa.DataType:
    """Return the type that Arrow's JSON reader reads in place of a type, before the conversion to it.

    The reader knows no maps, takes dates for numbers of days and bytes for text, and refuses a null struct whose fields
    must not be null. It moves a time with a zone to UTC, so a time that is to have none is read as text.

    Args:
        arrow: the wanted type.
        instants: what to read a timestamp as.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_date(arrow) or types.is_binary(arrow) or (types.is_timestamp(arrow) and arrow.tz is None):
        return pa.string()
    if is_variant(arrow):
        return pa.string()  # of JSON, as `raw_json` writes it
    if types.is_timestamp(arrow):
        return instants(arrow)
    if types.is_struct(arrow):
        fields = [arrow.field(index) for index in range(arrow.num_fields)]
        return pa.struct([pa.field(field.name, reading_type(field.type, instants)) for field in fields])
    if types.is_list(arrow):
        return pa.list_(pa.field(arrow.value_field.name, reading_type(arrow.value_type, instants)))
    if types.is_map(arrow):
        entry = [pa.field("key", pa.string()), pa.field("value", reading_type(arrow.item_type, instants))]
        return pa.list_(pa.field("entries", pa.struct(entry)))
    return arrow


def holds_map(arrow: pa.DataType) -> bool:
    """Return whether a type is a map or contains one."""
    from pyarrow import types

    return types.is_map(arrow) or any(holds_map(arrow.field(index).type) for index in range(arrow.num_fields))


def is_variant(arrow: pa.DataType) -> bool:
    """Return whether a type is the struct in which Spark puts a variant."""
    from pyarrow import types

    if not types.is_struct(arrow) or arrow.num_fields != 2:
        return False
    return bool((arrow.field(1).metadata or {}).get(_VARIANT_MARK[0]) == _VARIANT_MARK[1])


def holds_variant(arrow: pa.DataType) -> bool:
    """Return whether a type is a variant or contains one."""
    return is_variant(arrow) or any(holds_variant(arrow.field(index).type) for index in range(arrow.num_fields))


def refuse_inexact(arrow: pa.DataType, where: str) -> None:
    """Refuse a decimal beside or inside a map when its digits would not survive.

    Raises:
        ConfigurationError: naming the column.
    """
    from pyarrow import types

    if types.is_decimal(arrow) and arrow.precision > _EXACT_DIGITS:
        raise ConfigurationError(
            f"column {where!r} holds a map and a decimal of {arrow.precision} digits; numbers of a column with a map "
            f"are exact up to {_EXACT_DIGITS} digits: declare the decimal smaller, or as string"
        )
    for index in range(arrow.num_fields):
        refuse_inexact(arrow.field(index).type, where)


def _variant() -> pa.DataType:
    import pyarrow as pa

    metadata = pa.field("metadata", pa.binary(), nullable=False, metadata=dict([_VARIANT_MARK]))
    return pa.struct([pa.field("value", pa.binary(), nullable=False), metadata])


def _atoms() -> dict[str, Callable[[], pa.DataType]]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_,
        "byte": pa.int8,
        "short": pa.int16,
        "integer": pa.int32,
        "long": pa.int64,
        "float": pa.float32,
        "double": pa.float64,
        "string": pa.string,
        "binary": pa.binary,
        "date": pa.date32,
        "timestamp": lambda: pa.timestamp("us", "UTC"),
        "timestamp_ntz": lambda: pa.timestamp("us"),
    }
