"""Define the columns of a batch: those of the messages, and those read from JSON payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sluicegate.core import json
from sluicegate.errors import ConfigurationError
from sluicegate.message import Message
from sluicegate.tables import types
from sluicegate.tables.arrow import message_arrays
from sluicegate.tables.payloads import PayloadError, explain, read_payloads

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MESSAGE_FIELDS", "Columns", "Schema"]

PREFIX = "message_"
_HEADERS = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
_MESSAGE_TYPES: dict[str, tuple[types.Kind, bool]] = {
    "id": ("string", False),
    "payload": ("binary", True),
    "headers": (_HEADERS, True),
    "deduplication_key": ("string", True),
    "delivery_count": ("integer", True),
    "sequence": ("long", True),
    "enqueued_at": ("timestamp", True),
}
MESSAGE_FIELDS = tuple(_MESSAGE_TYPES)
_BESIDE_OTHERS = ("id", "headers", "deduplication_key", "delivery_count", "sequence", "enqueued_at", "payload")
_NEVER_NULL = frozenset({"id", "payload", "headers", "delivery_count", "sequence", "enqueued_at"})


class StructType(Protocol):
    """Declares `pyspark.sql.types.StructType`, which this package reads without importing Spark."""

    def jsonValue(self) -> dict[str, Any]: ...


Schema: TypeAlias = "str | StructType | pa.Schema"
"""What declares the fields of JSON payloads. DDL text needs a Spark session, which `sluicegate.spark` asks."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Describes a table of messages as a plain value that can be pickled, without objects of Spark or Arrow.

    Attributes:
        schema: Spark's schema as JSON.
        sources: per column, the field of the message that it holds, "" if it is read from the payload.
    """

    schema: str
    sources: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema | None, *, message_columns: bool = True) -> Columns:
        """Make the columns for a declared schema.

        Args:
            schema: of the JSON payloads: DDL text, a Spark `StructType` or a `pyarrow.Schema`. None: the columns of the
                messages themselves, unprefixed, and the payload as it is; so does a schema that is exactly those.
            message_columns: whether the columns `message_id`, `message_headers`, `message_deduplication_key`,
                `message_delivery_count`, `message_sequence`, `message_enqueued_at` and `message_payload` are appended
                where they are not declared. Declared, they hold the message's in any case.

        Raises:
            ConfigurationError: DDL without a session or with an error in it, a type that cannot be read out of JSON,
                two columns of one name, a reserved name with another type than the message's.
        """
        own = _struct({name: name for name in _MESSAGE_TYPES})
        declared = own if schema is None else _declared(schema)
        if _shape(declared) == _shape(own):
            return cls._checked(declared, MESSAGE_FIELDS)
        types.struct_fields(declared)
        sources = [_source(field) for field in declared["fields"]]
        fields = list(declared["fields"])
        if message_columns:
            missing = [name for name in _BESIDE_OTHERS if name not in sources]
            fields += _struct({PREFIX + name: name for name in missing})["fields"]
            sources += missing
        return cls._checked({"type": "struct", "fields": fields}, tuple(sources))

    @classmethod
    def _checked(cls, kind: dict[str, Any], sources: tuple[str, ...]) -> Columns:
        for field, source in zip(types.struct_fields(kind), sources, strict=True):
            if not source and types.holds_map(field.type):
                types.refuse_inexact(field.type, field.name)
        return cls(json.dumps(kind).decode(), sources)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(field["name"] for field in json.loads(self.schema)["fields"])

    def arrow_schema(self) -> pa.Schema:
        """Return the schema that Spark requires of a data source: UTC microseconds, declared nullability."""
        return _arrow_schema(self.schema)

    def table(self, messages: Sequence[Message]) -> pa.Table:
        """Make a table with one row per message, in order, and exactly `arrow_schema()`.

        Raises:
            PayloadError: payloads do not fit the declared schema; the error names the messages.
            MalformedStoredMessageError: a value is not an entry.
        """
        import pyarrow as pa

        schema = self.arrow_schema()
        declared = [index for index, source in enumerate(self.sources) if not source]
        needed = {source for source in self.sources if source} | ({"payload"} if declared else set())
        own = message_arrays(messages, needed)
        parsed: dict[int, pa.Array] = {}
        if declared:
            wanted = pa.schema([schema.field(index) for index in declared])
            arrays, bad = read_payloads(own["payload"], wanted)
            if bad:
                raise _unfit([messages[position] for position in bad], bad, len(messages), wanted)
            parsed = dict(zip(declared, arrays, strict=True))
        columns = [own[source] if source else parsed[index] for index, source in enumerate(self.sources)]
        return pa.Table.from_arrays(columns, schema=schema)


def _unfit(messages: list[Message], positions: list[int], of: int, wanted: pa.Schema) -> PayloadError:
    reason = explain(messages[0].payload, wanted)
    others = f" (and {len(messages) - 1} more of {of})" if len(messages) > 1 else ""
    return PayloadError(
        f"the payload of message {messages[0].id!r}{others} does not fit the declared schema: {reason}; bury it, or "
        "declare the schema so that it fits",
        positions=positions,
        message_ids=[message.id for message in messages],
        reason=reason,
    )


@lru_cache(maxsize=64)
def _arrow_schema(schema: str) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(types.struct_fields(json.loads(schema)))


def _struct(names: dict[str, str]) -> dict[str, Any]:
    """Return columns of the messages under the given names."""
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": _MESSAGE_TYPES[field][0], "nullable": _MESSAGE_TYPES[field][1], "metadata": {}}
            for name, field in names.items()
        ],
    }


def _shape(kind: dict[str, Any]) -> list[tuple[str, types.Kind]]:
    """Return names and types without nullability, which Spark may loosen."""
    return [(field["name"], _loose(field["type"])) for field in kind["fields"]]


def _loose(kind: types.Kind) -> types.Kind:
    if isinstance(kind, dict) and kind["type"] == "map":
        return {**kind, "valueContainsNull": True}
    return kind


def _source(field: dict[str, Any]) -> str:
    """Return the field of the message that a declared column holds, "" for a column of the payload."""
    name: str = field["name"].removeprefix(PREFIX)
    if name == field["name"] or name not in _MESSAGE_TYPES:
        return ""
    kind = _MESSAGE_TYPES[name][0]
    if _loose(field["type"]) != kind:
        raise ConfigurationError(
            f"column {field['name']!r} is the message's own {name} and must be declared as "
            f"{'map<string,string>' if kind == _HEADERS else kind}; a field of the payload needs another name"
        )
    if not field["nullable"] and name not in _NEVER_NULL:
        raise ConfigurationError(f"column {field['name']!r} may be null and must not be declared as not null")
    return name


def _declared(schema: object) -> dict[str, Any]:
    """Return Spark's JSON form of the user's schema."""
    kind = type(schema)
    package = kind.__module__.partition(".")[0]
    if isinstance(schema, str):
        raise ConfigurationError(
            "a schema as DDL text can only be parsed by Spark, with a running session; pass a pyarrow.Schema"
        )
    if package == "pyspark" and kind.__name__ == "StructType":
        return dict(schema.jsonValue())  # type: ignore[attr-defined]
    if package == "pyarrow" and kind.__name__ == "Schema":
        return types.struct_of(list(schema))  # type: ignore[call-overload]
    raise ConfigurationError(
        f"schema must be DDL text, a Spark StructType or a pyarrow.Schema, not a {kind.__module__}.{kind.__qualname__}"
    )
