"""What comes out of a prepared call: decoders from raw replies to values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sluicegate.core.ranges import parse_ranges

__all__ = [
    "Acked",
    "ClaimReply",
    "Counted",
    "Empty",
    "Expired",
    "Extended",
    "Held",
    "Opened",
    "Paused",
    "Published",
    "Reaped",
    "Settled",
    "Tidy",
]


@dataclass(frozen=True, slots=True)
class Published:
    """Outcomes of a batch. `accepted` is -1 when the batch was too old to be published safely."""

    accepted: int
    duplicates: dict[int, str]


@dataclass(frozen=True, slots=True)
class Opened:
    """An open lease: its opening, takeovers, slots (empty: 1..n) and entries."""

    opening: bytes
    takeovers: int
    slots: list[int]
    entries: list[bytes]


@dataclass(frozen=True, slots=True)
class Held:
    """Open in another hand."""

    token: bytes
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Acked:
    """This lease has ended; what became of its messages."""

    acked: int
    returned: int
    buried: int


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to claim.

    Attributes:
        next_seconds: until a message falls due or a lease runs out, None when neither is in sight.
    """

    next_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """The queue hands out no new messages."""


@dataclass(frozen=True, slots=True)
class Tidy:
    """What must come back before messages are taken."""

    due: bool
    expired: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Expired:
    """The lease under this id has expired and must come back first."""


ClaimReply = Opened | Held | Acked | Empty | Paused | Tidy | Expired


@dataclass(frozen=True, slots=True)
class Settled:
    """Slots whose verdict did not take effect, how many the lease still holds, and which of its messages are dead."""

    lost: list[int]
    held: int
    buried: list[int]


class Extended(Enum):
    """Whether a lease was extended."""

    OK = b"ok"
    LOST = b"lost"
    OVER = b"over"


@dataclass(frozen=True, slots=True)
class Reaped:
    """One step of a reap."""

    finished: bool
    moved: int
    buried: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a queue; see `Depth`."""

    pending: int
    returned: int
    delayed: int
    due: int
    leases: int
    dead: int
    paused: bool
    in_flight: int
    published: int
    claimed: int
    oldest_ms: int
    expired: int
    expired_leases: list[bytes]


def published(reply: list[Any]) -> Published:
    return Published(
        int(reply[0]),
        {int(reply[i]): reply[i + 1].decode() for i in range(1, len(reply), 2)} if len(reply) > 1 else {},
    )


def claimed(reply: list[Any]) -> ClaimReply:
    kind = reply[0]
    if kind == b"open":
        return Opened(reply[1], reply[2], reply[3], reply[4])
    if kind == b"held":
        return Held(reply[1], max(0, reply[2]) / 1000)
    if kind == b"acked":
        return Acked(*reply[1:4])
    if kind == b"tidy":
        return Tidy(bool(reply[1]), reply[2:])
    if kind == b"empty":
        return Empty(reply[1] / 1000 if reply[1] >= 0 else None)
    return Paused() if kind == b"paused" else Expired()


def settled(reply: list[Any]) -> Settled:
    return Settled(parse_ranges(reply[0].decode()), reply[1], parse_ranges(reply[2].decode()))


def extended(reply: bytes) -> Extended:
    return Extended(reply)


def reaped(reply: list[int]) -> Reaped:
    return Reaped(bool(reply[0]), reply[1], reply[2])


def counted(reply: list[Any]) -> Counted:
    return Counted(
        pending=reply[0],
        returned=reply[1],
        delayed=reply[2],
        due=reply[3],
        leases=reply[4],
        dead=reply[5],
        paused=bool(reply[6]),
        in_flight=reply[7],
        published=reply[8],
        claimed=reply[9],
        oldest_ms=reply[10],
        expired=reply[11],
        expired_leases=reply[12],
    )
