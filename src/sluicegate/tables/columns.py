"""Define the columns of a batch: those of the messages, and those read from JSON payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sluicegate.core import json
from sluicegate.errors import ConfigurationError
from sluicegate.message import Message
from sluicegate.tables import misfits, types
from sluicegate.tables.arrow import message_arrays
from sluicegate.tables.misfits import Mode, UnfitPayloadsError
from sluicegate.tables.payloads import PayloadError, explain, read_payloads

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MESSAGE_FIELDS", "Columns", "Schema"]

PREFIX = "message_"
_CORRUPT = "corrupt_record"  # in the place of a field of the message: the payload, if it does not fit
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
        mode: what happens to payloads that do not fit.
    """

    schema: str
    sources: tuple[str, ...]
    mode: Mode = "FAILFAST"

    @classmethod
    def of(
        cls,
        schema: Schema | None,
        *,
        message_columns: bool = True,
        mode: str = "FAILFAST",
        column_name_of_corrupt_record: str | None = None,
        variants: bool = False,
    ) -> Columns:
        """Make the columns for a declared schema.

        Args:
            schema: of the JSON payloads: DDL text, a Spark `StructType` or a `pyarrow.Schema`. None: the columns of the
                messages themselves, unprefixed, and the payload as it is; so does a schema that is exactly those.
            message_columns: whether the columns `message_id`, `message_headers`, `message_deduplication_key`,
                `message_delivery_count`, `message_sequence`, `message_enqueued_at` and `message_payload` are appended
                where they are not declared. Declared, they hold the message's in any case.
            mode: what happens to payloads that do not fit, see `Mode`; in any case.
            column_name_of_corrupt_record: the declared string column that holds such payloads in the mode PERMISSIVE;
                None for `_corrupt_record`, where it is declared.
            variants: whether columns may be of Spark's type variant, which only Spark can read.

        Raises:
            ConfigurationError: DDL without a session or with an error in it, a type that cannot be read out of JSON,
                two columns of one name, a reserved name with another type than the message's; or a mode that the
                declared columns do not allow.
        """
        kept = misfits.checked_mode(mode)
        own = _struct({name: name for name in _MESSAGE_TYPES})
        declared = own if schema is None else _declared(schema)
        if _shape(declared) == _shape(own):
            if kept != "FAILFAST" or column_name_of_corrupt_record is not None:
                raise ConfigurationError(
                    f"mode {kept} is for payloads that do not fit a schema, and none is declared; declare the fields "
                    "of the payloads"
                )
            return cls._checked(declared, MESSAGE_FIELDS)
        for field in types.struct_fields(declared):
            if types.holds_variant(field.type) and not variants:
                raise ConfigurationError(
                    f"column {field.name!r} is or holds a variant, which only Spark reads; declare string in its place "
                    "to get the JSON as text"
                )
        corrupt = misfits.check_corrupt_column(kept, declared["fields"], column_name_of_corrupt_record)
        sources = [_CORRUPT if field["name"] == corrupt else _source(field) for field in declared["fields"]]
        if kept == "PERMISSIVE":
            misfits.refuse_not_null(
                [field for field, source in zip(declared["fields"], sources, strict=True) if not source]
            )
        fields = list(declared["fields"])
        if message_columns:
            missing = [name for name in _BESIDE_OTHERS if name not in sources]
            fields += _struct({PREFIX + name: name for name in missing})["fields"]
            sources += missing
        return cls._checked({"type": "struct", "fields": fields}, tuple(sources), kept)

    @classmethod
    def _checked(cls, kind: dict[str, Any], sources: tuple[str, ...], mode: Mode = "FAILFAST") -> Columns:
        for field, source in zip(types.struct_fields(kind), sources, strict=True):
            if not source and types.holds_map(field.type):
                types.refuse_inexact(field.type, field.name)
        return cls(json.dumps(kind).decode(), sources, mode)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(field["name"] for field in json.loads(self.schema)["fields"])

    @property
    def corrupt_column(self) -> str | None:
        """Return the name of the column that holds payloads which do not fit; None if there is none."""
        return next((name for name, source in zip(self.names, self.sources, strict=True) if source == _CORRUPT), None)

    def arrow_schema(self) -> pa.Schema:
        """Return the schema that Spark requires of a data source: UTC microseconds, declared nullability."""
        return _arrow_schema(self.schema)

    def table(self, messages: Sequence[Message]) -> pa.Table:
        """Make a table with one row per message, in order, and exactly `arrow_schema()`.

        `LeasedMessages` become one without an object per message. In the mode PERMISSIVE, what does not fit is null.

        Raises:
            PayloadError: payloads do not fit the declared schema; the error names the messages. In the mode BURY it is
                an `UnfitPayloadsError`, with an error per message.
            MalformedStoredMessageError: a value is not an entry.
        """
        import pyarrow as pa

        schema, wanted = self.arrow_schema(), self._wanted()
        needed = {source for source in self.sources if source not in ("", _CORRUPT)}
        own = message_arrays(messages, needed | ({"payload"} if len(wanted) else set()))
        arrays: list[pa.Array] = []
        bad: list[int] = []
        if len(wanted):
            arrays, bad = read_payloads(own["payload"], wanted)
            if bad and self.mode == "PERMISSIVE":
                arrays = misfits.read_with_nulls(own["payload"], bad, wanted)
            elif bad:
                raise self._unfit(messages, own["payload"], bad)
        if _CORRUPT in self.sources:
            own[_CORRUPT] = misfits.texts_at(own["payload"], bad) if bad else pa.nulls(len(messages), pa.string())
        parsed = iter(arrays)
        columns = [own[source] if source else next(parsed) for source in self.sources]
        return pa.Table.from_arrays(columns, schema=schema)

    def misfits(self, messages: Sequence[Message]) -> UnfitPayloadsError | None:
        """Return which messages do not fit the declared schema, with an error for each; None if all fit."""
        wanted = self._wanted()
        if not len(wanted):
            return None
        payloads = message_arrays(messages, {"payload"})["payload"]
        _, bad = read_payloads(payloads, wanted)
        return _to_bury(messages, payloads, bad, wanted) if bad else None

    def _wanted(self) -> pa.Schema:
        """Return the fields that are read from payloads."""
        import pyarrow as pa

        fields = zip(self.arrow_schema(), self.sources, strict=True)
        return pa.schema([field for field, source in fields if not source])

    def _unfit(self, messages: Sequence[Message], payloads: pa.Array, bad: list[int]) -> PayloadError:
        wanted = self._wanted()
        if self.mode == "BURY":
            return _to_bury(messages, payloads, bad, wanted)
        return _unfit([messages[position] for position in bad], bad, len(messages), wanted)


def _to_bury(messages: Sequence[Message], payloads: pa.Array, bad: list[int], wanted: pa.Schema) -> UnfitPayloadsError:
    errors = misfits.explained(payloads, bad, wanted)
    return UnfitPayloadsError(errors, positions=bad, message_ids=[messages[position].id for position in bad])


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
