"""Turn messages into values that Airflow can store: in an XCom, in the payload of an event."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sluicegate.errors import MalformedStoredMessageError

if TYPE_CHECKING:
    from sluicegate import Message
    from sluicegate.jobs import RedisJobQueue

__all__ = ["Parts", "message_value", "parts_of", "results_of", "size_of"]

_JOBS_AT_ONCE = 50  # a result may have a megabyte
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


class Parts(NamedTuple):
    """
    A batch by what becomes of its messages.

    :param values: what is handed on: a dict for each of the fitting messages.
    :param fitting: the messages that are handed on.
    :param left: messages that did not fit behind them.
    :param too_large: messages that would not even fit alone.
    """

    values: list[dict[str, Any]]
    fitting: list[Message]
    left: list[Message]
    too_large: list[Message]


def parts_of(messages: Sequence[Message], most: int) -> Parts:
    """Take messages in their order until the list is full; set those aside that would not even fit alone."""
    parts = Parts([], [], [], [])
    size = 0
    for message in messages:
        value = message_value(message)
        added = size_of(value) + 2  # a comma and a space, or the brackets
        if added > most:
            parts.too_large.append(message)
        elif parts.left or size + added > most:
            parts.left.append(message)
        else:
            size += added
            parts.values.append(value)
            parts.fitting.append(message)
    return parts


def results_of(jobs: RedisJobQueue, ids: Sequence[str], most: int) -> tuple[dict[str, Any], int]:
    """
    Return what completed jobs returned, in their order until the dict is full, and how many results are left out.

    A result that Airflow's serializer or a database would change or refuse is handed on as its JSON text.

    :param jobs: the queue of the jobs.
    :param ids: of completed jobs.
    :param most: the most bytes of the dict as JSON.
    """
    results: dict[str, Any] = {}
    size = 2
    for start in range(0, len(ids), _JOBS_AT_ONCE):
        for job_id, job in jobs.get_many(ids[start : start + _JOBS_AT_ONCE]).items():
            value = _storable(job.stored_result)
            size += size_of(job_id) + size_of(value) + 4
            if size > most:
                return results, len(ids) - len(results)
            results[job_id] = value
    return results, 0


def _storable(value: Any) -> Any:
    return value if _is_plain(value) and _fits_a_database(value) else json.dumps(value)


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
