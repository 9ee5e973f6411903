# Made from src/sluicegate/_redis/asyncio/connection_io.py by `make format`; edit there.
"""Commands out and raw replies in on one pooled connection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sluicegate._redis import error_mapping
from sluicegate._redis.pools import borrow, give_back, read, read_within, send
from sluicegate._redis.pools_base import ASKING, Command
from sluicegate._redis.size_limits import ANNOUNCED_SECONDS, announcement, is_refused_size
from sluicegate.clock import elapsed_clock

__all__ = ["HeldConnection", "exchange", "packed", "refuses_announced"]

_HELD_SECONDS = 0.5
_SIZES = [b"\r\n$%d\r\n" % size for size in range(200)]  # what stands between two arguments, by the size of the second


def exchange(
    pool: Any,
    sent: Sequence[Command],
    *,
    asking: bool = False,
    seconds: float | None = None,
    held: HeldConnection | None = None,
) -> list[Any]:
    """Send commands in one write on one connection and return their raw replies, errors among them.

    Args:
        pool: of connections.
        sent: the commands.
        asking: whether a cluster moves the slot to this node, so that ASKING has to come first.
        seconds: how long the last reply may take, None for as long as any other.
        held: has the connection, and keeps it; None: any connection of the pool.
    """
    take, end = (borrow, give_back) if held is None else (held.take, held.keep)
    connection = take(pool)
    intact = False
    try:
        send(connection, packed([*ASKING, *sent] if asking else sent))
        if asking:
            read(connection)
        replies = [read(connection, seconds if command is sent[-1] else None) for command in sent]
        intact = not any(isinstance(reply, Exception) and error_mapping.ends_connection(reply) for reply in replies)
        return replies
    finally:
        end(pool, connection, intact=intact)


def packed(sent: Sequence[Command]) -> list[bytes]:
    """Return commands as redis-py packs them, which takes longer."""
    pieces: list[bytes] = []
    for command in sent:
        pieces.append(b"*%d" % len(command))
        for each in command:
            argument = each if type(each) is bytes else _encoded(each)
            size = len(argument)
            pieces += (_SIZES[size] if size < len(_SIZES) else b"\r\n$%d\r\n" % size, argument)
        pieces.append(b"\r\n")
    return [b"".join(pieces)]


def _encoded(argument: bytes | int | str | float) -> bytes:
    if type(argument) is int:
        return b"%d" % argument
    if isinstance(argument, bytes):
        return argument
    return (argument if isinstance(argument, str) else repr(argument)).encode()


def refuses_announced(pool: Any, size: int) -> bool:
    """Return whether the server refuses an argument of some size when it is announced; nothing is executed."""
    connection = borrow(pool)
    try:
        send(connection, [announcement(size)])
        return is_refused_size(read_within(connection, ANNOUNCED_SECONDS))
    finally:
        give_back(pool, connection, intact=False)  # it is in the middle of a command


class HeldConnection:
    """Keeps the connection of calls that follow one another, from the reply to one to the next.

    The pool would examine it and take its lock for each of them. After half a second without a call, the pool gets the
    connection back before the next call, because the pool notices what the server has closed meanwhile. A forked
    process and a call for another server never use it. One task or thread at a time holds it.
    """

    def __init__(self) -> None:
        self._kept: tuple[Any, Any] | None = None  # pool and connection
        self._since = 0.0
        self._process = 0

    def take(self, pool: Any) -> Any:
        """Return a connection of a pool: the one that is kept, if it is of this pool."""
        if self._kept is not None:
            kept, connection = self._kept
            if kept is pool and elapsed_clock() - self._since < _HELD_SECONDS and self._process == os.getpid():
                self._kept = None
                return connection
            self.close()
        return borrow(pool)

    def keep(self, pool: Any, connection: Any, *, intact: bool) -> None:
        """Keep a connection that `take` returned; one that is not `intact` is closed and goes back to its pool."""
        if not intact:
            give_back(pool, connection, intact=False)
            return
        self._kept, self._since, self._process = (pool, connection), elapsed_clock(), os.getpid()

    def close(self) -> None:
        """Return the connection to its pool; in a forked process it is only forgotten."""
        kept, self._kept = self._kept, None
        if kept is not None and self._process == os.getpid():
            give_back(*kept, intact=True)
