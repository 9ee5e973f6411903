"""One connection of an event loop: borrow, write, read, give back; `sluicegate._redis.transport` serves threads.

Written by hand, because cancellation has no counterpart in threads and redis-py's two connections read differently.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_errors

from sluicegate._redis.compat import CONNECTION_FOR
from sluicegate.cancellation import CancellationGuard

__all__ = ["borrow", "give_back", "read", "read_within", "send"]


async def borrow(pool: Any) -> Any:
    """Return a connected connection, which `give_back` returns to the pool.

    A cancellation during the call is raised, and the connection is back in the pool then.
    """
    connection = None
    try:
        with CancellationGuard():
            connection = await pool.get_connection(*CONNECTION_FOR)
    except asyncio.CancelledError:
        if connection is not None:
            await give_back(pool, connection, intact=True)
        raise
    return connection


async def give_back(pool: Any, connection: Any, *, intact: bool) -> None:
    """Return a connection to its pool, closed unless it is `intact`; a cancellation is raised after that."""
    try:
        if not intact:
            await connection.disconnect(nowait=True)
    finally:
        try:
            await pool.release(connection)
        except asyncio.CancelledError:  # it waited for the pool's lock: without a second try the pool loses a place
            await asyncio.wait({asyncio.ensure_future(_release(pool, connection))})
            raise


async def _release(pool: Any, connection: Any) -> None:
    with suppress(KeyError):  # the first try had released it
        await pool.release(connection)


async def send(connection: Any, packed: Any) -> None:
    """Write packed commands; a cancellation during the write is raised."""
    with CancellationGuard():
        await connection.send_packed_command(packed)


async def read(connection: Any, seconds: float | None = None) -> Any:
    """Return a raw reply, or the error that the server answered with.

    Args:
        connection: to read from.
        seconds: how long the reply may take, where the client's socket timeout may be shorter.
    """
    try:
        if seconds is None:
            return await connection.read_response(disable_decoding=True)
        return await connection.read_response(disable_decoding=True, timeout=seconds)
    except redis_errors.ResponseError as error:
        return error


async def read_within(connection: Any, seconds: float) -> Any:
    """Return a raw reply or the server's error, None when nothing arrives in time."""
    try:
        return await read(connection, seconds)
    except redis_errors.TimeoutError:
        return None
