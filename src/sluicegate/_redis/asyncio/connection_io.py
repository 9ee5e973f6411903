"""Commands out and raw replies in on one pooled connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluicegate._redis import error_mapping
from sluicegate._redis.asyncio.pools import borrow, give_back, read, read_within, send
from sluicegate._redis.pools_base import ASKING, Command
from sluicegate._redis.size_limits import ANNOUNCED_SECONDS, announcement, is_refused_size

__all__ = ["exchange", "refuses_announced"]


async def exchange(
    pool: Any, sent: Sequence[Command], *, asking: bool = False, seconds: float | None = None
) -> list[Any]:
    """Send commands in one write on one connection and return their raw replies, errors among them.

    Args:
        pool: of connections.
        sent: the commands.
        asking: whether a cluster moves the slot to this node, so that ASKING has to come first.
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
        intact = not any(isinstance(reply, Exception) and error_mapping.ends_connection(reply) for reply in replies)
        return replies
    finally:
        await give_back(pool, connection, intact=intact)


async def refuses_announced(pool: Any, size: int) -> bool:
    """Return whether the server refuses an argument of some size when it is announced; nothing is executed."""
    connection = await borrow(pool)
    try:
        await send(connection, [announcement(size)])
        return is_refused_size(await read_within(connection, ANNOUNCED_SECONDS))
    finally:
        await give_back(pool, connection, intact=False)  # it is in the middle of a command
