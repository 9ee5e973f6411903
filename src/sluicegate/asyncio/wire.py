"""Commands out and raw replies in on one pooled connection of asyncio; `sluicegate.wire` is the other half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions as redis_errors

from sluicegate import faults
from sluicegate.shared.gateway import ASKING, CONNECTION_FOR, Command

__all__ = ["borrowed", "exchange", "read", "send"]


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
    connection = await pool.get_connection(*CONNECTION_FOR)
    finished = False
    try:
        one = len(sent) == 1 and not asking
        packed = (
            connection.pack_command(*sent[0]) if one else connection.pack_commands([*ASKING, *sent] if asking else sent)
        )
        await send(connection, packed)
        if asking:
            await read(connection)
        replies = [await read(connection, seconds if command is sent[-1] else None) for command in sent]
        finished = not any(faults.is_readonly(reply) for reply in replies)  # else the primary is to be looked up again
        return replies
    finally:
        if not finished:
            await connection.disconnect(nowait=True)
        await pool.release(connection)


async def send(connection: Any, packed: Any) -> None:
    """Write packed commands; a cancellation that comes meanwhile goes through.

    redis-py writes under `asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes as the write ends.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    await connection.send_packed_command(packed)
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def read(connection: Any, seconds: float | None = None) -> Any:
    """A raw reply, or the error that the server answered with."""
    try:
        if seconds is None:
            return await connection.read_response(disable_decoding=True)
        return await connection.read_response(disable_decoding=True, timeout=seconds)
    except redis_errors.ResponseError as error:
        return error


@asynccontextmanager
async def borrowed(pool: Any) -> AsyncIterator[Any]:
    """A connection that goes back when its replies were read; whatever interrupts that drops it."""
    connection = await pool.get_connection(*CONNECTION_FOR)
    finished = False
    try:
        yield connection
        finished = True
    finally:
        if not finished:
            await connection.disconnect(nowait=True)
        await pool.release(connection)
