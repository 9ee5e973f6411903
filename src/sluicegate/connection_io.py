"""Commands out and raw replies in on one pooled connection; `sluicegate.asyncio.connection_io` is the other half."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis import exceptions as redis_errors

from sluicegate._gateway_base import ASKING, CONNECTION_FOR, Command
from sluicegate._redis import error_mapping
from sluicegate._redis.size_limits import ANNOUNCED_SECONDS, announcement, is_refused_size

__all__ = ["borrow", "borrowed", "exchange", "give_back", "read", "refuses_announced", "send"]


def exchange(pool: Any, sent: Sequence[Command], *, asking: bool = False, seconds: float | None = None) -> list[Any]:
    """Send commands in one write on one connection and return their raw replies, errors among them.

    Args:
        pool: of connections.
        sent: the commands.
        asking: whether a cluster is to be told that the slot is on its way.
        seconds: how long the last reply may take, None for as long as any other.
    """
    connection = borrow(pool)
    intact = False
    try:
        one = len(sent) == 1 and not asking
        packed = (
            connection.pack_command(*sent[0]) if one else connection.pack_commands([*ASKING, *sent] if asking else sent)
        )
        send(connection, packed)
        if asking:
            read(connection)
        replies = [read(connection, seconds if command is sent[-1] else None) for command in sent]
        intact = not any(error_mapping.ends_connection(reply) for reply in replies)
        return replies
    finally:
        give_back(pool, connection, intact=intact)


def borrow(pool: Any) -> Any:
    """A connected connection, for `give_back`."""
    return pool.get_connection(*CONNECTION_FOR)


def give_back(pool: Any, connection: Any, *, intact: bool) -> None:
    """Return a connection to its pool, closed unless it is `intact`."""
    try:
        if not intact:
            connection.disconnect()
    finally:
        pool.release(connection)


def send(connection: Any, packed: Any) -> None:
    """Write packed commands."""
    connection.send_packed_command(packed)


def read(connection: Any, seconds: float | None = None) -> Any:
    """A raw reply, or the error that the server answered with."""
    try:
        if seconds is not None:
            connection.can_read(timeout=seconds)  # a client's socket timeout may be shorter
        return connection.read_response(disable_decoding=True)
    except redis_errors.ResponseError as error:
        return error
    except ValueError as error:
        if "closed file" not in str(error):
            raise
        # redis-py 5.0 trips over its buffer when another thread closes the connection under it.
        raise redis_errors.ConnectionError("the connection was closed while a reply was awaited") from error


def refuses_announced(pool: Any, size: int) -> bool:
    """Whether the server refuses an argument of some size as soon as it is announced; nothing is executed."""
    connection = borrow(pool)
    try:
        send(connection, [announcement(size)])
        return bool(connection.can_read(timeout=ANNOUNCED_SECONDS)) and is_refused_size(read(connection))
    finally:
        give_back(pool, connection, intact=False)  # in the middle of a command


@contextmanager
def borrowed(pool: Any) -> Iterator[Any]:
    """A connection that goes back when its replies were read; whatever interrupts that drops it."""
    connection = borrow(pool)
    intact = False
    try:
        yield connection
        intact = True
    finally:
        give_back(pool, connection, intact=intact)
