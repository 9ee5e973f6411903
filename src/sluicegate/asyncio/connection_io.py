"""Commands out and raw replies in on one pooled connection of asyncio; `sluicegate.connection_io` is the other half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis import exceptions as redis_errors

from sluicegate._gateway_base import ASKING, CONNECTION_FOR, Command
from sluicegate._redis import error_mapping
from sluicegate._redis.size_limits import ANNOUNCED_SECONDS, announcement, is_refused_size
from sluicegate.cancellation import CancellationGuard

__all__ = ["borrow", "borrowed", "exchange", "give_back", "read", "refuses_announced", "send"]


async def exchange(
    pool: Any, sent: Sequence[Command], *, asking: bool = False, seconds: float | None = None
) -> list[Any]:
    """Send commands in one write on one connection and return their raw replies, errors among them.

    Args:
        pool: of connections.
        sent: the commands.
        asking: whether a cluster is to be told that the slot is on its way.
        seconds: how long the last reply may take, None for as long as any other.
    """
    connection = await borrow(pool)
    intact = False
    try:
        one = len(sent) == 1 and not asking
        packed = (
            connection.pack_command(*sent[0]) if one else connection.pack_commands([*ASKING, *sent] if asking else sent)
        )
        await send(connection, packed)
        if asking:
            await read(connection)
        replies = [await read(connection, seconds if command is sent[-1] else None) for command in sent]
        intact = not any(error_mapping.ends_connection(reply) for reply in replies)
        return replies
    finally:
        await give_back(pool, connection, intact=intact)


async def borrow(pool: Any) -> Any:
    """A connected connection, for `give_back`; a cancellation that comes meanwhile goes through and leaves none out."""
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
    """Return a connection to its pool, closed unless it is `intact`; a cancellation goes through once that is done."""
    try:
        if not intact:
            await connection.disconnect(nowait=True)
    finally:
        try:
            await pool.release(connection)
        except asyncio.CancelledError:  # while it waited for the pool's lock: the pool would miss a connection for ever
            await asyncio.wait({asyncio.ensure_future(_release(pool, connection))})
            raise


async def _release(pool: Any, connection: Any) -> None:
    with suppress(KeyError):  # it was released after all
        await pool.release(connection)


async def send(connection: Any, packed: Any) -> None:
    """Write packed commands; a cancellation that comes meanwhile goes through."""
    with CancellationGuard():
        await connection.send_packed_command(packed)


async def read(connection: Any, seconds: float | None = None) -> Any:
    """A raw reply, or the error that the server answered with."""
    try:
        if seconds is None:
            return await connection.read_response(disable_decoding=True)
        return await connection.read_response(disable_decoding=True, timeout=seconds)
    except redis_errors.ResponseError as error:
        return error


async def refuses_announced(pool: Any, size: int) -> bool:
    """Whether the server refuses an argument of some size as soon as it is announced; nothing is executed."""
    connection = await borrow(pool)
    try:
        await send(connection, [announcement(size)])
        return is_refused_size(await read(connection, ANNOUNCED_SECONDS))
    except redis_errors.TimeoutError:
        return False
    finally:
        await give_back(pool, connection, intact=False)  # in the middle of a command


@asynccontextmanager
async def borrowed(pool: Any) -> AsyncIterator[Any]:
    """A connection that goes back when its replies were read; whatever interrupts that drops it."""
    connection = await borrow(pool)
    intact = False
    try:
        yield connection
        intact = True
    finally:
        await give_back(pool, connection, intact=intact)
