"""Client, pools and connections of a gateway for event loops; `sluicegate._redis.pools` serves threads.

Written by hand. Sockets belong to one event loop here and to a process there, waits end differently, redis-py's two
connections read differently, and cancellation has no counterpart in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import redis.asyncio
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sluicegate._redis.cluster_routes import Node
from sluicegate._redis.compat import CONNECTION_FOR, close_async_client
from sluicegate._redis.connection import Address, is_cluster_client, refuse_unfit_client
from sluicegate._redis.error_mapping import raise_if_failover
from sluicegate._redis.pools_base import (
    ASKING,
    STOP_SLICE_SECONDS,
    WAIT_MARGIN_SECONDS,
    Command,
    PoolsBase,
    Stage,
    WaitEnded,
    derived_pool,
    node_options,
    sentinels,
)
from sluicegate.cancellation import CancellationGuard
from sluicegate.clock import elapsed_clock

__all__ = ["Client", "ClientPools", "borrow", "borrowed", "give_back", "read", "read_within", "send", "send_whole"]

Client = redis.asyncio.Redis | redis.asyncio.RedisCluster
_NO_RETRY = Retry(NoBackoff(), 0)


class ClientPools(PoolsBase):
    """The client and the pools of one gateway, for any number of event loops.

    Args:
        client: of the user, who closes it; None when the gateway makes its own.
        address: where the gateway's own clients connect to, one client per event loop.

    Raises:
        ConfigurationError: a client that a gateway cannot use.
    """

    def __init__(self, client: Client | None, address: Address | None) -> None:
        super().__init__()
        if client is not None:
            refuse_unfit_client(client, asynchronous=True)
        self._given = client
        self._address = address
        # Sockets belong to the event loop, and so to the process, in which they were made.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()

    @property
    def client(self) -> Client:
        """Return the client; one for a URL is made on first use in an event loop."""
        if self._given is not None:
            return self._given
        assert self._address is not None
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._address.async_client()
        return self._clients[loop]

    async def find(self, stage: str, key: bytes, place: Node | None) -> tuple[Any, Node | None]:
        """Return the pool for a key, and in a cluster the node that the pool connects to.

        Args:
            stage: what the connection is for.
            key: of the call.
            place: the node that a redirection named, None without one.
        """
        client: Any = self.client
        made = self._made.setdefault(asyncio.get_running_loop(), {})
        if not is_cluster_client(client):
            if stage == Stage.CALLS:
                return client.connection_pool, None
            if stage not in made:
                made[stage] = derived_pool(client.connection_pool, stage, _NO_RETRY)
            return made[stage], None
        with CancellationGuard():
            await client.initialize()  # connects the first time only
        node = place or self._node(client, key)
        if (stage, node) not in made:
            made[stage, node] = self._node_pool(client, stage, node)
        return made[stage, node], node

    async def find_servers(self, stage: str) -> dict[str, Any]:
        """Return a pool for each server that has keys: the only one, or each primary of a cluster by its address."""
        client: Any = self.client
        if not is_cluster_client(client):
            pool, _ = await self.find(stage, b"", None)
            return {"": pool}
        with CancellationGuard():
            await client.initialize()
        nodes = [(node.host, int(node.port)) for node in client.get_primaries()]
        return {f"{host}:{port}": (await self.find(stage, b"", (host, port)))[0] for host, port in nodes}

    async def listen(
        self, command: Command, seconds: float, stopped: Callable[[], bool] | None, pool: Any, *, asking: bool
    ) -> list[Any]:
        """Return the reply to a command that blocks, such as BLPOP on the wake-up list.

        Args:
            command: what to send.
            seconds: how long it blocks.
            stopped: asked every 0.1 s whether to end.
            pool: of connections.
            asking: whether ASKING has to come first.

        Raises:
            WaitEnded: `stopped` said so, or no reply came in time.
        """
        async with borrowed(pool) as connection:
            sent: list[Command] = [command]
            await send(connection, connection.pack_commands([*ASKING, *sent] if asking else sent))
            if asking:
                await read(connection)
            end = elapsed_clock() + seconds + WAIT_MARGIN_SECONDS
            reading = asyncio.ensure_future(read(connection, seconds + WAIT_MARGIN_SECONDS))
            try:
                while not reading.done():
                    if elapsed_clock() > end or (stopped is not None and stopped()):
                        raise WaitEnded
                    await asyncio.wait({reading}, timeout=STOP_SLICE_SECONDS if stopped is not None else None)
                return [raise_if_failover(reading.result())]
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)  # a connection goes back without a reader

    async def close(self) -> None:
        """Close the pools and the client that were made in this event loop; the user's client stays open."""
        loop = asyncio.get_running_loop()
        made = self._made.get(loop, {})
        for place, pool in list(made.items()):  # forgotten one by one after closing, because a close may be cancelled
            await pool.disconnect()
            made.pop(place, None)
        client = self._clients.get(loop)
        if client is not None:
            for each in (client, *sentinels(client)):
                await close_async_client(each)
            self._clients.pop(loop, None)

    @staticmethod
    def _node_pool(client: redis.asyncio.RedisCluster, stage: str, node: Node) -> Any:
        like = client.get_nodes()[0]
        options = node_options(like.connection_kwargs, stage, _NO_RETRY, node)
        return redis.asyncio.ConnectionPool(connection_class=like.connection_class, **options)


# ---------------------------------------------------------------------- one connection


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


async def send_whole(connection: Any, packed: Any) -> None:
    """Write packed commands to the last byte, for a caller that works on before it awaits anything.

    Usually the event loop writes what the socket's buffer did not take, as soon as it has the time.
    """
    if (writer := getattr(connection, "_writer", None)) is not None:
        writer.transport.set_write_buffer_limits(0)
    await send(connection, packed)


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


@asynccontextmanager
async def borrowed(pool: Any) -> AsyncIterator[Any]:
    """Lend a connection for a block; the pool gets it back intact when the block ends without an exception."""
    connection = await borrow(pool)
    intact = False
    try:
        yield connection
        intact = True
    finally:
        await give_back(pool, connection, intact=intact)
