"""A publish may wait until its messages are on disk or on replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sluicegate.checks import unfit
from sluicegate.errors import ConfigurationError

__all__ = ["FSYNC", "MEMORY", "Durability", "DurabilityOption", "parse_durability", "replicated"]

_MAX_REPLICAS = 1000
_MAX_TIMEOUT_SECONDS = 86_400.0  # clients poll with milliseconds in 31 bits
_FSYNC_TIMEOUT_SECONDS = 5.0  # with `appendfsync everysec` the disk has it after a second, after two when it is slow


@dataclass(frozen=True, slots=True)
class Durability:
    """A durability states where a message must be before its publish succeeds.

    It is `MEMORY`, `FSYNC`, or made by `replicated`.

    Attributes:
        kind: `memory`, `fsync` or `replicated`.
        replicas: the number of replicas that must have the message.
        timeout_seconds: how long Redis waits for the replicas or its disk.
    """

    kind: Literal["memory", "fsync", "replicated"] = "memory"
    replicas: int = 0
    timeout_seconds: float = 0.0

    def command(self) -> tuple[bytes | int, ...]:
        """Return the command to send directly after the script; empty for `memory`."""
        timeout_ms = max(1, math.ceil(self.timeout_seconds * 1000))  # 0 would wait for ever
        if self.kind == "replicated":
            return (b"WAIT", self.replicas, timeout_ms)
        return (b"WAITAOF", 1, 0, timeout_ms) if self.kind == "fsync" else ()

    def confirmed(self, reply: Any) -> bool:
        """Return whether the raw reply to that command confirms the durability; an error does not."""
        if self.kind == "memory":
            return True
        if self.kind == "fsync":
            return isinstance(reply, list) and int(reply[0]) >= 1
        return isinstance(reply, int) and reply >= self.replicas

    def forbidden(self, reply: Any) -> bool:
        """Return whether the reply says that the user has no permission for that command."""
        return isinstance(reply, Exception) and "no permissions" in str(reply)

    def shortfall(self, reply: Any) -> str:
        """Describe what is missing when it is not confirmed, and what to do."""
        if self.forbidden(reply):
            command = "waitaof" if self.kind == "fsync" else "wait"
            return f"whether they are durable may not be asked ({reply}); ACL SETUSER this user +{command}"
        if isinstance(reply, Exception):
            what = f"Redis answered {'WAITAOF' if self.kind == 'fsync' else 'WAIT'} with: {reply}"
        elif self.kind == "fsync":
            what = f"it was not on disk within {self.timeout_seconds:g} s"
        else:
            what = f"{reply} of {self.replicas} replicas had it within {self.timeout_seconds:g} s"
        if self.kind == "fsync":
            return f"{what}; fsync needs Redis 7.2 or later with appendonly yes (CONFIG SET appendonly yes)"
        return f"{what}; look at the replicas (INFO replication), or ask for fewer or for longer"


DurabilityOption: TypeAlias = Durability | Literal["memory", "fsync"]
"""The `durability` argument of a publish: a word, or what `replicated` makes."""

MEMORY = Durability()
FSYNC = Durability("fsync", timeout_seconds=_FSYNC_TIMEOUT_SECONDS)


def replicated(replicas: int, timeout_seconds: float = 1.0) -> Durability:
    """Make a publish succeed once `replicas` replicas have its messages.

    Args:
        replicas: 1 or more.
        timeout_seconds: how long Redis waits for them, above 0 and at most a day; default 1.

    Raises:
        ConfigurationError: an argument that cannot work.
    """
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= _MAX_REPLICAS:
        raise unfit(
            f"replicated() needs a number of replicas, an int from 1 to {_MAX_REPLICAS}, not {replicas!r}",
            right_type=isinstance(replicas, int) and not isinstance(replicas, bool),
        )
    if (
        isinstance(timeout_seconds, bool)
        or not isinstance(timeout_seconds, (int, float))
        or not 0 < timeout_seconds <= _MAX_TIMEOUT_SECONDS
    ):
        raise unfit(
            "replicated() needs timeout_seconds as a number of seconds above 0 (at most a day), not "
            f"{timeout_seconds!r}",
            right_type=isinstance(timeout_seconds, (int, float)) and not isinstance(timeout_seconds, bool),
        )
    return Durability("replicated", replicas, float(timeout_seconds))


_NAMED = {"memory": MEMORY, "fsync": FSYNC}


def parse_durability(value: DurabilityOption) -> Durability:
    """Return the durability that a `durability` argument stands for.

    Raises:
        ConfigurationError: anything but `"memory"`, `"fsync"` and what `replicated` makes.
    """
    if isinstance(value, Durability):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    if (isinstance(value, str) and value.startswith("replicated")) or callable(value):
        raise ConfigurationError(
            "durability by replicas needs their number: durability=replicated(1), from sluicegate import replicated"
        )
    raise unfit(f"durability must be 'memory', 'fsync' or replicated(n), not {value!r}", isinstance(value, str))
