"""What happens to payloads that do not fit the declared schema: they fail, become nulls, or are buried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from sluicegate.errors import ConfigurationError
from sluicegate.tables.payloads import PayloadError, explain, read_payloads

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CORRUPT_RECORD",
    "INVALID_PAYLOAD",
    "Mode",
    "UnfitPayloadsError",
    "check_corrupt_column",
    "check_mode",
    "checked_mode",
    "explained",
    "read_with_nulls",
    "refuse_not_null",
    "texts_at",
]

Mode: TypeAlias = Literal["FAILFAST", "PERMISSIVE", "BURY"]
"""`FAILFAST` raises a `PayloadError`; `PERMISSIVE` reads nulls; `BURY` makes dead letters of such messages."""

CORRUPT_RECORD = "_corrupt_record"  # the default of Spark's spark.sql.columnNameOfCorruptRecord
INVALID_PAYLOAD = "invalid_payload"
"""The reason of dead letters whose payload does not fit; the worker uses the same."""


class UnfitPayloadsError(PayloadError):
    """Payloads do not fit, and their messages are to be buried.

    Attributes:
        errors: per message, in the order of `positions`, what its dead letter keeps; messages with the same reason
            share one error.
    """

    def __init__(self, errors: Sequence[PayloadError], *, positions: Sequence[int], message_ids: Sequence[str]) -> None:
        super().__init__(
            f"{len(positions)} payloads do not fit the declared schema: {errors[0].reason}",
            positions=positions,
            message_ids=message_ids,
            reason=errors[0].reason,
        )
        self.errors = tuple(errors)


def checked_mode(mode: object) -> Mode:
    """Return a mode, given in any case.

    Raises:
        ConfigurationError: there is no such mode.
    """
    for known in get_args(Mode):
        if isinstance(mode, str) and mode.upper() == known:
            return known  # type: ignore[no-any-return]
    raise ConfigurationError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}")


def check_mode(mode: object, column_name_of_corrupt_record: str | None, *, has_schema: bool) -> None:
    """Refuse what no schema allows; it needs no parsed schema, so a session does not have to be started for it.

    Raises:
        ConfigurationError: there is no such mode, or no schema, or the mode keeps no corrupt records.
    """
    kept = checked_mode(mode)
    if not has_schema and (kept != "FAILFAST" or column_name_of_corrupt_record is not None):
        raise ConfigurationError(
            f"mode {kept} is for payloads that do not fit a schema, and there is none; give a schema, or leave the "
            "mode out"
        )
    if column_name_of_corrupt_record is not None and kept != "PERMISSIVE":
        raise ConfigurationError(
            "column_name_of_corrupt_record names the column that the mode PERMISSIVE fills, and the mode is "
            f"{kept}; leave it out, or set the mode"
        )


def check_corrupt_column(mode: Mode, fields: Sequence[dict[str, Any]], asked: str | None) -> str | None:
    """Return the name of the column that holds payloads which do not fit; None if the schema has none.

    Args:
        mode: of the read.
        fields: of the declared schema, as Spark writes them in JSON.
        asked: the name that the user gave; None for Spark's default.

    Raises:
        ConfigurationError: the column is missing, is not a nullable string, or there is nothing else to read; or a
            column that must not be null would become null.
    """
    if asked is not None and mode != "PERMISSIVE":
        raise ConfigurationError(
            f"columnNameOfCorruptRecord is filled in the mode PERMISSIVE, and the mode is {mode}; leave it out, or set "
            "the mode"
        )
    if mode != "PERMISSIVE":
        return None
    name = CORRUPT_RECORD if asked is None else asked
    found = next((field for field in fields if field["name"] == name), None)
    if asked is not None and found is None:
        raise ConfigurationError(f"columnNameOfCorruptRecord names {name!r}; declare that column as string")
    if found is not None and (found["type"] != "string" or not found["nullable"]):
        raise ConfigurationError(f"column {name!r} holds corrupt records and must be declared as a nullable string")
    return None if found is None else name


def refuse_not_null(fields: Sequence[dict[str, Any]]) -> None:
    """Refuse fields of the payload that must not be null, because a misfit reads as null.

    Raises:
        ConfigurationError: names the first such field.
    """
    for field in fields:
        if not field["nullable"]:
            raise ConfigurationError(
                f"column {field['name']!r} must not be null, and the mode PERMISSIVE reads a payload that does not fit "
                "as null; drop the NOT NULL, or take the mode FAILFAST or BURY"
            )


def read_with_nulls(payloads: pa.Array, bad: Sequence[int], schema: pa.Schema) -> list[pa.Array]:
    """Read payloads of which some do not fit: of those, the fields that do not fit are null and the others are kept.

    Args:
        payloads: a binary array without nulls.
        bad: positions of the payloads that do not fit, ascending.
        schema: of the payloads.
    """
    import pyarrow as pa

    unfit = set(bad)
    good = [position for position in range(len(payloads)) if position not in unfit]
    fitting, _ = read_payloads(payloads.take(pa.array(good, pa.int64())), schema)
    order = {position: at for at, position in enumerate((*good, *bad))}
    places = pa.array([order[position] for position in range(len(payloads))], pa.int64())
    rest = payloads.take(pa.array(bad, pa.int64()))
    columns = []
    for field, known in zip(schema, fitting, strict=True):
        column = pa.concat_arrays([known, _read_field(rest, field)])
        columns.append(column.take(places))
    return columns


def texts_at(payloads: pa.Array, positions: Sequence[int]) -> pa.Array:
    """Return a string array of the payloads at these positions, and null elsewhere.

    Bytes that are no UTF-8 become U+FFFD, because a string cannot hold them.
    """
    import pyarrow as pa

    chosen = set(positions)
    texts = [
        payloads[position].as_py().decode(errors="replace") if position in chosen else None
        for position in range(len(payloads))
    ]
    return pa.array(texts, pa.string())


def explained(payloads: pa.Array, positions: Sequence[int], schema: pa.Schema) -> list[PayloadError]:
    """Return what the dead letter of each of these payloads keeps: the path and what is wrong, never a value."""
    errors: dict[str, PayloadError] = {}
    found = []
    for position in positions:
        reason = explain(payloads[position].as_py(), schema)
        if reason not in errors:
            text = f"the payload does not fit the declared schema: {reason}"
            errors[reason] = PayloadError(text, positions=(), message_ids=(), reason=reason)
        found.append(errors[reason])
    return found


def _read_field(payloads: pa.Array, field: pa.Field) -> pa.Array:
    """Read one field of payloads; it is null where the payload or the field does not fit."""
    import pyarrow as pa

    alone = pa.schema([field])
    arrays, bad = read_payloads(payloads, alone)
    if not bad:
        return arrays[0]
    unfit = set(bad)
    good = [position for position in range(len(payloads)) if position not in unfit]
    arrays, _ = read_payloads(payloads.take(pa.array(good, pa.int64())), alone)
    places: list[int | None] = [None] * len(payloads)
    for at, position in enumerate(good):
        places[position] = at
    return arrays[0].take(pa.array(places, pa.int64()))
