"""How long each kind of stored text may be: what people read is cut with an ellipsis, what names things is refused."""

from __future__ import annotations

__all__ = [
    "LONGEST_ERROR",
    "LONGEST_ERROR_TYPE",
    "LONGEST_HEADERS_BYTES",
    "LONGEST_ID",
    "LONGEST_KEY_BYTES",
    "LONGEST_NAME",
    "LONGEST_REASON",
    "cut",
]

LONGEST_REASON = 500
LONGEST_ERROR_TYPE = 200
LONGEST_ERROR = 2000
LONGEST_NAME = 1000
"""Characters of a queue's name, which stands in each of its keys."""
LONGEST_ID = 1000
"""Characters of a lease's id or a consumer's name."""
LONGEST_KEY_BYTES = 64 * 1024
"""Of a deduplication key as it is stored, in its message and in the dead letter that may become of it."""
LONGEST_HEADERS_BYTES = 1024 * 1024
"""Of a message's headers as they are stored."""


def cut(text: str, longest: int) -> str:
    """The text, or its beginning and an ellipsis when it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
