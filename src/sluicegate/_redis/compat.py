"""Differences between redis-py 5, 6, 7 and 8, and every private attribute of redis-py that Sluicegate touches.

A new version of redis-py is supported by editing this module and running `make test-matrix`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import redis
import redis.asyncio
from redis import exceptions as redis_errors
from redis.asyncio.sentinel import MasterNotFoundError as AsyncMasterNotFoundError
from redis.cluster import REDIS_ALLOWED_KEYS, ClusterNode
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, parse_url
from redis.sentinel import MasterNotFoundError

__all__ = [
    "CONNECTION_FOR",
    "NO_PRIMARY",
    "SENTINEL_PROTOCOL",
    "UNLIMITED_CONNECTIONS",
    "URL_OPTIONS",
    "close_async_client",
    "closed_meanwhile",
    "cluster_client",
    "connection_class_with_timeout",
    "first_line",
    "is_pool_exhausted",
    "options_of_primary",
    "presentable",
    "renew_pool_locks",
    "unasked_sentinels",
    "unbound_options",
    "url_options",
]

# ---------------------------------------------------------------------- pools and connections

# Before 5.3 `get_connection` requires the name of a command; later versions warn when they get one.
_COMMAND_NAME = signature(redis.ConnectionPool.get_connection).parameters["command_name"]
CONNECTION_FOR = ("EVALSHA",) if _COMMAND_NAME.default is Parameter.empty else ()

# Version 8 allows 100 connections per pool unless told otherwise.
UNLIMITED_CONNECTIONS = 2**31

# Recent versions add these options, which belong to the pool or cluster client that carries them.
# A pool made from the same options creates its own.
_BOUND_OPTIONS = ("connection_pool", "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler")


def unbound_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a pool without those that belong to that pool alone."""
    return {name: value for name, value in options.items() if name not in _BOUND_OPTIONS}


def options_of_primary(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a cluster node's pool without the hook that sends READONLY.

    READONLY lets a replica answer. Scripts belong on the primary.
    """
    return {name: value for name, value in options.items() if name != "redis_connect_func"}


def connection_class_with_timeout(kind: Any) -> Any:
    """Return a connection class that keeps its socket timeout: version 5.0 forgets that of a unix socket."""
    plain = redis.UnixDomainSocketConnection
    if not issubclass(kind, plain) or plain(path="", socket_timeout=1).socket_timeout == 1:  # type: ignore[abstract,no-untyped-call]
        return kind

    class WithTimeout(kind):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.socket_timeout = options.get("socket_timeout")

    return WithTimeout


def closed_meanwhile(error: AttributeError | ValueError) -> redis_errors.ConnectionError | None:
    """Return the connection error that an error of redis-py's own stands for, or None.

    When another thread closes a connection in use, every version fails on the socket or the parser that is None by
    then, and version 5.0 also on its closed buffer.
    """
    gone = isinstance(error, AttributeError) and error.obj is None
    if not gone and "closed file" not in str(error):
        return None
    return redis_errors.ConnectionError("the connection was closed while it was in use")


def renew_pool_locks(pool: Any) -> None:
    """Replace the locks of a pool in a forked child, where the threads that held them do not exist."""
    for name in ("_lock", "_fork_lock"):  # the pool takes the first to find out that it runs in a child
        if hasattr(pool, name):
            setattr(pool, name, threading.RLock())


async def close_async_client(client: Any) -> None:
    """Close an asyncio client; version 5.0 has no `aclose` on every class."""
    await (client.aclose() if hasattr(client, "aclose") else client.close())


# ---------------------------------------------------------------------- URLs and clusters

URL_OPTIONS = frozenset(URL_QUERY_ARGUMENT_PARSERS)
"""The options that redis-py converts to numbers, booleans and so on when it reads a URL."""


def url_options(query: str) -> dict[str, Any]:
    """Return the options of a query string as redis-py reads them, without host, port, database and class."""
    read: dict[str, Any] = dict(parse_url(f"redis://localhost/0?{query}"))
    for name in ("host", "port", "db", "connection_class"):
        read.pop(name, None)
    return read


# Version 5.0 cannot parse what Sentinels answer in RESP3.
SENTINEL_PROTOCOL = 2


def cluster_client(nodes: Sequence[ClusterNode], options: Mapping[str, Any]) -> redis.RedisCluster:
    """Return a cluster client that checks host names in certificates when its options ask for that.

    Version 5 drops `ssl_check_hostname`. It accepts a connection class, but only together with a URL.
    """
    if not options.get("ssl_check_hostname") or "ssl_check_hostname" in REDIS_ALLOWED_KEYS:
        return redis.RedisCluster(startup_nodes=[*nodes], **options)
    kept = {name: value for name, value in options.items() if name not in ("ssl", "ssl_check_hostname")}
    first = nodes[0]
    host = f"[{first.host}]" if ":" in first.host else first.host
    return redis.RedisCluster(
        url=f"redis://{host}:{first.port}",
        startup_nodes=[*nodes[1:]],
        connection_class=_HostCheckingConnection,
        **kept,
    )


class _HostCheckingConnection(redis.SSLConnection):
    """A TLS connection that requires the host's name in the certificate."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "ssl_check_hostname": True})


# ---------------------------------------------------------------------- texts of errors

NO_PRIMARY = (MasterNotFoundError, AsyncMasterNotFoundError)
"""What the two flavours raise when no Sentinel names a primary."""

_UNASKED = re.compile(r" - (?:\w+:)?\w+Error\b")


def unasked_sentinels(error: BaseException) -> int:
    """Return how many Sentinels could not be asked for the primary; only the error's text lists them."""
    return len(_UNASKED.findall(str(error))) if isinstance(error, NO_PRIMARY) else 0


def presentable(error: Exception) -> Exception:
    """Return an error without secrets.

    Versions 5 and 6 print the options of a Sentinel's client, its password among them, in the text of NO_PRIMARY.
    """
    if not isinstance(error, NO_PRIMARY):
        return error
    return type(error)(f"{first_line(error)} ({unasked_sentinels(error)} Sentinels could not be asked)")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without the part that may hold secrets."""
    text = str(error)
    if isinstance(error, NO_PRIMARY):
        text = text.partition(" : ")[0]
    lines = text.splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__


def is_pool_exhausted(error: BaseException) -> bool:
    """Return whether a pool had no connection left; only recent versions have a class for that."""
    return isinstance(error, redis_errors.MaxConnectionsError) or (
        isinstance(error, redis_errors.ConnectionError)
        and str(error).startswith(("Too many connections", "No connection available"))
    )
