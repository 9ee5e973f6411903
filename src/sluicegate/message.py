"""A message as its handler sees it, parsed only where it is looked at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluicegate.core import json
from sluicegate.core.entry import is_entry, payload_of, read_prefix, split_entry
from sluicegate.core.event_builders import lease_id_of
from sluicegate.core.keys import decode_name
from sluicegate.core.looking import HeldMessage
from sluicegate.errors import MalformedStoredMessageError

__all__ = ["CompletedMessage", "DeadMessage", "FailedAttempt", "InFlightMessage", "Message"]

_US = b"\x1f"
_LATEST_MS = 253_402_300_799_000  # the year 9999
_DIGITS = 18


class Message:
    """One delivered or peeked message.

    Creating one costs nothing but the object: the entry is split at each access to a field (keeping the parts would
    double the memory of a batch, and cost more time than it saves), and `json()` and `text()` decode anew.
    """

    __slots__ = ("_begun", "entry", "slot")

    def __init__(self, entry: bytes, slot: int = 0, begun: int = 0) -> None:
        """Args are the library's: the entry, its slot in a lease, and the deliveries of it that have begun and not
        ended.
        """
        self.slot = slot
        self.entry = entry
        self._begun = begun

    @property
    def id(self) -> str:
        """The message's id, the same on every delivery."""
        return _text(self._split()[0])

    @property
    def payload(self) -> bytes:
        """The payload as stored."""
        return payload_of(self.entry)

    def text(self) -> str:
        """The payload as text; raises `UnicodeDecodeError` when it is not UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload decoded as JSON; raises `ValueError` when it is not JSON. Decoded anew at each call."""
        return json.loads(payload_of(self.entry))

    @property
    def headers(self) -> dict[str, str]:
        """The headers given at publish.

        Raises:
            MalformedStoredMessageError: something else has written them; the payload can still be read.
        """
        raw = self._split()[2]
        if not raw:
            return {}
        with suppress(ValueError):
            found = json.loads(raw)
            if isinstance(found, dict):
                return found
        raise MalformedStoredMessageError(
            f"the stored headers of message {self.id!r} are no JSON object; something else has written this message"
        )

    @property
    def deduplication_key(self) -> str | None:
        """The key that this message holds or held, None when it was published without one."""
        return decode_name(_text(self._split()[1])) or None

    @property
    def delivery_count(self) -> int:
        """Deliveries, the present one included; finished ones when the message was peeked at."""
        return read_prefix(self.entry).deliveries + self._begun

    @property
    def sequence(self) -> int:
        """Place in the queue's first order; grows with every message published, never reset."""
        return read_prefix(self.entry).sequence

    @property
    def enqueued_at(self) -> datetime:
        """When Redis accepted the message, by the server's clock."""
        return _time(read_prefix(self.entry).enqueued_ms)

    @property
    def size(self) -> int:
        """Bytes of the stored entry."""
        return len(self.entry)

    def _split(self) -> list[bytes]:
        return split_entry(self.entry)

    def __repr__(self) -> str:
        if not is_entry(self.entry):
            return f"Message(a foreign value of {len(self.entry)} bytes)"
        return f"Message(id={self.id!r}, delivery_count={self.delivery_count})"


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead letter.

    Attributes:
        message: the message, its `delivery_count` being the finished deliveries; None for a foreign value.
        value: the stored value as it was.
        reason: `max_delivery_count`, `handler_error`, `foreign`, or what `bury` was told; `malformed` when something
            else has overwritten the stored record, which is then the value.
        error_type: class name of the last error, "" without one.
        error: text of the last error; without one, how the delivery ended that reached the count.
        buried_at: when, by the server's clock.
    """

    message: Message | None
    value: bytes
    reason: str
    error_type: str
    error: str
    buried_at: datetime

    @property
    def id(self) -> str | None:
        """The message's id; None for a foreign value."""
        return self.message.id if self.message else None

    @property
    def headers(self) -> dict[str, str]:
        """The headers given at publish; none for a foreign value."""
        return self.message.headers if self.message else {}

    @property
    def delivery_count(self) -> int:
        """Finished deliveries, the one that buried it included; 0 for a foreign value."""
        return self.message.delivery_count if self.message else 0

    @property
    def first_at(self) -> datetime:
        """When the message was enqueued; when it was found, for a foreign value."""
        return self.message.enqueued_at if self.message else self.buried_at

    @property
    def last_at(self) -> datetime:
        """When it was buried."""
        return self.buried_at

    def __repr__(self) -> str:
        who = self.message.id if self.message else "a foreign value"
        return f"DeadMessage({who!r}, reason={self.reason!r}, error_type={self.error_type!r})"

    @classmethod
    def from_record(cls, record: bytes) -> DeadMessage:
        """Read a dead record, or keep one that cannot be read as a value."""
        parts = record.split(_US, 4)
        if len(parts) < 5 or not parts[0].isdigit():
            return cls(None, record, "malformed", "", "", _time(0))
        at, reason, error_type, error, value = parts
        message = Message(value) if is_entry(value) else None
        return cls(message, value, _text(reason), _text(error_type), _text(error), _time(int(at[:_DIGITS])))


@dataclass(frozen=True, slots=True)
class InFlightMessage:
    """A message in a lease, and what Redis knows of the consumer that holds it; times are by the server's clock.

    Attributes:
        message: its `delivery_count` being that which its consumer sees.
        lease_id: of the lease: what the consumer chose, or what the library made; a hash (`#...`) of one over 40 bytes.
        deadline: when the lease expires unless it is extended.
        seconds_left: until then, when this was read; 0 or less when it has expired.
        extended_at: the consumer's last sign of life: when the lease was opened, taken over or last extended.
        held_since: since when this consumer holds it: when the lease was opened or last taken over.
        opened_at: when the lease was opened; None when that cannot be read.
        takeovers: how often the lease was taken over.
        expired: whether the next claim takes the message back.
    """

    message: Message
    lease_id: str
    deadline: datetime
    seconds_left: float
    extended_at: datetime
    held_since: datetime
    opened_at: datetime | None
    takeovers: int
    expired: bool

    @property
    def id(self) -> str:
        """The message's id."""
        return self.message.id

    @property
    def headers(self) -> dict[str, str]:
        """The headers given at publish."""
        return self.message.headers

    @property
    def delivery_count(self) -> int:
        """Deliveries, the present one included."""
        return self.message.delivery_count

    def __repr__(self) -> str:
        return f"InFlightMessage(lease_id={self.lease_id!r}, slot={self.message.slot}, expired={self.expired})"

    @classmethod
    def from_held(cls, held: HeldMessage) -> InFlightMessage:
        """Read what a look into leases found."""
        return cls(
            message=Message(held.entry, held.slot, held.takeovers + 1),
            lease_id=lease_id_of(held.name),
            deadline=_within(held.deadline),
            seconds_left=(held.deadline - held.now) / 1000,
            extended_at=_within(held.extended),
            held_since=_within(held.held_since),
            opened_at=None if held.opened is None else _within(held.opened),
            takeovers=held.takeovers,
            expired=held.reaping or held.deadline <= held.now,
        )


@dataclass(frozen=True, slots=True)
class CompletedMessage:
    """A message that was acked, from a queue that keeps a history.

    Attributes:
        message: its `delivery_count` being the deliveries that it took.
        completed_at: when, by the server's clock.
    """

    message: Message
    completed_at: datetime

    def __repr__(self) -> str:
        return f"CompletedMessage({self.message.id!r}, completed_at={self.completed_at.isoformat()!r})"

    @classmethod
    def from_record(cls, record: bytes) -> CompletedMessage | None:
        """Read a record of `completed`; None for one that something else has written."""
        at, _, value = record.partition(_US)
        if not at.isdigit() or not is_entry(value):
            return None
        return cls(Message(value), _time(int(at[:_DIGITS])))


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One failed delivery of a message, from a queue that keeps a history.

    Attributes:
        message: as the attempt left it, its `delivery_count` being the finished deliveries.
        error_type: class name of the error, "" without one.
        error: its text.
        verb: what became of the message: `nack`, `bury` or `discard`.
        failed_at: when, by the server's clock.
    """

    message: Message
    error_type: str
    error: str
    verb: str
    failed_at: datetime

    def __repr__(self) -> str:
        return f"FailedAttempt({self.message.id!r}, verb={self.verb!r}, error_type={self.error_type!r})"

    @classmethod
    def from_record(cls, record: bytes) -> FailedAttempt | None:
        """Read a record of `failed`; None for one that something else has written."""
        parts = record.split(_US, 4)
        if len(parts) < 5 or not parts[0].isdigit() or not is_entry(parts[4]):
            return None
        at, error_type, error, verb, value = parts
        return cls(Message(value), _text(error_type), _text(error), _text(verb), _time(int(at[:_DIGITS])))


def _text(raw: bytes) -> str:
    """Stored bytes as text, whatever something else has put in their place."""
    return raw.decode(errors="backslashreplace")


def _time(ms: int) -> datetime:
    """A stored time, or the last one that there is for a stamp beyond it."""
    return datetime.fromtimestamp(min(ms, _LATEST_MS) / 1000, UTC)


def _within(ms: int) -> datetime:
    """A time, or the nearest that there is to one that something else has written."""
    return _time(max(0, ms))
