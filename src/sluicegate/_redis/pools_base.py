"""How the gateway's own pools are derived from the pool or cluster client of its user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis
import redis.asyncio
from redis import exceptions as redis_errors
from redis.crc import key_slot

from sluicegate._redis.cluster_routes import Node, Routes
from sluicegate._redis.compat import (
    UNLIMITED_CONNECTIONS,
    connection_class_with_timeout,
    options_of_primary,
    unbound_options,
)

__all__ = [
    "ASKING",
    "STOP_SLICE_SECONDS",
    "WAIT_MARGIN_SECONDS",
    "Command",
    "PoolsBase",
    "Stage",
    "WaitEnded",
    "derived_pool",
    "has_one_connection",
    "known_nodes",
    "node_options",
    "owner",
    "sentinels",
]

Command = tuple[bytes | int | str | float, ...]
ASKING: tuple[Command, ...] = (("ASKING",),)
WAIT_MARGIN_SECONDS = 5.0  # how much later than requested the reply to a blocking command may arrive
STOP_SLICE_SECONDS = 0.1  # between checks whether a wait should end
_SINGLE_TIMEOUT_SECONDS = 5.0


class WaitEnded(Exception):
    """A wait ended without a reply; its connection cannot be used again."""


class Stage:
    """What connections are for; each stage has connections of its own."""

    CALLS = "calls"
    SINGLE = "single"  # one bounded attempt: a server that hangs blocks its caller for a few seconds at most
    WAITING = "waiting"
    LOOPS = "loops"  # a loop keeps one from message to message, while handlers use those of the client


class PoolsBase:
    """The nodes of a cluster by key; its subclasses keep the client and the pools."""

    def __init__(self) -> None:
        self._routes = Routes()

    @property
    def client(self) -> Any:
        """Return the client, which is made on first use."""
        raise NotImplementedError

    def learn(self, key: bytes, node: Node) -> None:
        """Remember that a node answers for a key's slot."""
        self._routes.learn(key_slot(key), node)

    def suspect(self, key: bytes, node: Node) -> None:
        """Ask another node for a key's slot next time, because this one failed."""
        self._routes.suspect(key_slot(key), node, known_nodes(self.client))

    def _node(self, client: Any, key: bytes) -> Node:
        return self._routes.get(key_slot(key)) or owner(client, key)


def derived_pool(pool: Any, stage: str, no_retry: object) -> Any:
    """Return a pool for a stage that connects to the same server as the user's pool and does not retry."""
    options = _options(pool.connection_kwargs, stage, no_retry)
    kind = pool.connection_class
    if hasattr(pool, "service_name"):
        options.update(connection_class=kind, is_master=pool.is_master)
        return type(pool)(pool.service_name, pool.sentinel_manager, **options)
    plain = redis.asyncio.ConnectionPool if isinstance(pool, redis.asyncio.ConnectionPool) else redis.ConnectionPool
    return plain(connection_class=connection_class_with_timeout(kind), **options)


def node_options(options: Mapping[str, Any], stage: str, no_retry: object, node: Node) -> dict[str, Any]:
    """Return the options of a pool for a stage and a cluster node, derived from those of another node."""
    derived = options_of_primary(_options(options, stage, no_retry))
    derived.update(host=node[0], port=node[1])
    return derived


def owner(client: Any, key: bytes) -> Node:
    """Return the node that has a key according to a cluster client, or any node when the client does not know."""
    try:
        found = client.get_node_from_key(key)
    except (redis_errors.RedisClusterException, KeyError, IndexError):
        found = None
    return known_nodes(client)[0] if found is None else (found.host, int(found.port))


def known_nodes(client: Any) -> list[Node]:
    """Return the nodes that a cluster client knows, its startup nodes last."""
    nodes = [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()]
    if not nodes:
        raise redis_errors.ClusterDownError("CLUSTERDOWN the client knows no node")
    return [(node.host, int(node.port)) for node in nodes]


def sentinels(client: Any) -> Sequence[Any]:
    """Return the clients of the Sentinels through which a client finds its primary."""
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return manager.sentinels if manager is not None else ()


def has_one_connection(pool: Any) -> bool:
    """Return whether a pool has a single connection, which others would miss while a reply on it is outstanding."""
    return getattr(pool, "max_connections", None) == 1


def _options(options: Mapping[str, Any], stage: str, no_retry: object) -> dict[str, Any]:
    derived = unbound_options(options)
    derived["retry"] = no_retry
    if stage != Stage.CALLS:  # one for each waiter and heartbeat; a waiter without a connection would spin
        derived["max_connections"] = UNLIMITED_CONNECTIONS
    if stage == Stage.SINGLE:
        for name in ("socket_timeout", "socket_connect_timeout"):
            derived[name] = min(options.get(name) or _SINGLE_TIMEOUT_SECONDS, _SINGLE_TIMEOUT_SECONDS)
    return derived
