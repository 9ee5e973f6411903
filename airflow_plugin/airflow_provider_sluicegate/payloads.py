"""Turn messages into values that Airflow can store: in an XCom, in the payload of an event."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from sluicegate.errors import MalformedStoredMessageError

if TYPE_CHECKING:
    from sluicegate import Message

__all__ = ["message_value", "size_of"]

_DEEPEST = 100  # Airflow's own serializer recurses


def message_value(message: Message) -> dict[str, Any]:
    """
    Return a message as a dict of JSON values.

    The keys are ``id``, ``payload``, ``encoding``, ``headers``, ``delivery_count`` and ``enqueued_at``.
    ``encoding`` says what the payload is: ``json`` for an object or array, decoded; ``text`` for other text, and for
    JSON that Airflow's serializer would refuse or change; ``base64`` for bytes that are not UTF-8, and for text that a
    database would refuse.
    """
    payload, encoding = _encoded(message.payload)
    try:
        headers = message.headers
    except MalformedStoredMessageError:  # written by another program; the payload is what matters
        headers = {}
    return {
        "id": message.id,
        "payload": payload,
        "encoding": encoding,
        "headers": headers,
        "delivery_count": message.delivery_count,
        "enqueued_at": message.enqueued_at.isoformat(),
    }


def size_of(value: object) -> int:
    """Return how many bytes a value takes as the JSON that Airflow stores."""
    return len(json.dumps(value))


def _encoded(payload: bytes) -> tuple[Any, str]:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"
    if not _fits_a_database(text):
        return base64.b64encode(payload).decode(), "base64"
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text, "text"
        if _is_plain(value) and _fits_a_database(value):
            return value, "json"
    return text, "text"


def _is_plain(value: object, depth: int = 0) -> bool:
    """Return whether Airflow's serializer keeps a value as it is: names with two underscores are its own."""
    if depth > _DEEPEST:
        return False
    if isinstance(value, dict):
        return all(not key.startswith("__") and _is_plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item, depth + 1) for item in value)
    return not isinstance(value, float) or value - value == 0  # neither NaN nor infinite


def _fits_a_database(value: object) -> bool:
    """Return whether a text, or the texts in a value, have no NUL, which PostgreSQL refuses, and no lone surrogate."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\\u0000" not in text
