"""The rules about the client through which the server is reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluicegate.doctor.finding import Finding, note, ok, warning
from sluicegate.gateway import RedisGateway

__all__ = ["check_client"]

_SHORT_SECONDS = 1.0


def check_client(gateway: RedisGateway) -> Iterator[Finding]:
    """Yield whether the client's timeouts fit; waits have a timeout of their own, which is longer than they are."""
    options = _options(gateway.client)
    timeout = options.get("socket_timeout")
    where = f"client of {gateway.server}"
    if timeout is None:
        yield warning(
            "client",
            where,
            "it has no socket_timeout: a call on a dead connection may hang as long as TCP does, often 15 minutes",
            "make the client with socket_timeout=15, or use a URL, whose clients have that",
        )
    elif timeout < _SHORT_SECONDS:
        yield warning(
            "client",
            where,
            f"its socket_timeout is {timeout:g} s: a call of 4 MB, or a busy server, takes longer, and is sent again",
            "give it 5 s or more; it does not limit waits for messages",
        )
    else:
        yield ok("client", where, f"its socket_timeout is {timeout:g} s")
    if gateway.retry_budget_seconds == 0:
        yield note(
            "client",
            where,
            "retry_budget_seconds is 0: every failover and restart of Redis reaches the callers as an error",
            "leave it at 120 s for consumers",
        )


def _options(client: Any) -> Mapping[str, Any]:
    """Return what the client's connections are made with; redis-py's clients of a cluster keep it elsewhere."""
    pool = getattr(client, "connection_pool", None)
    holder = pool if pool is not None else getattr(client, "nodes_manager", None)
    options: Mapping[str, Any] = getattr(holder, "connection_kwargs", {})
    return options
