"""URLs of places with several servers: a Sentinel service, a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.cluster import ClusterNode
from redis.sentinel import Sentinel

from sluicegate._redis.compat import SENTINEL_PROTOCOL, cluster_client, url_options
from sluicegate.errors import ConfigurationError

__all__ = ["SCHEMES", "async_client", "check", "client", "describe"]

SCHEMES = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_DEFAULT_PORTS = {"sentinel": 26379, "cluster": 6379}
_HOST = re.compile(r"^(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/]+)(?::(\d{1,5}))?$")
_OWN_OPTIONS = ("decode_responses", "sentinel_password_env", "sentinel_username")
# What concerns the connection to any server applies to the Sentinels as well.
_SHARED = ("socket_connect_timeout", "socket_timeout", "retry", "ssl")
Secret = Callable[[str], str]
Hosts = list[tuple[str, int]]


def check(parts: SplitResult) -> None:
    """Check a URL.

    Raises:
        ConfigurationError: no hosts, no service, or a database where there is none.
    """
    hosts(parts)
    if parts.scheme.endswith("sentinel"):
        service(parts)
    elif parts.path not in ("", "/", "/0"):
        raise ConfigurationError("a cluster has database 0 only; leave the path out of its url")


def describe(parts: SplitResult) -> str:
    """Return the place in words."""
    listed = ",".join(f"{host}:{port}" for host, port in hosts(parts))
    if parts.scheme.endswith("sentinel"):
        return f"the Sentinel service {service(parts)[0]} of {listed}"
    return f"the cluster of {listed}"


def hosts(parts: SplitResult) -> Hosts:
    """Return host and port of each server that a URL lists."""
    default = _DEFAULT_PORTS[parts.scheme.partition("+")[2]]
    found = []
    for text in parts.netloc.rpartition("@")[2].split(","):
        match = _HOST.match(text.strip())
        if match is None or not 0 < int(match[2] or default) < 65536:
            raise ConfigurationError(
                f"url has no readable list of hosts; write {parts.scheme}://host1:{default},host2:{default}"
                f"{'/service' if parts.scheme.endswith('sentinel') else ''}, and percent-encode : / ? # and @ in names "
                "and passwords"
            )
        found.append((match[1].strip("[]"), int(match[2] or default)))
    return found


def service(parts: SplitResult) -> tuple[str, int]:
    """Return the Sentinel service that a URL names, and its database."""
    name, _, database = parts.path.strip("/").partition("/")
    if not name or (database and not database.isdigit()):
        raise ConfigurationError(
            "url names no Sentinel service; write redis+sentinel://host1:26379,host2:26379/service/0"
        )
    return unquote(name), int(database or 0)


def client(url: str, options: Mapping[str, Any], secret: Secret) -> redis.Redis | redis.RedisCluster:
    """Return a client of the place; a cluster client connects at once to find the nodes."""
    parts = urlsplit(url)
    merged = _options(parts, options)
    if parts.scheme.endswith("sentinel"):
        name, database = service(parts)
        manager = Sentinel(hosts(parts), sentinel_kwargs=_sentinel_options(parts, merged, secret))
        made: redis.Redis = manager.master_for(name, db=database, **merged)
        return made
    return cluster_client([ClusterNode(host, port) for host, port in hosts(parts)], merged)


def async_client(
    url: str, options: Mapping[str, Any], secret: Secret
) -> redis.asyncio.Redis | redis.asyncio.RedisCluster:
    """Return an asyncio client of the place, which connects at its first command."""
    parts = urlsplit(url)
    merged = _options(parts, options)
    if parts.scheme.endswith("sentinel"):
        name, database = service(parts)
        manager = AsyncSentinel(hosts(parts), sentinel_kwargs=_sentinel_options(parts, merged, secret))
        made: redis.asyncio.Redis = manager.master_for(name, db=database, **merged)
        return made
    nodes = [AsyncClusterNode(host, port) for host, port in hosts(parts)]
    return redis.asyncio.RedisCluster(startup_nodes=nodes, **merged)


def _options(parts: SplitResult, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the URL's own options, read as redis-py reads them, over those that are given."""
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OWN_OPTIONS]
    read = url_options(urlencode(kept))
    if parts.username:
        read["username"] = unquote(parts.username)
    if parts.scheme.startswith("rediss"):
        read["ssl"] = True
    return {**options, **read}


def _sentinel_options(parts: SplitResult, merged: Mapping[str, Any], secret: Secret) -> dict[str, Any]:
    own = dict(parse_qsl(parts.query))
    options = {name: value for name, value in merged.items() if name in _SHARED or name.startswith("ssl_")}
    options["protocol"] = SENTINEL_PROTOCOL
    if "sentinel_username" in own:
        options["username"] = own["sentinel_username"]
    if "sentinel_password_env" in own:
        options["password"] = secret(own["sentinel_password_env"])
    return options
