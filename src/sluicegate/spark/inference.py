"""Infer a schema from a sample of payloads, by the rules of Spark's JSON reader and without changing the queue."""

from __future__ import annotations

import itertools
import json as stdlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sluicegate import checks
from sluicegate.consumer import QueueConsumer
from sluicegate.errors import ConfigurationError
from sluicegate.spark._place import place_of
from sluicegate.tables.columns import MESSAGE_FIELDS, PREFIX
from sluicegate.tables.types import Kind, struct_fields

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sluicegate.spark._options import BrowseState

__all__ = ["InferredSchema", "infer_schema"]

_MOST = 100_000
_NULL = "null"
_LONGS = range(-(2**63), 2**63)
_MAX_DIGITS = 38
_DIGITS_OF_A_LONG = 20  # as Spark counts them
_RESERVED = frozenset(PREFIX + name for name in MESSAGE_FIELDS)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DDL = {"long": "bigint"}


class InferredSchema(str):
    """A schema as DDL text, which `drain`, `lease_batch` and Spark's own `schema(…)` take.

    Attributes:
        sampled: how many messages were read.
        unreadable: how many of them are no JSON objects; they did not count.
        json_value: the schema as Spark writes it in JSON.
    """

    sampled: int
    unreadable: int
    json_value: dict[str, Any]

    @classmethod
    def of(cls, kind: dict[str, Any], sampled: int, unreadable: int) -> InferredSchema:
        """Return the schema with these fields, in the form of `json_value`."""
        made = cls(", ".join(f"{_quoted(field['name'])} {_ddl(field['type'])}" for field in kind["fields"]))
        made.sampled, made.unreadable, made.json_value = sampled, unreadable, kind
        return made

    @property
    def struct(self) -> StructType:
        """Return the schema as Spark's type; no session is needed."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.json_value)

    @property
    def arrow(self) -> pa.Schema:
        """Return the schema for `sluicegate.drain`, which has no Spark to parse DDL."""
        import pyarrow as pa

        return pa.schema(struct_fields(self.json_value))


class _Decimal(NamedTuple):
    """A whole number beyond 64 bits."""

    digits: int


def infer_schema(queue: QueueConsumer, sample: int = 1000, *, state: BrowseState = "pending") -> InferredSchema:
    """Infer the schema of the JSON payloads of a queue from a sample of messages, which stay where they are.

    ::

        schema = infer_schema(queue)
        print(schema)                                   # order_id string, amount double
        drain(spark, queue, process, schema=schema)

    The types are merged as Spark's JSON reader does: whole numbers are `bigint`, or a decimal beyond 64 bits, other
    numbers `double`; a field with values of types that have no common one is `string`, and so is one that is always
    null. Fields are sorted by name, at every level. Fields that are not in the sample are not in the schema, so read
    the DDL before you rely on it. A field whose name is that of a column of the message is left out.

    Args:
        queue: a queue or a group of a stream.
        sample: the largest number of messages to read, from 1 to 100,000; those that are claimed next.
        state: which messages are read, as the option `state` of a read.

    Raises:
        ConfigurationError: an argument cannot work, the state has no messages, or none of them is a JSON object.
        RedisUnavailableError: Redis cannot be reached.
    """
    if not isinstance(queue, QueueConsumer):
        raise TypeError(f"queue must be a RedisMessageQueue or the group of a stream, not a {type(queue).__name__}")
    from sluicegate.spark._options import BrowseOptions
    from sluicegate.spark.browsing.reader import messages_of

    checks.count("sample", sample, _MOST)
    BrowseOptions.parse({"spec": queue.spec().to_json(), "state": state})
    merged: Kind = _NULL
    sampled = unreadable = 0
    for message in itertools.chain.from_iterable(messages_of(queue, state, sample)):
        sampled += 1
        kind = _kind_of_payload(message.payload)
        if kind is None:
            unreadable += 1
        else:
            merged = _merged(merged, kind)
    found = _canonical(merged)
    if not isinstance(found, dict):
        what = "has no messages" if not sampled else f"has no JSON object with a field among {sampled} messages"
        raise ConfigurationError(f"state {state!r} of {place_of(queue)} {what}, so no schema can be inferred")
    found["fields"] = [field for field in found["fields"] if field["name"] not in _RESERVED]
    return InferredSchema.of(found, sampled, unreadable)


def _kind_of_payload(payload: bytes) -> Kind | None:
    """Return the type of a payload; None if it is no JSON object."""
    try:
        value = stdlib.loads(payload.decode(), parse_int=_whole, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return _kind(value) if isinstance(value, dict) else None


def _refuse(word: str) -> None:
    raise ValueError("a word that JSON has not")


def _whole(text: str) -> int | float | _Decimal:
    digits = len(text.lstrip("-"))
    if digits < _DIGITS_OF_A_LONG and int(text) in _LONGS:
        return 0
    return _Decimal(digits) if digits <= _MAX_DIGITS else 0.0


def _kind(value: Any) -> Kind:
    if value is None or value == "":
        return _NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, _Decimal):
        return f"decimal({value.digits},0)"
    if isinstance(value, int):
        return "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        element: Kind = _NULL
        for item in value:
            element = _merged(element, _kind(item))
        return {"type": "array", "elementType": element, "containsNull": True}
    return _struct({name: _kind(item) for name, item in value.items()})


def _struct(kinds: dict[str, Kind]) -> dict[str, Any]:
    fields = [{"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in sorted(kinds)]
    return {"type": "struct", "fields": fields}


def _merged(one: Kind, other: Kind) -> Kind:
    """Return the type that holds the values of both."""
    if other in (one, _NULL):
        return one
    if one == _NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict) and one["type"] == other["type"]:
        if one["type"] == "array":
            return {**one, "elementType": _merged(one["elementType"], other["elementType"])}
        kinds: dict[str, Kind] = {field["name"]: field["type"] for field in one["fields"]}
        for field in other["fields"]:
            kinds[field["name"]] = _merged(kinds.get(field["name"], _NULL), field["type"])
        return _struct(kinds)
    sizes = {_digits(one), _digits(other)}
    if 0 in sizes:
        return "string"
    return "double" if "double" in (one, other) else f"decimal({max(sizes)},0)"


def _digits(kind: Kind) -> int:
    """Return how many digits numbers of a type have; 0 if it is none."""
    if isinstance(kind, str) and kind.startswith("decimal("):
        return int(kind[len("decimal(") : kind.index(",")])
    return {"long": _DIGITS_OF_A_LONG, "double": 1}.get(kind, 0) if isinstance(kind, str) else 0


def _canonical(kind: Kind) -> Kind | None:
    """Return a type without the null type, which becomes string; None for a struct without fields."""
    if kind == _NULL:
        return "string"
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        element = _canonical(kind["elementType"])
        return None if element is None else {**kind, "elementType": element}
    fields = [(field, _canonical(field["type"])) for field in kind["fields"]]
    kept = [{**field, "type": found} for field, found in fields if found is not None]
    return {"type": "struct", "fields": kept} if kept else None


def _ddl(kind: Kind) -> str:
    if isinstance(kind, str):
        return _DDL.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_ddl(kind['elementType'])}>"
    fields = (f"{_quoted(field['name'])}: {_ddl(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
