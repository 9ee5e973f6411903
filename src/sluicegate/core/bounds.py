"""Stored texts have limits: text for people is shortened with an ellipsis, a name that is too long is refused."""

from __future__ import annotations

__all__ = [
    "MAX_CLAIM_BYTES",
    "MAX_CLAIM_LIMIT",
    "MAX_ERROR_LENGTH",
    "MAX_ERROR_TYPE_LENGTH",
    "MAX_HEADERS_BYTES",
    "MAX_ID_LENGTH",
    "MAX_KEY_BYTES",
    "MAX_NAME_LENGTH",
    "MAX_REASON_LENGTH",
    "MAX_RECORDED_CLAIM_BYTES",
    "NO_WHY",
    "SEPARATOR",
    "shorten",
]

SEPARATOR = b"\x1f"
"""The byte between the fields of stored values: ASCII's unit separator, `'\\31'` in Lua."""
NO_WHY = SEPARATOR * 2
"""The reason and error of a verdict that has none."""
MAX_CLAIM_LIMIT = 10_000
"""Messages of one lease."""
MAX_CLAIM_BYTES = 8 * 1024 * 1024
"""Bytes of stored messages after which a claim takes no more, so that it keeps Redis busy for less than 50 ms."""
MAX_RECORDED_CLAIM_BYTES = 512 * 1024
"""The same where acks are recorded, because all acks of a lease are one call, which reads and writes its messages."""
MAX_REASON_LENGTH = 500
MAX_ERROR_TYPE_LENGTH = 200
MAX_ERROR_LENGTH = 2000
MAX_NAME_LENGTH = 1000
"""Characters of a queue's name, which is part of each of its keys."""
MAX_ID_LENGTH = 1000
"""Characters of a lease's id or a consumer's name."""
MAX_KEY_BYTES = 64 * 1024
"""Bytes of a deduplication key as it is stored, in its message and in a dead letter."""
MAX_HEADERS_BYTES = 1024 * 1024
"""Bytes of a message's headers as they are stored."""


def shorten(text: str, max_length: int) -> str:
    """Return the text, or its beginning and an ellipsis if it is longer than `max_length`."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
