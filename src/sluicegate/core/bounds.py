"""How long each kind of stored text may be: what people read is cut with an ellipsis, what names things is refused."""

from __future__ import annotations

__all__ = [
    "MAX_CLAIM_LIMIT",
    "MAX_ERROR_LENGTH",
    "MAX_ERROR_TYPE_LENGTH",
    "MAX_HEADERS_BYTES",
    "MAX_ID_LENGTH",
    "MAX_KEY_BYTES",
    "MAX_NAME_BYTES",
    "MAX_REASON_LENGTH",
    "cut",
]

MAX_CLAIM_LIMIT = 10_000
"""Messages of one lease."""
MAX_REASON_LENGTH = 500
MAX_ERROR_TYPE_LENGTH = 200
MAX_ERROR_LENGTH = 2000
MAX_NAME_BYTES = 1000
"""Characters of a queue's name, which stands in each of its keys."""
MAX_ID_LENGTH = 1000
"""Characters of a lease's id or a consumer's name."""
MAX_KEY_BYTES = 64 * 1024
"""Of a deduplication key as it is stored, in its message and in the dead letter that may become of it."""
MAX_HEADERS_BYTES = 1024 * 1024
"""Of a message's headers as they are stored."""


def cut(text: str, longest: int) -> str:
    """The text, or its beginning and an ellipsis when it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
