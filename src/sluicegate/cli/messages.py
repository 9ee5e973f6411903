"""Messages as commands print them: the same JSON everywhere, and one line each for people."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from sluicegate.cli.output import Cell, Output, styled
from sluicegate.cli.text import ago, count, one_line, shown, size

if TYPE_CHECKING:
    from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message

    Shown = Message | DeadMessage | CompletedMessage | FailedAttempt | InFlightMessage | bytes

__all__ = ["message_record", "payload_text", "print_messages", "record_of"]

_ON_ONE_LINE = 1000


def payload_record(payload: bytes) -> dict[str, Any]:
    """Return a payload as JSON carries it: decoded JSON, text, or base64, with `format` to say which."""
    from sluicegate.core import json

    try:
        return {"payload": json.loads(payload), "format": "json"}
    except ValueError:
        pass
    try:
        return {"payload": payload.decode(), "format": "text"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "format": "base64"}


def message_record(message: Message) -> dict[str, Any]:
    """Return a message as `--json` prints it."""
    from sluicegate.errors import MalformedStoredMessageError

    try:
        headers = message.headers
    except MalformedStoredMessageError:
        headers = {}
    return {
        "id": message.id,
        "sequence": message.sequence,
        "enqueued_at": message.enqueued_at,
        "delivery_count": message.delivery_count,
        "headers": headers,
        "deduplication_key": message.deduplication_key,
        "size": message.size,
        **payload_record(message.payload),
    }


def record_of(found: Shown) -> dict[str, Any]:
    """Return a message in any state as `--json` prints it: the message's fields, and those of its state."""
    from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage

    if isinstance(found, bytes):
        return {"id": None, "size": len(found), **payload_record(found)}
    if isinstance(found, DeadMessage):
        whole = record_of(found.value) if found.message is None else message_record(found.message)
        return {
            **whole,
            "reason": found.reason,
            "error_type": found.error_type,
            "error": found.error,
            "buried_at": found.buried_at,
        }
    if isinstance(found, CompletedMessage):
        return {**message_record(found.message), "completed_at": found.completed_at}
    if isinstance(found, FailedAttempt):
        more = {name: getattr(found, name) for name in ("verb", "error_type", "error", "failed_at")}
        return {**message_record(found.message), **more}
    if isinstance(found, InFlightMessage):
        names = ("lease_id", "consumer", "deadline", "seconds_left", "expired")
        return {**message_record(found.message), **{name: getattr(found, name) for name in names}}
    return message_record(found)


def payload_text(payload: bytes) -> str:
    """Return a payload as text; bytes that are not UTF-8 are escaped."""
    return payload.decode(errors="backslashreplace")


def print_messages(output: Output, found: list[Any], *, full: bool, empty: str) -> None:
    """Print messages: JSON lines, a line each, or with `full` a paragraph each."""
    from sluicegate.cli.output import Column

    if output.as_json:
        for one in found:
            output.record(record_of(one))
        return
    records = [record_of(one) for one in found]
    if full:
        for one, record in zip(found, records, strict=True):
            _print_whole(output, one, record)
        return
    if not records:
        output.note(empty)
        return
    names = _COLUMNS[next((name for name in _COLUMNS if name in records[0]), "id")]
    columns = [Column(_HEADINGS.get(name, name), right=name in _RIGHT, flexible=name == "error") for name in names]
    rows = [
        [*(_cell(name, record) for name in names), one_line(payload_text(_payload_of(one)), _ON_ONE_LINE)]
        for one, record in zip(found, records, strict=True)
    ]
    output.table([*columns, Column("payload", flexible=True)], rows)


# What is shown of a message by the field that its state adds; `id` stands for waiting ones.
_COLUMNS = {
    "buried_at": ("id", "buried_at", "reason", "error"),
    "completed_at": ("id", "completed_at", "delivery_count"),
    "failed_at": ("id", "failed_at", "verb", "error"),
    "lease_id": ("id", "lease_id", "seconds_left", "delivery_count"),
    "id": ("id", "enqueued_at", "delivery_count", "size"),
}
_HEADINGS = {
    "buried_at": "buried",
    "completed_at": "completed",
    "delivery_count": "deliveries",
    "enqueued_at": "enqueued",
    "failed_at": "failed",
    "lease_id": "lease",
    "seconds_left": "expires in",
    "verb": "verdict",
}
_RIGHT = ("buried_at", "completed_at", "delivery_count", "enqueued_at", "failed_at", "seconds_left", "size")


def _cell(name: str, record: dict[str, Any]) -> str | Cell:
    from sluicegate.cli.text import duration

    if name == "error":
        kind, error = record.get("error_type", ""), record.get("error", "")
        return Cell(one_line(": ".join(part for part in (kind, error) if part), 200), "red")
    if name == "seconds_left":
        left = record["seconds_left"]
        return Cell("expired", "yellow") if record["expired"] else duration(left)
    value = record.get(name)
    if name.endswith("_at"):
        return ago(value)
    if name in ("size", "delivery_count"):
        return "-" if value is None else size(value) if name == "size" else count(value)
    return str(value or "-")


def _print_whole(output: Output, found: Any, record: dict[str, Any]) -> None:
    import sys

    facts = [
        (name, _fact(value))
        for name, value in record.items()
        if name not in ("payload", "format", "id") and value not in (None, "", {})
    ]
    output.facts(facts, title=record.get("id") or "a value that is no message")
    text = payload_text(_payload_of(found))
    for line in text.splitlines() or [""]:
        sys.stdout.write(f"  {styled('│', 'dim', sys.stdout)} {shown(line)}\n")
    output.line()


def _fact(value: Any) -> str:
    from datetime import datetime

    from sluicegate.cli.text import clock_time

    if isinstance(value, datetime):
        return f"{clock_time(value)}  ({ago(value)})"
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _payload_of(found: Any) -> bytes:
    if isinstance(found, bytes):
        return found
    message = getattr(found, "message", found)
    payload: bytes = found.value if message is None else message.payload
    return payload
