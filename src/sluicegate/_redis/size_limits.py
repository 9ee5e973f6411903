"""Arguments that are too large for a server.

The server's error is often lost, because it closes the connection. So a call that failed with a large argument is
compared with the server's limits before it is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import exceptions as redis_errors

from sluicegate.core.call import Call
from sluicegate.errors import PayloadTooLargeError

__all__ = [
    "ANNOUNCED_SECONDS",
    "ASK_LIMITS",
    "announcement",
    "is_cut_off",
    "is_refused_size",
    "largest_argument",
    "limits_in",
    "oversized",
    "within_any_limit",
]

ASK_LIMITS: tuple[tuple[str, ...], ...] = (
    ("CONFIG", "GET", "proto-max-bulk-len"),
    ("CONFIG", "GET", "client-query-buffer-limit"),
)
ANNOUNCED_SECONDS = 0.5  # a server that refuses an announced argument says so at once
_LEAST_LIMIT = 1024 * 1024  # no server can be configured to accept less
_LINE_END = 2  # bytes behind an argument that count against the buffer


def within_any_limit(size: int) -> bool:
    """Return whether every server accepts an argument of this size."""
    return size + _LINE_END <= _LEAST_LIMIT


def largest_argument(call: Call[Any]) -> int:
    """Return the number of bytes of the largest argument of a call."""
    return max((len(arg) for arg in call.args if isinstance(arg, bytes)), default=0)


def is_refused_size(reply: object) -> bool:
    """Return whether a server said that an argument is too large."""
    return isinstance(reply, redis_errors.ResponseError) and "invalid bulk length" in str(reply)


def announcement(size: int) -> bytes:
    """Return the beginning of an ECHO with an argument of this size, which is enough for the server to refuse it."""
    return b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size


def limits_in(replies: Sequence[Any]) -> dict[str, int]:
    """Return the largest argument per setting from the replies to `ASK_LIMITS`; empty without the right to ask."""
    found: dict[str, int] = {}
    for (*_, setting), reply in zip(ASK_LIMITS, replies, strict=True):
        value = list(reply.values() if isinstance(reply, dict) else reply[1::2]) if _is_answer(reply) else []
        if value:
            found[setting] = int(value[0]) - (_LINE_END if setting == "client-query-buffer-limit" else 0)
    return found


def oversized(
    call: Call[Any], server: str, size: int, limits: dict[str, int], *, said: bool
) -> PayloadTooLargeError | None:
    """Return the error for a call whose argument exceeds a limit, or was refused for its size; else None."""
    over = {limit: setting for setting, limit in limits.items() if size > limit}
    if not over and not said:
        return None
    limit = min(over, default=0)
    most = f"at most {limit} ({over[limit]})" if over else "less than that (proto-max-bulk-len)"
    return PayloadTooLargeError(
        f"{call.script.name} has an argument of {size} bytes, and Redis at {server} accepts {most}",
        size=size,
        limit=limit,
    )


def is_cut_off(error: BaseException) -> bool:
    """Return whether a call failed as if the server had refused to read it; a timeout does not."""
    return not isinstance(error, (redis_errors.TimeoutError, TimeoutError))


def _is_answer(reply: object) -> bool:
    return isinstance(reply, (list, dict)) and bool(reply)
