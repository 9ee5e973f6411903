"""Client, pools and connections of a gateway for threads; `sluicegate._redis.asyncio.pools` serves event loops."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate._redis.cluster_routes import Node
from sluicegate._redis.compat import CONNECTION_FOR, closed_meanwhile, renew_pool_locks
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
from sluicegate.clock import elapsed_clock

__all__ = ["Client", "ClientPools", "borrow", "borrowed", "give_back", "read", "read_within", "send", "send_whole"]

Client = redis.Redis | redis.RedisCluster
_NO_RETRY = Retry(NoBackoff(), 0)


class ClientPools(PoolsBase):
    """The client and the pools of one gateway. Threads share them, and they survive a fork.

    Args:
        client: of the user, who closes it; None when the gateway makes its own.
        address: where the gateway's own client connects to.

    Raises:
        ConfigurationError: a client that a gateway cannot use.
    """

    def __init__(self, client: Client | None, address: Address | None) -> None:
        super().__init__()
        if client is not None:
            refuse_unfit_client(client)
        self._client = client
        self._address = address
        self._made: dict[object, Any] = {}
        self._lock = threading.RLock()  # guards making the client; a signal handler may interrupt the thread that does
        _every_one.add(self)

    @property
    def client(self) -> Client:
        """Return the client; one for a URL is made on first use."""
        client = self._client
        if client is None:
            assert self._address is not None
            with self._lock:
                client = self._client = self._client or self._address.client()
        return client

    def find(self, stage: str, key: bytes, place: Node | None) -> tuple[Any, Node | None]:
        """Return the pool for a key, and in a cluster the node that the pool connects to.

        Args:
            stage: what the connection is for.
            key: of the call.
            place: the node that a redirection named, None without one.
        """
        client: Any = self.client
        made = self._made
        if not is_cluster_client(client):
            if stage == Stage.CALLS:
                return client.connection_pool, None
            # Two threads may make a pool each, of which one is kept: neither has connected yet.
            pool = made.get(stage) or made.setdefault(stage, derived_pool(client.connection_pool, stage, _NO_RETRY))
            return pool, None
        node = place or self._node(client, key)
        pool = made.get((stage, node)) or made.setdefault((stage, node), self._node_pool(client, stage, node))
        return pool, node

    def find_servers(self, stage: str) -> dict[str, Any]:
        """Return a pool for each server that has keys: the only one, or each primary of a cluster by its address."""
        client: Any = self.client
        if not is_cluster_client(client):
            return {"": self.find(stage, b"", None)[0]}
        nodes = [(node.host, int(node.port)) for node in client.get_primaries()]
        return {f"{host}:{port}": self.find(stage, b"", (host, port))[0] for host, port in nodes}

    def listen(
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
            WaitEnded: `stopped` said so, no reply came in time, or another thread closed the pools.
        """
        with borrowed(pool) as connection:
            sent: list[Command] = [command]
            send(connection, connection.pack_commands([*ASKING, *sent] if asking else sent))
            if asking:
                read(connection)
            end = elapsed_clock() + seconds + WAIT_MARGIN_SECONDS
            made = self._made
            while (left := end - elapsed_clock()) > 0 and self._made is made and not (stopped and stopped()):
                try:
                    if connection.can_read(timeout=min(left, STOP_SLICE_SECONDS)):
                        return [raise_if_failover(read(connection))]
                except Exception:  # a socket that another thread closes meanwhile fails in many ways
                    if self._made is made:
                        raise
            raise WaitEnded

    def close(self) -> None:
        """Close the pools and the client that were made here; the user's client stays open."""
        made, self._made = self._made, {}
        for pool in list(made.values()):  # a thread that waits may be adding one
            pool.disconnect()
        if self._address is not None:
            client, self._client = self._client, None
            if client is not None:
                for each in (client, *sentinels(client)):
                    each.close()

    @staticmethod
    def _node_pool(client: redis.RedisCluster, stage: str, node: Node) -> Any:
        like = client.get_redis_connection(client.get_nodes()[0]).connection_pool
        options = node_options(like.connection_kwargs, stage, _NO_RETRY, node)
        return redis.ConnectionPool(connection_class=like.connection_class, **options)

    def _renew_locks(self) -> None:
        """Replace locks that threads may have held when this process was forked."""
        self._lock = threading.RLock()
        for pool in (*self._made.values(), getattr(self._client, "connection_pool", None)):
            renew_pool_locks(pool)


_every_one: WeakSet[ClientPools] = WeakSet()


def _after_fork() -> None:
    for pools in list(_every_one):
        pools._renew_locks()


os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------------- one connection


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
    try:
        connection.send_packed_command(packed)
    except (AttributeError, ValueError) as error:
        if (closed := closed_meanwhile(error)) is None:
            raise
        raise closed from error


send_whole = send
"""The same to the last byte, which `send` waits for; in an event loop it does not."""


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
    except (AttributeError, ValueError) as error:
        if (closed := closed_meanwhile(error)) is None:
            raise
        raise closed from error


def read_within(connection: Any, seconds: float) -> Any:
    """Return a raw reply or the server's error, None when nothing arrives in time."""
    return read(connection) if connection.can_read(timeout=seconds) else None


@contextmanager
def borrowed(pool: Any) -> Iterator[Any]:
    """Lend a connection for a block; the pool gets it back intact when the block ends without an exception."""
    connection = borrow(pool)
    intact = False
    try:
        yield connection
        intact = True
    finally:
        give_back(pool, connection, intact=intact)
