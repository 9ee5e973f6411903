"""One connection of a thread: borrow, write, read, give back; `sluicegate._redis.asyncio.transport` serves tasks."""

from __future__ import annotations

from typing import Any

from redis import exceptions as redis_errors

from sluicegate._redis.compat import CONNECTION_FOR, read_closed_connection

__all__ = ["borrow", "give_back", "read", "read_within", "send"]


def borrow(pool: Any) -> Any:
    """Return a connected connection, which `give_back` returns to the pool."""
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
    """Return a raw reply, or the error that the server answered with.

    Args:
        connection: to read from.
        seconds: how long the reply may take, where the client's socket timeout may be shorter.
    """
    try:
        if seconds is not None:
            connection.can_read(timeout=seconds)
        return connection.read_response(disable_decoding=True)
    except redis_errors.ResponseError as error:
        return error
    except ValueError as error:
        if (closed := read_closed_connection(error)) is None:
            raise
        raise closed from error


def read_within(connection: Any, seconds: float) -> Any:
    """Return a raw reply or the server's error, None when nothing arrives in time."""
    return read(connection) if connection.can_read(timeout=seconds) else None
