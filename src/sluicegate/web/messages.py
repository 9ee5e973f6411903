"""Routes that show messages: a page of one state, a search, and the export of dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sluicegate.core.entry import is_entry
from sluicegate.errors import ConfigurationError, MalformedStoredMessageError
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message
from sluicegate.web.answers import answer, encoded
from sluicegate.web.masking import Masked, Masks
from sluicegate.web.page import Named, found_place
from sluicegate.web.shapes import MessageShape

__all__ = ["message_shape", "router"]

State = Literal["pending", "returned", "delayed", "dead", "completed", "failed", "in_flight", "set_aside", "history"]
Stored = Message | DeadMessage | CompletedMessage | FailedAttempt | InFlightMessage | bytes

_MAX_SHOWN = 64 * 1024
_MAX_COUNT = 500
_FIRST_STEP, _STEP = 10, 50
_MAX_PAGE_BYTES = 32 * 1024 * 1024
_PAGE = 100
_MAX_SEARCHED = 20_000
_SEARCH_SECONDS = 2.0
_EXPORT_PAGE = 100

router = APIRouter()
Where = Annotated[Named, Depends(found_place)]


@router.get("/api/messages")
def messages(
    where: Where,
    state: State = "pending",
    count: Annotated[int, Query(ge=1, le=_MAX_COUNT)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
    search: Annotated[str, Query(max_length=1000)] = "",
    after: Annotated[str | None, Query(max_length=50)] = None,
) -> Response:
    """Return messages of one state, masked and cut, or those of them that contain a text.

    There may be fewer than `count`, since large ones end a page early: `next` is the offset of the next page, if any.

    A search reads through up to 20,000 messages, for two seconds at most, and `offset` then counts what it found. It
    looks at what would be shown, so that it cannot be used to guess what is masked. The history of a stream is read
    with `after`, the id of the last message that was shown.
    """
    masks = where.page.masks
    if where.found.kind == "stream":
        found = where.open().peek(count, from_id=_next_id(after))
        return answer({"messages": [message_shape(each, masks) for each in found], "scanned": len(found)})
    if state == "history":
        raise ConfigurationError(f"state 'history' is that of a stream; {where.place} has none")
    queue = where.open()
    if not search:
        found, more = _peeked(queue, state, count, offset)
        shapes = [message_shape(each, masks) for each in found]
        return answer({"messages": shapes, "scanned": len(found), "next": offset + len(found) if more else None})
    return answer(_search(queue, state, masks, search.casefold(), count, offset))


@router.get("/api/dead/export")
def export(request: Request, where: Where) -> StreamingResponse:
    """Download all dead letters as JSON lines, masked, with whole payloads."""
    where.needs("queue", "group", "jobs")
    name = where.place.group or where.place.name
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{name}-dead.jsonl', safe='')}"}
    lines = _dead_lines(where.open(), where.page.masks)
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


def message_shape(stored: Stored, masks: Masks, *, most: int | None = _MAX_SHOWN) -> MessageShape:
    """Return a message as it may be shown.

    Args:
        stored: as `peek` returns it.
        masks: what must not be shown.
        most: characters of the payload that are shown; None for all.
    """
    message = _message_of(stored)
    raw = stored if isinstance(stored, bytes) else stored.value if isinstance(stored, DeadMessage) else b""
    masked = masks.payload(message.payload if message is not None else raw)
    headers = {} if message is None else masks.headers(_headers(message), masked)
    headers = {name: masked.redact(value) for name, value in headers.items()}
    shape: MessageShape = {
        "id": None if message is None else message.id,
        "enqueued_at": None if message is None else _epoch(message.enqueued_at),
        "delivery_count": 0 if message is None else message.delivery_count,
        "headers": headers,
        "deduplication_key": None if message is None else _redacted(message.deduplication_key, masked),
        "size": len(raw) if message is None else message.size,
        "payload": masked.text if most is None else masked.text[:most],
        "truncated": most is not None and len(masked.text) > most,
        "format": masked.format,
        "masked": masked.hidden > 0,
    }
    _add_details(shape, stored, masked)
    return shape


def _add_details(shape: MessageShape, stored: Stored, masked: Masked) -> None:
    """Add what is known of a message in this state only."""
    if isinstance(stored, DeadMessage):
        shape["reason"] = masked.redact(stored.reason)
        shape["error_type"] = stored.error_type
        shape["error"] = masked.redact(stored.error)
        shape["buried_at"] = _epoch(stored.buried_at)
    elif isinstance(stored, FailedAttempt):
        shape["verb"] = stored.verb
        shape["error_type"] = stored.error_type
        shape["error"] = masked.redact(stored.error)
        shape["failed_at"] = _epoch(stored.failed_at)
    elif isinstance(stored, CompletedMessage):
        shape["completed_at"] = _epoch(stored.completed_at)
    elif isinstance(stored, InFlightMessage):
        shape["lease_id"] = stored.lease_id
        shape["consumer"] = stored.consumer
        shape["deadline"] = _epoch(stored.deadline)


def _peeked(queue: Any, state: State, count: int, offset: int) -> tuple[list[Stored], bool]:
    """Return messages, and whether there may be more.

    They are read in steps, fewer of those that are large, so that a page takes a bounded part of the memory.
    """
    found: list[Stored] = []
    size, step = 0, _FIRST_STEP
    while len(found) < count and size < _MAX_PAGE_BYTES:
        asked = min(step, count - len(found))
        page: Sequence[Stored] = queue.peek(asked, state=state, offset=offset + len(found))
        found += page
        if len(page) < asked:
            return found, False
        size += sum(_size(stored) for stored in page)
        step = max(1, min(_STEP, (_MAX_PAGE_BYTES - size) * len(found) // max(1, size)))
    return found, True


def _size(stored: Stored) -> int:
    message = _message_of(stored)
    return message.size if message is not None else len(stored) if isinstance(stored, bytes) else 0


def _search(queue: Any, state: State, masks: Masks, wanted: str, count: int, offset: int) -> dict[str, Any]:
    """Return the messages that contain a text, after skipping `offset` of them."""
    found: list[MessageShape] = []
    scanned, skipped, end = 0, 0, time.monotonic() + _SEARCH_SECONDS
    is_whole = False
    while scanned < _MAX_SEARCHED and len(found) < count and time.monotonic() < end:
        page: Sequence[Stored] = queue.peek(_PAGE, state=state, offset=scanned)
        for stored in page:
            shape = message_shape(stored, masks, most=None)
            if not _contains(shape, wanted):
                continue
            skipped += 1
            if skipped > offset and len(found) < count:
                shape["truncated"] = len(shape["payload"]) > _MAX_SHOWN
                shape["payload"] = shape["payload"][:_MAX_SHOWN]
                found.append(shape)
        scanned += len(page)
        if len(page) < _PAGE:
            is_whole = True
            break
    is_full = len(found) == count
    return {
        "messages": found,
        "scanned": scanned,
        "whole": is_whole,
        "next": offset + len(found) if is_full and not (is_whole and skipped <= offset + len(found)) else None,
    }


def _contains(shape: MessageShape, wanted: str) -> bool:
    texts = [shape["id"], shape["payload"], shape["deduplication_key"]]
    texts += [shape.get("reason"), shape.get("error"), shape.get("error_type"), shape.get("lease_id")]
    texts += [part for header in shape["headers"].items() for part in header]
    return any(wanted in text.casefold() for text in texts if text)


def _dead_lines(queue: Any, masks: Masks) -> Iterator[bytes]:
    offset = 0
    while page := queue.peek(_EXPORT_PAGE, state="dead", offset=offset):
        for stored in page:
            yield encoded(message_shape(stored, masks, most=None)) + b"\n"
        offset += len(page)


def _message_of(stored: Stored) -> Message | None:
    if isinstance(stored, bytes):
        return Message(stored) if is_entry(stored) else None
    return stored if isinstance(stored, Message) else stored.message


def _headers(message: Message) -> dict[str, str]:
    """Return the headers of a message, with every name and value as text, whoever wrote them."""
    with suppress(MalformedStoredMessageError):
        return {str(name): value if isinstance(value, str) else str(value) for name, value in message.headers.items()}
    return {}


def _redacted(text: str | None, masked: Masked) -> str | None:
    return None if text is None else masked.redact(text)


def _next_id(after: str | None) -> str | None:
    """Return the id behind one of a stream."""
    if after is None:
        return None
    milliseconds, _, number = after.partition("-")
    return f"{milliseconds}-{int(number) + 1}" if number.isdigit() else after


def _epoch(at: datetime) -> float:
    return at.timestamp()
