"""What an exception of redis-py means to Sluicegate: worth another try, or one of our errors. Shared by every
gateway.
"""

from __future__ import annotations

from redis import exceptions as redis_errors

from sluicegate.core.call import Call
from sluicegate.errors import RedisAccessError, RedisMemoryError, RedisUnavailableError, WrongKeyTypeError

__all__ = ["EXPECTED_TYPES", "access_refused", "expected_type", "is_transient", "refusal", "unavailable", "wrong_type"]

_TRANSIENT = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.MasterDownError,
    ConnectionError,
    TimeoutError,
)
_FINAL = (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.NoPermissionError)
_TRANSIENT_CODES = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ")

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
    "closed": "string",
    "receipt": "string",
    "markers": "string",
}


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later."""
    if isinstance(error, _FINAL):
        return False
    text = str(error)  # Redis 6.2 wraps the refusal of a command in a script: "Error running script … -READONLY …"
    return isinstance(error, _TRANSIENT) or text.startswith(_TRANSIENT_CODES) or "-READONLY" in text


def unavailable(server: str, error: BaseException) -> RedisUnavailableError:
    """The error for a server that cannot be reached."""
    return RedisUnavailableError(
        f"Redis at {server} cannot be reached ({type(error).__name__}: {_first_line(error)}); check that it "
        f"runs and that host, "
        "port and credentials are right"
    )


def access_refused(server: str, error: BaseException) -> RedisAccessError | None:
    """The error for refused credentials or rights, None when it is about something else."""
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


def wrong_type(key: bytes, role: str, found: str) -> WrongKeyTypeError:
    """The error for a key that holds the wrong type."""
    return WrongKeyTypeError(
        f"key {key.decode()} holds a {found} where the queue keeps a {EXPECTED_TYPES[role]}; nothing was changed. "
        "Something else writes under this queue's prefix: move or delete that key"
    )


def expected_type(call: Call[object], position: int) -> tuple[str, str]:
    """The role and the type of a call's key at a position."""
    roles = call.script.header.keys
    role = roles[min(position, len(roles) - 1)]
    if call.script.name == "peek" and role == "source":
        role = call.keys[0].rsplit(b":", 1)[1].decode()
    return role, EXPECTED_TYPES[role]


def _first_line(error: BaseException) -> str:
    text = str(error).splitlines()
    return text[0].rstrip(". ") if text else type(error).__name__
