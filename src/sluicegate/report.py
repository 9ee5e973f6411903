"""A queue returns these reports: outcomes of a publish, and counts by state."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from sluicegate.core.keys import text_of
from sluicegate.core.transitions.depth import Depth
from sluicegate.core.transitions.groups import GroupFound, StreamFound
from sluicegate.core.transitions.publish import Published
from sluicegate.core.transitions.redrive import RedriveReport
from sluicegate.core.transitions.repair import RepairReport
from sluicegate.core.transitions.stats import QueueStats

__all__ = ["Depth", "GroupInfo", "PublishReport", "QueueStats", "RedriveReport", "RepairReport", "StreamInfo"]


@dataclass(slots=True)
class PublishReport:
    """A publish report lists the outcomes of a publish by position.

    Attributes:
        accepted: number of published messages.
        duplicates: number of messages whose deduplication key was held.
        ids: the id of each message; a refused message never entered the queue under its id. A duplicate in a stream
            has no id of its own: it has that of the message that holds its key.
        duplicate_of: per message, the id of the message that holds its key; None if it was accepted or refused.
        refused: number of messages for which `max_pending_length` left no room; always 0 without `partial=True`.
        refused_positions: positions of the refused messages.
        dropped: number of waiting messages that `pending_overload_policy="drop_oldest"` dropped to make room; for a
            stream, messages that `trim_unfinished=True` removed before every group had finished them.
        size_bytes: encoded size of the messages with their headers and keys, duplicates and refused ones included.
    """

    accepted: int = 0
    duplicates: int = 0
    ids: list[str] = field(default_factory=list)
    duplicate_of: list[str | None] = field(default_factory=list)
    refused: int = 0
    refused_positions: list[int] = field(default_factory=list)
    dropped: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, published: Published, ids: list[str], size_bytes: int) -> PublishReport:
        """Build a report from a decoded reply."""
        owners: list[str | None] = [None] * len(ids)
        for position, owner in published.duplicates.items():
            owners[position] = owner
        refused = list(published.refused)
        duplicates = len(published.duplicates)
        return cls(published.accepted, duplicates, ids, owners, len(refused), refused, published.dropped, size_bytes)

    def add(self, other: PublishReport) -> None:
        """Append the outcomes of the next chunk, whose positions follow those of this report."""
        self.refused_positions += [len(self.ids) + position for position in other.refused_positions]
        self.refused += other.refused
        self.dropped += other.dropped
        self.size_bytes += other.size_bytes
        self.accepted += other.accepted
        self.duplicates += other.duplicates
        self.ids += other.ids
        self.duplicate_of += other.duplicate_of

    def __repr__(self) -> str:
        more = "".join(f", {name}={getattr(self, name)}" for name in ("refused", "dropped") if getattr(self, name))
        return f"PublishReport(accepted={self.accepted}, duplicates={self.duplicates}{more})"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """What is known of a group of a stream.

    Attributes:
        name: of the group.
        lag: messages that it has not been delivered yet; None where the server does not know, and then `group.lag()`
            counts them.
        held: messages that consumers of other libraries were delivered and have not acked.
        consumers: number of such consumers.
        last_delivered_id: the id that the group has read last.
        start: the start that was asked for when it was created; "" when another program created it.
        is_temporary: whether it is the group of a replay, which expires and keeps no message from being trimmed.
        expires_in_seconds: time until it expires, if it is temporary.
    """

    name: str
    lag: int | None
    held: int
    consumers: int
    last_delivered_id: str
    start: str
    is_temporary: bool
    expires_in_seconds: float | None

    @classmethod
    def of(cls, found: GroupFound) -> GroupInfo:
        """Build it from a decoded reply."""
        return cls(
            text_of(found.name),
            found.lag,
            found.held,
            found.consumers,
            found.position,
            found.start,
            found.expires_in_seconds is not None,
            found.expires_in_seconds,
        )


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What is known of a stream.

    Attributes:
        name: of the stream.
        exists: whether Redis has it; a stream begins to exist with its first message or group.
        length: messages in it, finished ones included.
        first_id: the id of the oldest message; None without any.
        last_id: the id of the newest message; None without any.
        last_generated_id: the greatest id that was ever given; "" before the first.
        entries_added: messages ever added, by any client; None before Redis 7.
        published: messages ever published by this library.
        duplicates: messages that were refused because their deduplication key was held.
        trimmed: messages that were trimmed by this library.
        trimmed_unfinished: those of them that a group had not finished.
        groups: the groups.
    """

    name: str
    exists: bool
    length: int
    first_id: str | None
    last_id: str | None
    last_generated_id: str
    entries_added: int | None
    published: int
    duplicates: int
    trimmed: int
    trimmed_unfinished: int
    groups: list[GroupInfo]

    @classmethod
    def of(cls, name: str, found: StreamFound) -> StreamInfo:
        """Build it from a decoded reply."""
        known = {each.name: getattr(found, each.name) for each in fields(cls) if each.name not in ("name", "groups")}
        return cls(name=name, **known, groups=[GroupInfo.of(group) for group in found.groups])
