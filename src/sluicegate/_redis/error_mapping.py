"""What an exception of redis-py means to Sluicegate: worth another attempt, or one of our own errors."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any

from redis import exceptions as redis_errors

from sluicegate._redis.compat import first_line
from sluicegate.core.call import Call
from sluicegate.errors import (
    ConfigurationError,
    GroupNotFoundError,
    LuaScriptError,
    RedisAccessError,
    RedisMemoryError,
    RedisMessageQueueError,
    RedisRefusedError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
    WrongKeyTypeError,
)

__all__ = [
    "EXPECTED_TYPES",
    "IO_ERRORS",
    "Redirect",
    "UnknownScriptError",
    "access_refused",
    "answered",
    "cannot_connect",
    "connection_lost",
    "ends_connection",
    "exhausted",
    "expected_type",
    "is_cluster_error",
    "is_missing_right",
    "is_passing",
    "is_readonly",
    "is_refusal",
    "is_transient",
    "is_untrusted",
    "is_wrong_type",
    "mistyped",
    "raise_if_failover",
    "redirection",
    "refusal",
    "refused",
    "refused_in_doubt",
    "script_error",
    "unavailable",
    "wrong_type",
]

IO_ERRORS = (redis_errors.RedisError, redis_errors.RedisClusterException, OSError)
"""What sending and receiving raise."""

UnknownScriptError = redis_errors.NoScriptError
"""What a server answers that does not know the hash of a script."""

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
    *("MISCONF", "DENIED", "MOVED ", "ASK "),
)
# Checked before a script's first write and not again, and wrapped by Redis 6.2: "Error running script … -MISCONF …".
_WRAPPED = re.compile(r"(?:^|\s)-(?:READONLY|NOREPLICAS|MISCONF|MASTERDOWN) ")
# A hosted service's, such as "ERR max daily request limit exceeded"; what is too large stays so.
_QUOTA = re.compile(r"(?:ERR )?(?:max (?!.*\bsize\b).*\bexceeded|.*\bquota\b)", re.IGNORECASE)
_REMEDIES = {
    "MISCONF": "give the server room on its disk, and see INFO persistence there",
    "READONLY": "it is a replica: check that the address leads to the primary",
    "NOREPLICAS": "bring its replicas back, or lower min-replicas-to-write",
    "LOADING": "it is still reading its data; give it more time",
    "BUSY": "a script runs for long there; see SLOWLOG GET, and SCRIPT KILL",
    "MASTERDOWN": "it is a replica without its primary: check that the address leads to the primary",
    "CLUSTERDOWN": "bring back the nodes that have the cluster's missing slots",
    "DENIED": "give the server a password, or bind it to the addresses that may use it",
}
_CLASSES = {
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.BusyLoadingError: "LOADING",
    redis_errors.MasterDownError: "MASTERDOWN",  # a ClusterDownError too
    redis_errors.ClusterDownError: "CLUSTERDOWN",
}

EXPECTED_TYPES = {
    "pending": "list",
    "stream": "stream",
    "wakeup": "list",
    "returned": "zset",
    "delayed": "zset",
    "leases": "zset",
    "dead": "zset",
    "last_closed": "string",
    "last_lease": "hash",
    "lease": "hash",
    "expired": "hash",
    "dead_records": "hash",
    "counters": "hash",
    "consumer": "hash",
    "write": "hash",
    "stage": "list",
    "stages": "list",
    "run": "set",
    "drivers": "hash",
    "closed": "string",
    "receipt": "string",
    "buckets": "hash",
    "marker_counters": "hash",
    "completed": "list",
    "failed": "list",
    "set_aside": "zset",
    "tracking": "hash",
    "tracking_ended": "zset",
    "tracking_news": "stream",
    "groups": "hash",
    "wakeups": "list",
}


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a node of a cluster sends us.

    Attributes:
        asking: for this once only, with ASKING in front: the slot is on its way there.
        host: empty when the node does not know its own name; then it is the host that was asked.
        port: of that host.
    """

    asking: bool
    host: str
    port: int


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed a moment later."""
    if isinstance(error, RedisMessageQueueError):  # some of ours are redis-py's as well
        return False
    root = _root(error)
    if root is not error:
        return is_transient(root)
    text = str(error)
    if isinstance(error, _FINAL) or "Cluster mode is not enabled" in text:
        return False
    return isinstance(error, _TRANSIENT) or text.startswith(_TRANSIENT_CODES) or _refuses_writes(text)


def is_passing(reply: object) -> bool:
    """Return whether a reply is an error that another attempt may not meet."""
    return isinstance(reply, Exception) and is_transient(reply)


def raise_if_failover(reply: Any) -> Any:
    """Return the reply to a blocking command; raise one that reports a failover, so that its connection is closed."""
    if is_passing(reply) and redirection(reply) is None:
        raise reply
    return reply


def is_missing_right(error: BaseException) -> bool:
    """Return whether the user may not use one command; others may still work."""
    return isinstance(error, redis_errors.NoPermissionError)


def is_cluster_error(error: BaseException) -> bool:
    """Return whether a cluster client found no node that answers."""
    return isinstance(error, redis_errors.RedisClusterException)


def connection_lost(text: str) -> redis_errors.ConnectionError:
    """Return an error that is handled as a lost connection."""
    return redis_errors.ConnectionError(text)


def answered(error: BaseException) -> bool:
    """Return whether a server answered with an error, so that it can be reached."""
    root = _root(error)
    return isinstance(root, (redis_errors.ResponseError, redis_errors.BusyLoadingError)) or (
        "max number of clients" in str(root)
    )


def is_refusal(error: BaseException) -> bool:
    """Return whether a server answered that it cannot begin now: nothing was changed, and it may do so later."""
    return answered(error) and is_transient(error)


def is_untrusted(error: BaseException) -> bool:
    """Return whether the certificate of a server does not fit; no retry helps."""
    return _distrust(error) is not None


def cannot_connect(error: BaseException) -> bool:
    """Return whether no connection was made.

    The connection was refused, the host or socket does not exist, the server did not answer within the connect timeout,
    or the certificate does not fit.
    """
    root = _root(error)
    return isinstance(root, ConnectionRefusedError) or "connecting to" in str(root)


def is_readonly(error: object) -> bool:
    """Return whether the server is no longer a primary, so that its connection is useless."""
    # Redis 6.2 wraps the refusal of a command in a script: "Error running script … -READONLY …"
    if not isinstance(error, Exception):
        return False
    text = str(error)
    return isinstance(error, redis_errors.ReadOnlyError) or text.startswith("READONLY") or "-READONLY" in text


def ends_connection(reply: object) -> bool:
    """Return whether the connection of a reply cannot be used again: the server is no primary, or closes it."""
    if not isinstance(reply, Exception):
        return False
    return is_readonly(reply) or str(reply).startswith("Protocol error")


def redirection(reply: object) -> Redirect | None:
    """Return where a cluster's reply redirects to; None for any other reply.

    A client of a single server does not parse redirections, so their text is read here.
    """
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
    """Return the error for a server that cannot be reached."""
    if (distrust := _distrust(error)) is not None:
        return RedisUnavailableError(
            f"Redis at {server} cannot be trusted ({distrust}); check that its certificate names this host and that "
            "ssl_ca_certs holds the authority that signed it"
        )
    return RedisUnavailableError(
        f"Redis at {server} cannot be reached ({type(error).__name__}: {first_line(error)}); check that it "
        f"runs and that host, "
        "port and credentials are right"
    )


def exhausted(server: str, error: BaseException) -> RedisUnavailableError:
    """Return the error for a pool whose connections are all in use."""
    return RedisUnavailableError(
        f"no connection to Redis at {server} came free ({type(error).__name__}: {first_line(error)}); nothing was "
        "sent. Give the client more max_connections, or let fewer threads or tasks use it at once"
    )


def refused(server: str, name: str, error: BaseException) -> RedisRefusedError:
    """Return the error for a server that answered why it cannot run a script."""
    said, code = _said(error)
    return RedisRefusedError(
        f"Redis at {server} refused the call {name!r} ({said}) and nothing was changed; "
        f"{_REMEDIES.get(code, 'try again when that has passed')}"
    )


def refused_in_doubt(server: str, name: str, error: BaseException) -> RetryBudgetExhaustedError:
    """Return the error for such an answer after an earlier attempt that may have taken effect."""
    return RetryBudgetExhaustedError(
        f"Redis at {server} refused the call {name!r} ({_said(error)[0]}) after an attempt whose outcome is unknown"
    )


def access_refused(server: str, error: BaseException) -> RedisAccessError | None:
    """Return the error for refused credentials or rights, None for any other error."""
    error = _root(error)
    if isinstance(error, redis_errors.ResponseError) and str(error) == "DB index is out of range":
        return RedisAccessError(
            f"Redis at {server} has no database of that number; give a lower one, or more databases"
        )
    if not isinstance(error, _FINAL):
        return None
    return RedisAccessError(
        f"Redis at {server} refused access ({type(error).__name__}: {first_line(error)}); check the user, the "
        "password and the rules of that user (ACL GETUSER)"
    )


def refusal(call: Call[object], error: BaseException) -> Exception | None:
    """Return our error for a refused script, None when there is no class for it."""
    if isinstance(error, redis_errors.ResponseError) and "command not allowed when used memory" in str(error):
        return RedisMemoryError(
            f"Redis is at maxmemory and refused to {call.script.verb}; nothing was stored. "
            "Drain the queue, raise maxmemory, or remove other data"
        )
    if isinstance(error, redis_errors.ResponseError) and str(error).startswith("LAYOUT "):
        return ConfigurationError(
            f"this queue was written by a newer Sluicegate ({first_line(error).lower()}, this version knows 3), which "
            "this client cannot read; upgrade the client"
        )
    if isinstance(error, redis_errors.ResponseError) and "NOGROUP" in str(error):
        return GroupNotFoundError(
            "the stream has no such group; create it with group.create(start=...), or give start='beginning', 'end', "
            "an id or a time to create it at its first use"
        )
    return None


def script_error(call: Call[object], error: BaseException) -> LuaScriptError | None:
    """Return the error for a script that failed while it ran, None for any other error."""
    text = str(error)
    if not isinstance(error, redis_errors.ResponseError) or "script" not in text:
        return None
    if "Script killed by user" in text:  # which Redis allows until the first write only
        return LuaScriptError(
            f"script {call.script.name} was stopped by SCRIPT KILL ({first_line(error)}); nothing was changed"
        )
    return LuaScriptError(
        f"script {call.script.name} failed ({first_line(error)}); the commands before the failing one took effect. "
        "Look for a command that this server refuses or renames"
    )


def wrong_type(key: bytes, role: str, found: str) -> WrongKeyTypeError:
    """Return the error for a key that holds the wrong type."""
    return WrongKeyTypeError(
        f"key {key.decode()} holds a {found} where the queue keeps a {EXPECTED_TYPES[role]}; nothing was changed. "
        "Something else writes under this queue's prefix: move or delete that key"
    )


def is_wrong_type(error: BaseException) -> bool:
    """Return whether Redis met a key of another type."""
    return isinstance(error, redis_errors.ResponseError) and "WRONGTYPE" in str(error)


def mistyped(call: Call[object], position: int, found: object) -> WrongKeyTypeError | None:
    """Return the error for a call's key whose type is not the expected one, None when it is."""
    role, expected = expected_type(call, position)
    name = found.decode() if isinstance(found, bytes) else expected
    return wrong_type(call.keys[position], role, name) if name not in ("none", expected) else None


def expected_type(call: Call[object], position: int) -> tuple[str, str]:
    """Return the role and the type of a call's key at a position."""
    roles = call.script.header.keys
    role = roles[min(position, len(roles) - 1)]
    key = call.keys[position]
    if role == "source":
        role = call.keys[0].rsplit(b":", 1)[1].decode()
    if key.endswith(b"}:stream"):  # what a group has pending
        role = "stream"
    elif role == "others":
        role = "wakeup" if key.endswith(b":bell") else "buckets"
    return role, EXPECTED_TYPES[role]


def _root(error: BaseException) -> BaseException:
    """Return the error of the last node behind a cluster client's error.

    The client reports every answer of a node as "Cluster mode is not enabled".
    """
    while isinstance(error, redis_errors.RedisClusterException):
        below = error.__cause__ or error.__context__
        if below is None:
            break
        error = below
    return error


def _distrust(error: BaseException) -> BaseException | None:
    """Return what was wrong with a certificate; redis-py 5 leaves it out of its text."""
    root: BaseException | None = _root(error)
    while root is not None and not isinstance(root, ssl.SSLCertVerificationError):
        root = root.__cause__ or root.__context__
    return root


def _said(error: BaseException) -> tuple[str, str]:
    """Return a server's error text with its code, which redis-py removes, and the code."""
    root = _root(error)
    text = first_line(root)
    code = next((code for kind, code in _CLASSES.items() if isinstance(root, kind)), "") or next(
        (code for code in _REMEDIES if text.startswith(code) or f"-{code} " in text), ""
    )
    return (text if code in text else f"{code} {text}"), code


def _refuses_writes(text: str) -> bool:
    """Return whether a reply refuses a first write, or every command, in a way that redis-py has no class for."""
    # The error for a quota that ends in the middle of a script contains the script's name.
    return _WRAPPED.search(text) is not None or ("script" not in text and _QUOTA.match(text) is not None)
