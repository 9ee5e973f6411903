"""What an exception of redis-py means to Sluicegate: worth another try, or one of our errors. Shared by every
gateway.
"""

from __future__ import annotations

from dataclasses import dataclass

from redis import exceptions as redis_errors

from sluicegate.core.call import Call
from sluicegate.errors import (
    LuaScriptError,
    RedisAccessError,
    RedisMemoryError,
    RedisUnavailableError,
    WrongKeyTypeError,
)

__all__ = [
    "EXPECTED_TYPES",
    "Redirect",
    "access_refused",
    "expected_type",
    "is_readonly",
    "is_transient",
    "is_wrong_type",
    "mistyped",
    "redirection",
    "refusal",
    "unavailable",
    "wrong_type",
]

_TRANSIENT = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.MasterDownError,
    redis_errors.AskError,  # and MovedError: followed, unless a cluster sends in circles
    redis_errors.RedisClusterException,  # no node answers, or none has the slot
    ConnectionError,
    TimeoutError,
)
_FINAL = (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.NoPermissionError)
_TRANSIENT_CODES = (
    *("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "NOREPLICAS", "UNBLOCKED"),
    *("MOVED ", "ASK "),
)

EXPECTED_TYPES = {
    "pending": "list",
    "bell": "list",
    "returned": "zset",
    "delayed": "zset",
    "leases": "zset",
    "dead": "zset",
    "lease": "hash",
    "expired": "hash",
    "dead_records": "hash",
    "counters": "hash",
    "seat": "hash",
    "write": "hash",
    "stage": "list",
    "stages": "list",
    "run": "set",
    "closed": "string",
    "receipt": "string",
    "marker": "string",
    "markers": "string",
    "completed": "list",
    "failed": "list",
}


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a node of a cluster sends us.

    Attributes:
        asking: for this once only, with ASKING in front: the slot is on its way there.
        host: empty when the node does not know its own name; then it is the host that was asked.
        port: likewise a port of that host.
    """

    asking: bool
    host: str
    port: int


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later."""
    if isinstance(_root(error), _FINAL):
        return False
    text = str(error)
    if isinstance(error, _TRANSIENT) or text.startswith(_TRANSIENT_CODES):
        return True
    return is_readonly(error) or "-NOREPLICAS " in text  # both refused before the first write, wrapped by Redis 6.2


def is_readonly(error: object) -> bool:
    """Whether the server is no primary any more, so that the connection to it is of no use."""
    # Redis 6.2 wraps the refusal of a command in a script: "Error running script … -READONLY …"
    if not isinstance(error, Exception):
        return False
    text = str(error)
    return isinstance(error, redis_errors.ReadOnlyError) or text.startswith("READONLY") or "-READONLY" in text


def redirection(reply: object) -> Redirect | None:
    """Where a cluster's reply points to; None for any other reply. Parsers for one server leave the text as it came."""
    if isinstance(reply, redis_errors.AskError):
        return Redirect(not isinstance(reply, redis_errors.MovedError), reply.host, reply.port)
    if not isinstance(reply, redis_errors.ResponseError):
        return None
    words = str(reply).split()
    if len(words) != 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[2].rpartition(":")
    return Redirect(words[0] == "ASK", host, int(port))


def unavailable(server: str, error: BaseException) -> RedisUnavailableError:
    """The error for a server that cannot be reached."""
    return RedisUnavailableError(
        f"Redis at {server} cannot be reached ({type(error).__name__}: {_first_line(error)}); check that it "
        f"runs and that host, "
        "port and credentials are right"
    )


def access_refused(server: str, error: BaseException) -> RedisAccessError | None:
    """The error for refused credentials or rights, None when it is about something else."""
    error = _root(error)
    if not isinstance(error, _FINAL):
        return None
    return RedisAccessError(
        f"Redis at {server} refused access ({type(error).__name__}: {_first_line(error)}); check the user, the "
        "password and the rules of that user (ACL GETUSER)"
    )


def refusal(call: Call[object], error: redis_errors.ResponseError) -> Exception | None:
    """Our error for a reply in which Redis refused a script, or None when it is not one that we name."""
    if "command not allowed when used memory" in str(error):
        return RedisMemoryError(
            f"Redis is at maxmemory and refused to {call.script.name}; nothing was stored. "
            "Drain the queue, raise maxmemory, or remove other data"
        )
    return None


def script_error(call: Call[object], error: BaseException) -> LuaScriptError | None:
    """The error for a script that Redis began and could not end, None when it is about something else."""
    if not isinstance(error, redis_errors.ResponseError) or "script" not in str(error):
        return None
    return LuaScriptError(
        f"script {call.script.name} failed ({_first_line(error)}); the commands before the failing one took effect. "
        "Look for a command that this server refuses or renames"
    )


def wrong_type(key: bytes, role: str, found: str) -> WrongKeyTypeError:
    """The error for a key that holds the wrong type."""
    return WrongKeyTypeError(
        f"key {key.decode()} holds a {found} where the queue keeps a {EXPECTED_TYPES[role]}; nothing was changed. "
        "Something else writes under this queue's prefix: move or delete that key"
    )


def is_wrong_type(error: BaseException) -> bool:
    """Whether Redis met a key of another type."""
    return isinstance(error, redis_errors.ResponseError) and "WRONGTYPE" in str(error)


def mistyped(call: Call[object], position: int, found: object) -> WrongKeyTypeError | None:
    """The error for a call's key at a position when TYPE answered something that it should not be."""
    role, expected = expected_type(call, position)
    name = found.decode() if isinstance(found, bytes) else expected
    return wrong_type(call.keys[position], role, name) if name not in ("none", expected) else None


def expected_type(call: Call[object], position: int) -> tuple[str, str]:
    """The role and the type of a call's key at a position."""
    roles = call.script.header.keys
    role = roles[min(position, len(roles) - 1)]
    if role == "source":
        role = call.keys[0].rsplit(b":", 1)[1].decode()
    return role, EXPECTED_TYPES[role]


def _root(error: BaseException) -> BaseException:
    """What a cluster client that found no node was told by the last one."""
    if isinstance(error, redis_errors.RedisClusterException) and error.__cause__ is not None:
        return error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).splitlines()
    return text[0].rstrip(". ") if text else type(error).__name__
