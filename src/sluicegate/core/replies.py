"""What comes out of a prepared call: decoders from raw replies to values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sluicegate.core.ranges import parse_ranges

__all__ = [
    "NO_PAGE",
    "REFUSED",
    "TOO_OLD",
    "Acked",
    "ClaimReply",
    "Counted",
    "Empty",
    "Expired",
    "ExpiredPage",
    "Extended",
    "Foreign",
    "Held",
    "MaintenanceNeeded",
    "Opened",
    "Paused",
    "Published",
    "Reaped",
    "Settled",
]

TOO_OLD, REFUSED = -1, -2


@dataclass(frozen=True, slots=True)
class Published:
    """Outcomes of a batch.

    Attributes:
        accepted: messages published; `TOO_OLD` when the batch was too old to be published safely, `REFUSED` when the
            cap refused it whole.
        duplicates: the id of the holder of its key, by position.
        refused: positions that the cap refused.
        dropped: messages that were dropped to make room.
        waiting: messages that wait in the queue, when the batch was refused whole.
    """

    accepted: int
    duplicates: dict[int, str]
    refused: tuple[int, ...] = ()
    dropped: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open lease: its opening, takeovers, slots (empty: 1..n) and entries; and the foreign values that were buried
    on the way, the dead letters that had to go for their cap, and the values of newer kinds that were set aside.
    """

    opening: bytes
    takeovers: int
    slots: list[int]
    entries: list[bytes] = field(repr=False)
    buried: int = 0
    dropped: int = 0
    aside: int = 0


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
        buried: foreign values that were buried.
        dropped: dead letters that had to go for their cap.
        aside: values of newer kinds that were set aside.
        remembered: an earlier claim under this id found nothing; the queue was not looked at again.
    """

    next_seconds: float | None = None
    buried: int = 0
    dropped: int = 0
    aside: int = 0
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class Paused:
    """The queue hands out no new messages."""


@dataclass(frozen=True, slots=True)
class MaintenanceNeeded:
    """What must come back before messages are taken."""

    due: bool
    expired: list[bytes] = field(default_factory=list)
    buried: int = 0
    dropped: int = 0
    aside: int = 0


@dataclass(frozen=True, slots=True)
class Foreign:
    """Nothing to claim but values that are no messages, in a queue that keeps them.

    Attributes:
        count: values that were moved to the tail.
        more: whether messages may lie behind them.
        next_seconds: as for `Empty`.
        aside: likewise.
    """

    count: int
    more: bool = False
    next_seconds: float | None = None
    aside: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """The lease under this id has expired and must come back first."""


ClaimReply = Opened | Held | Acked | Empty | Paused | MaintenanceNeeded | Expired | Foreign


@dataclass(frozen=True, slots=True)
class Settled:
    """Slots whose verdict did not take effect, how many the lease still holds, which of its messages are dead, how
    many dead letters had to go for their cap, and how many values of newer kinds were set aside.
    """

    lost: list[int]
    held: int
    buried: list[int]
    dropped: int = 0
    aside: int = 0


class Extended(Enum):
    """Whether a lease was extended."""

    OK = b"ok"
    LOST = b"lost"
    OVER = b"over"


@dataclass(frozen=True, slots=True)
class Reaped:
    """One step of a reap.

    Attributes:
        finished: nothing of the lease is left.
        moved: messages that are claimable again.
        buried: messages, and values that are none, that are dead now.
        dropped: dead letters that had to go for their cap.
        aside: values of newer kinds that were set aside.
        wanted: deduplication keys, as they stand in entries, whose markers the next step must bring along.
    """

    finished: bool
    moved: int
    buried: int
    dropped: int = 0
    aside: int = 0
    wanted: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpiredPage:
    """Expired leases whose messages the next call can count.

    Attributes:
        mark: until when a lease must have expired, the same for all pages; b"" for now.
        score: deadline of the page's last lease.
        after: its name; the next page begins behind it.
        names: of the leases; none when there are no more.
    """

    mark: bytes = b""
    score: bytes = b""
    after: bytes = b""
    names: Sequence[bytes] = ()


NO_PAGE = ExpiredPage()
"""Before the first page, and behind the last."""


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
    page: ExpiredPage
    set_aside: int = 0


def published(reply: list[Any]) -> Published:
    head = reply[0]
    if head == REFUSED:
        return Published(REFUSED, {}, waiting=reply[1])
    duplicates = (
        {int(reply[i]): reply[i + 1].decode(errors="replace") for i in range(1, len(reply), 2)}
        if len(reply) > 1
        else {}
    )
    if isinstance(head, list):
        return Published(head[0], duplicates, refused=tuple(head[2:]), dropped=head[1])
    return Published(head, duplicates)


def claimed(reply: list[Any]) -> ClaimReply:
    kind = reply[0]
    if kind == b"open":
        return Opened(*reply[1:8])
    if kind == b"held":
        return Held(reply[1], max(0, reply[2]) / 1000)
    if kind == b"acked":
        return Acked(*reply[1:4])
    if kind == b"tidy":
        return MaintenanceNeeded(bool(reply[1]), reply[5:], reply[2], reply[3], reply[4])
    if kind == b"empty":
        return Empty(_seconds(reply[1]), reply[2], reply[3], reply[4], len(reply) > 5)
    if kind == b"foreign":
        return Foreign(reply[1], bool(reply[2]), _seconds(reply[3]), reply[4])
    return Paused() if kind == b"paused" else Expired()


def _seconds(ms: int) -> float | None:
    return ms / 1000 if ms >= 0 else None


def settled(reply: list[Any]) -> Settled:
    return Settled(parse_ranges(reply[0].decode()), reply[1], parse_ranges(reply[2].decode()), reply[3], reply[4])


def extended(reply: bytes) -> Extended:
    return Extended(reply)


def reaped(reply: list[Any]) -> Reaped:
    return Reaped(bool(reply[0]), reply[1], reply[2], reply[3], reply[4], tuple(reply[5:]))


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
        page=ExpiredPage(reply[12], reply[13], reply[14][-1], reply[14]) if reply[14] else NO_PAGE,
        set_aside=reply[15],
    )
