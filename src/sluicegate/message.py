"""These classes show messages to their handlers. Each field is parsed when it is read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluicegate.core import json
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import is_entry, payload_of, read_prefix, split_entry
from sluicegate.core.keys import decode_name, lease_id_of
from sluicegate.core.transitions.in_flight import HeldMessage
from sluicegate.errors import MalformedStoredMessageError

__all__ = ["CompletedMessage", "DeadMessage", "FailedAttempt", "InFlightMessage", "Message"]

_LATEST_MS = 253_402_300_799_000  # the year 9999
_DIGITS = 18
_FIELDS = 4  # of an entry; the payload is the last


class Message:
    """A message is a delivered or peeked entry of a queue.

    Creating one costs only the object. Each access to a field splits the entry again, because keeping the parts would
    double the memory of a batch and cost more time than it saves. `json()` and `text()` decode at each call.
    """

    __slots__ = ("deliveries_begun", "entry", "slot")

    def __init__(self, entry: bytes, slot: int = 0, deliveries_begun: int = 0) -> None:
        """Wrap an entry. The library alone creates messages.

        Args:
            entry: the stored entry.
            slot: its slot in a lease.
            deliveries_begun: deliveries of it that have begun and not ended.
        """
        self.slot = slot
        self.entry = entry
        self.deliveries_begun = deliveries_begun

    @property
    def id(self) -> str:
        """Return the message's id, which is the same on every delivery."""
        return _text(self._split()[0])

    @property
    def payload(self) -> bytes:
        """Return the payload as stored."""
        return payload_of(self.entry)

    def text(self) -> str:
        """Return the payload as text; raise `UnicodeDecodeError` if it is not UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:
        """Decode the payload as JSON, at each call; raise `ValueError` if it is not JSON."""
        fields = self.entry.split(SEPARATOR, _FIELDS - 1)  # as `payload_of` does, without its call
        return json.loads(fields[-1] if len(fields) == _FIELDS else payload_of(self.entry))

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers given at publish.

        Raises:
            MalformedStoredMessageError: another program has written the headers; the payload can still be read.
        """
        raw = self._split()[2]
        if not raw:
            return {}
        with suppress(ValueError):
            found = json.loads(raw)
            if isinstance(found, dict):
                return found
        raise MalformedStoredMessageError(
            f"the stored headers of message {self.id!r} are not a JSON object; another program has written this message"
        )

    @property
    def deduplication_key(self) -> str | None:
        """Return the key that this message holds or held; None if it was published without one."""
        return decode_name(_text(self._split()[1])) or None

    @property
    def delivery_count(self) -> int:
        """Return the number of deliveries, including the current one; of a peeked message, the finished ones."""
        return read_prefix(self.entry).deliveries + self.deliveries_begun

    @property
    def sequence(self) -> int:
        """Return the position in the queue's original order, which grows with every publish and is never reset."""
        return read_prefix(self.entry).sequence

    @property
    def enqueued_at(self) -> datetime:
        """Return when Redis accepted the message, by the server's clock."""
        return _time(read_prefix(self.entry).enqueued_ms)

    @property
    def size(self) -> int:
        """Return the size of the stored entry in bytes."""
        return len(self.entry)

    def _split(self) -> list[bytes]:
        return split_entry(self.entry)

    def __repr__(self) -> str:
        if not is_entry(self.entry):
            return f"Message(a foreign value of {len(self.entry)} bytes)"
        return f"Message(id={self.id!r}, delivery_count={self.delivery_count})"


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead letter is a buried message with the reason and the last error.

    Attributes:
        message: the message; its `delivery_count` is the number of finished deliveries. None for a foreign value.
        value: the stored value.
        reason: `max_delivery_count`, `handler_error`, `foreign`, or the reason passed to `bury`; `malformed` if another
            program has overwritten the stored record, which is then the value.
        error_type: class name of the last error; "" without one.
        error: text of the last error; without one, how the delivery ended that reached the cap.
        buried_at: time of the burial, by the server's clock.
    """

    message: Message | None
    value: bytes
    reason: str
    error_type: str
    error: str
    buried_at: datetime

    @property
    def id(self) -> str | None:
        """Return the message's id; None for a foreign value."""
        return self.message.id if self.message else None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers given at publish; none for a foreign value."""
        return self.message.headers if self.message else {}

    @property
    def delivery_count(self) -> int:
        """Return the number of finished deliveries, including the one that buried it; 0 for a foreign value."""
        return self.message.delivery_count if self.message else 0

    @property
    def first_at(self) -> datetime:
        """Return when the message was enqueued; for a foreign value, when it was found."""
        return self.message.enqueued_at if self.message else self.buried_at

    @property
    def last_at(self) -> datetime:
        """Return when the message was buried."""
        return self.buried_at

    def __repr__(self) -> str:
        who = self.message.id if self.message else "a foreign value"
        return f"DeadMessage({who!r}, reason={self.reason!r}, error_type={self.error_type!r})"

    @classmethod
    def from_record(cls, record: bytes) -> DeadMessage:
        """Read a dead record; keep an unreadable one as a value."""
        parts = record.split(SEPARATOR, 4)
        if len(parts) < 5 or not parts[0].isdigit():
            return cls(None, record, "malformed", "", "", _time(0))
        at, reason, error_type, error, value = parts
        message = Message(value) if is_entry(value) else None
        return cls(message, value, _text(reason), _text(error_type), _text(error), _time(int(at[:_DIGITS])))


@dataclass(frozen=True, slots=True)
class InFlightMessage:
    """An in-flight message is in a lease. Its times are by the server's clock.

    Attributes:
        message: the message; its `delivery_count` is the one that its consumer sees.
        lease_id: id of the lease, chosen by the consumer or by the library; a hash (`#...`) if it is over 40 bytes.
        deadline: when the lease expires unless it is extended.
        seconds_left: seconds until the deadline at the time of reading; 0 or less if the lease has expired.
        extended_at: when the consumer opened, took over or last extended the lease.
        held_since: since when this consumer has the lease: when it was opened or last taken over.
        opened_at: when the lease was opened; None if that cannot be read.
        takeovers: how often the lease was taken over.
        expired: whether the next claim returns the message to the queue.
        consumer: name of the consumer that claimed the lease or took it over last; None for one without a name.
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
    consumer: str | None = None

    @property
    def id(self) -> str:
        """Return the message's id."""
        return self.message.id

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers given at publish."""
        return self.message.headers

    @property
    def delivery_count(self) -> int:
        """Return the number of deliveries, including the current one."""
        return self.message.delivery_count

    def __repr__(self) -> str:
        return f"InFlightMessage(lease_id={self.lease_id!r}, slot={self.message.slot}, expired={self.expired})"

    @classmethod
    def from_held(cls, held: HeldMessage) -> InFlightMessage:
        """Build the message from a decoded reply about leases."""
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
            consumer=_text(held.consumer) or None,
        )


@dataclass(frozen=True, slots=True)
class CompletedMessage:
    """A completed message was acked, in a queue that keeps a history.

    Attributes:
        message: the message; its `delivery_count` is the number of deliveries that it took.
        completed_at: time of the ack, by the server's clock.
    """

    message: Message
    completed_at: datetime

    def __repr__(self) -> str:
        return f"CompletedMessage({self.message.id!r}, completed_at={self.completed_at.isoformat()!r})"

    @classmethod
    def from_record(cls, record: bytes) -> CompletedMessage | None:
        """Read a record of `completed`; return None if another program has written it."""
        at, _, value = record.partition(SEPARATOR)
        if not at.isdigit() or not is_entry(value):
            return None
        return cls(Message(value), _time(int(at[:_DIGITS])))


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt is one failed delivery of a message, in a queue that keeps a history.

    Attributes:
        message: the message after the attempt; its `delivery_count` is the number of finished deliveries.
        error_type: class name of the error; "" without one.
        error: text of the error.
        verb: the verdict on the message: `nack`, `bury` or `discard`.
        failed_at: time of the failure, by the server's clock.
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
        """Read a record of `failed`; return None if another program has written it."""
        parts = record.split(SEPARATOR, 4)
        if len(parts) < 5 or not parts[0].isdigit() or not is_entry(parts[4]):
            return None
        at, error_type, error, verb, value = parts
        return cls(Message(value), _text(error_type), _text(error), _text(verb), _time(int(at[:_DIGITS])))


def _text(raw: bytes) -> str:
    """Decode stored bytes as text, and escape bytes that are not UTF-8."""
    return raw.decode(errors="backslashreplace")


def _time(ms: int) -> datetime:
    """Convert a stored time; a value beyond the year 9999 becomes the last moment of that year."""
    return datetime.fromtimestamp(min(ms, _LATEST_MS) / 1000, UTC)


def _within(ms: int) -> datetime:
    """Convert a stored time; clamp a value out of range, which another program has written, to the nearest time."""
    return _time(max(0, ms))
