"""Try a connection and describe the Redis behind it in one sentence, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import redis

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

__all__ = ["try_connection"]


def try_connection(hook: RedisQueueHook) -> tuple[bool, str]:
    """Return whether a queue on a hook's connection works, and a sentence about the server, or the reason."""
    import redis

    from sluicegate.errors import RedisMessageQueueError

    server = f"connection {hook.redis_conn_id!r}"
    try:
        queue = hook.get_queue("connection-test", retry_budget_seconds=0)
        server = f"Redis at {queue.session.runner.gateway.server}"
        queue.depth()
        return True, f"{server} answers and runs the queue's scripts{_details(hook.get_conn())}"
    except RedisMessageQueueError as error:
        return False, str(error)
    except (redis.RedisError, redis.RedisClusterException) as error:
        return False, f"{server} refused: {error}"
    finally:
        hook.close()


def _details(client: redis.Redis | redis.RedisCluster) -> str:
    """Return what the server says about itself, as the rest of a sentence; the user may lack the right to ask."""
    import redis

    node: dict[str, Any] = {}
    if isinstance(client, redis.RedisCluster):
        node["target_nodes"] = client.get_default_node()
    try:
        info = client.info(**node)
    except redis.RedisError:
        return "; its user may not call INFO, which tells version, role, persistence and eviction policy"
    try:
        saves = bool(_texts(client.config_get("save", **node)).get("save"))
    except redis.RedisError:  # hosted services allow no CONFIG
        saves = None
    return _described(info, _topology(client), saves=saves)


def _topology(client: redis.Redis | redis.RedisCluster) -> str:
    import redis

    if isinstance(client, redis.RedisCluster):
        primaries = len(client.get_primaries())
        return f"a cluster of {primaries} primaries and {len(client.get_nodes()) - primaries} replicas"
    service = getattr(client.connection_pool, "service_name", None)
    return f"the Sentinel service {service}" if service else "a single server"


def _described(info: Mapping[str, Any], topology: str, *, saves: bool | None) -> str:
    valkey = info.get("valkey_version")
    program = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'of unknown version')}"
    role = {"master": "primary", "slave": "replica"}.get(str(info.get("role")), "server of unknown role")
    kept = [*(["AOF"] if info.get("aof_enabled") else []), *(["RDB"] if saves else [])]
    persistence = " and ".join(kept) or ("AOF off, RDB unknown" if saves is None else "none, a restart loses messages")
    policy = str(info.get("maxmemory_policy", "unknown"))
    text = f". It is {topology}; the {role} runs {program}; persistence: {persistence}; eviction policy: {policy}"
    if policy in ("noeviction", "unknown"):
        return text
    return f"{text}. WARNING: with {policy} a full server deletes messages; set maxmemory-policy to noeviction"


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    """Return the answer of a client that may or may not decode."""
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
