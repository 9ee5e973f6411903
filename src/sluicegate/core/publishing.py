"""Publishing turns payloads into batches: it encodes them, makes their deduplication keys and decides on receipts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sluicegate import checks
from sluicegate.core import json
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.deduplication import (
    DeduplicationPolicy,
    KeyFunction,
    KeySource,
    PendingKey,
    compile_key_function,
    portable_key_source,
)
from sluicegate.core.durability import MEMORY, Durability, DurabilityOption, parse_durability
from sluicegate.core.entry import encode_deduplication_key, encode_headers
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.packing import Unjoined
from sluicegate.core.payload_limits import NO_PAYLOAD_LIMITS, PayloadLimits
from sluicegate.core.transitions.publish import Batch, Overload
from sluicegate.errors import ConfigurationError, OptionTypeError, RedisMessageQueueError

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "MAX_BYTES_PER_CALL",
    "MAX_PER_CALL",
    "NOW",
    "Batches",
    "EncodedRows",
    "Payload",
    "Publishing",
    "Schedule",
    "call_ranges",
    "encode_payload",
    "parse_schedule",
]

Payload: TypeAlias = (
    Mapping[str, json.Json] | Sequence[json.Json] | json.TypedDictLike | str | bytes | bytearray | memoryview
)
"""A payload for type checkers; at run time it is a dict or a list (JSON), a str or bytes."""

MAX_PER_CALL = 1000
MAX_BYTES_PER_CALL = 4 * 1024 * 1024
"""Bytes of encoded messages in one call; a larger message is sent alone. They keep Redis busy for about 0.1 s."""

Batches = Generator[Batch | PendingKey, Any, None]
_MIN_RECEIPT_SECONDS = 600.0
_MIN_BOUND_MARKER_SECONDS = 7 * 86400.0  # of a marker that is freed as its message ends
_SAFE_SHARE = 0.9  # of a marker's or receipt's life: a repeat sent within it arrives within it


@dataclass(frozen=True, slots=True)
class Schedule:
    """A due time is relative to the server's clock when it stores the messages, or absolute.

    Attributes:
        delay_seconds: the delay; 0 for none.
        due_ms: the due time since the epoch; 0 if the delay counts.
    """

    delay_seconds: float = 0
    due_ms: int = 0


NOW = Schedule()


def parse_schedule(delay_seconds: Any = 0, due_at: Any = None) -> Schedule:
    """Check `delay_seconds` and `due_at`, and return the due time that they ask for.

    Args:
        delay_seconds: a number of seconds, 0 or more.
        due_at: an aware datetime; one in the past means at once.

    Raises:
        ConfigurationError: a delay that is no number of 0 or more (at most 100 years), a naive datetime, no time at all
            (pandas' NaT), or both given.
    """
    if due_at is None:
        if delay_seconds == 0 and type(delay_seconds) is int:
            return NOW
        checks.not_negative("delay_seconds", delay_seconds)
        return Schedule(delay_seconds=float(delay_seconds))
    if delay_seconds != 0:
        raise ConfigurationError("give delay_seconds or due_at, not both: each says when the message falls due")
    # By what it can do, not by its class: the core has no `datetime`, whose `now` would be a clock of its own.
    if not hasattr(due_at, "utcoffset") or not hasattr(due_at, "timestamp"):
        raise OptionTypeError(f"due_at must be an aware datetime, not {type(due_at).__name__}")
    if due_at != due_at:  # noqa: PLR0124  (pandas' NaT is a datetime by its class, and unequal to itself)
        raise ConfigurationError("due_at is not a time (NaT); leave it out for a message that is due at once")
    if due_at.utcoffset() is None:
        raise ConfigurationError(
            "due_at is a naive datetime: it names no instant without a time zone, and this machine's may not be the "
            "one you mean; give it one, such as due_at=datetime(..., tzinfo=UTC) or due_at.astimezone()"
        )
    microseconds = round(due_at.timestamp() * 1_000_000)
    return Schedule(due_ms=max(1, -(-microseconds // 1000)))


def encode_payload(payload: Any, *, sort_keys: bool = False, default: json.Default | None = None) -> bytes:
    """Encode a payload as it is stored.

    Args:
        payload: dict or list (JSON), str (UTF-8) or bytes (as they are).
        sort_keys: write dicts in the order of their keys.
        default: replaces values in a dict or list that JSON cannot carry.

    Raises:
        TypeError: anything else, or something in it that JSON cannot carry; names the path.
        ValueError: NaN, infinities, integers beyond 64 bits, lone surrogates; names the path.
    """
    kind = type(payload)
    if kind is dict or kind is list:
        return json.dumps(payload, sort_keys=sort_keys, default=default)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, str):
        try:
            return payload.encode()
        except UnicodeEncodeError:
            raise ValueError("payload has a lone surrogate at $; UTF-8 cannot carry it") from None
    if isinstance(payload, (dict, list)):
        return json.dumps(payload, sort_keys=sort_keys, default=default)
    raise TypeError(f"payload is a {kind.__name__} at $; publish a dict, a list, a str or bytes")


def _encode_plain(payload: Any) -> bytes:
    """Return `encode_payload`, on the shortest path for the usual payload: a dict that both encoders write alike."""
    if type(payload) is dict and json.fast_dumps is not None and json.is_alike(payload):
        try:
            return json.fast_dumps(payload)
        except TypeError:
            pass  # `encode_payload` says what is wrong
    return encode_payload(payload)


def call_ranges(sizes: Sequence[int], most: int = MAX_PER_CALL) -> Iterator[tuple[int, int]]:
    """Yield ranges of messages, by their encoded sizes, that each fit into a call; a larger message is sent alone."""
    if sum(sizes) <= MAX_BYTES_PER_CALL:
        for first in range(0, len(sizes), most):
            yield first, min(first + most, len(sizes))
        return
    first, held = 0, 0
    for at, size in enumerate(sizes):
        if at > first and (at - first == most or held + size > MAX_BYTES_PER_CALL):
            yield first, at
            first, held = at, 0
        held += size
    if sizes:
        yield first, len(sizes)


def _full_ranges(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `call_ranges`, but not the last one while more messages fit into it."""
    for start, end in call_ranges(sizes, most):
        if end < len(sizes) or end - start == most:
            yield start, end


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Messages that were checked and encoded together; they stand among the payloads of `Publishing.batches`.

    Attributes:
        payloads: of all messages, one behind the other.
        ends: where each payload ends.
        keys: the encoded deduplication key of each message; none at all for messages without keys.
    """

    payloads: bytes | memoryview
    ends: Sequence[int]
    keys: list[bytes]


@dataclass(frozen=True, slots=True)
class Publishing:
    """A publishing holds the options of a queue that its publishes need.

    Attributes:
        keys: of the queue.
        key_function: from a payload to its deduplication key, None without deduplication.
        window_seconds: life of a marker; for `until_acked` a safety bound, seven days at least.
        retry_seconds: how long one publish is retried.
        policy: whether a marker lives for the window, or until its message ends.
        max_pending_length: messages that may wait in the queue, 0 for any number.
        overload: what a publish beyond that does; `block` is refused like `raise`, and tries again.
        limits: what a payload may be.
        sort_keys: write dicts in the order of their keys.
        json_default: replaces values that JSON cannot carry; the key function sees the original ones.
        key_source: the field, fields or template of which the key function was made; None for any other.
        awaits: whether the publisher awaits the keys of async functions.
    """

    keys: QueueKeys
    key_function: KeyFunction | None
    window_seconds: float
    retry_seconds: float
    policy: DeduplicationPolicy = "window"
    max_pending_length: int = 0
    overload: Literal["raise", "block", "drop_oldest"] = "raise"
    limits: PayloadLimits = NO_PAYLOAD_LIMITS
    sort_keys: bool = False
    json_default: json.Default | None = None
    key_source: str | Sequence[str] | None = None
    awaits: bool = False

    def keyed_by(self, source: KeySource | None) -> Publishing:
        """Return the same with another deduplication key; None: with this one's.

        Raises:
            ConfigurationError: a template or field name that cannot work.
        """
        if source is None:
            return self
        make = compile_key_function(source, awaits=self.awaits)
        return replace(self, key_function=make, key_source=portable_key_source(source))

    @property
    def is_plain(self) -> bool:
        """Return whether payloads are encoded as they are, without limits or options."""
        return self.limits is NO_PAYLOAD_LIMITS and not self.sort_keys and self.json_default is None

    @property
    def max_per_call(self) -> int:
        """Return how many messages one call may carry; a call that drops the oldest must fit into the queue."""
        return min(MAX_PER_CALL, self.max_pending_length or MAX_PER_CALL) if self._drops else MAX_PER_CALL

    def batches(
        self,
        payloads: Iterable[Any],
        headers: Mapping[str, str] | None = None,
        *,
        new_id: Callable[[], bytes],
        most: int = MAX_PER_CALL,
        max_bytes: int = MAX_BYTES_PER_CALL,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = MEMORY,
        partial: bool = False,
        tracked: bytes = b"",
    ) -> Batches:
        """Yield batches of at most `most` messages and `max_bytes`; a larger message is sent alone.

        Payloads are read and encoded when a batch is requested. The key function is called once per message, after its
        payload was checked and encoded. The caller awaits a `PendingKey` and sends its value back.

        Args:
            payloads: of any number.
            headers: the same for all.
            new_id: makes a unique id of sixteen characters for each call.
            most: messages in a call.
            max_bytes: of a call; rows that were encoded together have `MAX_BYTES_PER_CALL` at most in any case.
            delay_seconds: from the time at which the server stores them until they fall due.
            due_at: when they fall due, instead.
            durability: what the publish waits for.
            partial: when the cap leaves room for some only, take the first that fit instead of refusing all.
            tracked: the batch as a unit that they belong to, as `batch_name` makes it; empty for none. `new_id` then
                makes its name, a colon and the number of the call.

        Raises:
            TypeError, ValueError: a payload, key or header that cannot be stored. An error about one message, whoever
                raised it, has that message's index in `payloads` as its `position`.
            ConfigurationError: an argument that cannot work.
        """
        schedule, confirmed = parse_schedule(delay_seconds, due_at), parse_durability(durability)
        middle = SEPARATOR + encode_headers(dict(headers) if headers else None) + SEPARATOR
        most = min(most, self.max_per_call)
        encode, key_function = _encode_plain if self.is_plain else self._checked, self.key_function
        fixed = len(SEPARATOR) + len(middle)
        # An encoder's own bytes are not kept: their memory is larger, and new ones would not find it again.
        stored, ends, keys, held, first = bytearray(), list[int](), list[bytes](), 0, 0

        def batch(parts: Unjoined) -> Batch:
            return self.batch_of_parts(
                new_id(),
                parts,
                list(parts.keys),
                schedule=schedule,
                durability=confirmed,
                partial=partial,
                first=first,
                tracked=tracked,
            )

        for payload in payloads:
            if type(payload) is EncodedRows:
                start, sent = len(stored), 0
                ends += [start + end for end in payload.ends] if start else payload.ends
                stored += payload.payloads
                keys += payload.keys
                parts = Unjoined(middle, keys, stored, ends)
                sizes = parts.sizes()
                for start, end in _full_ranges(sizes, most):
                    yield batch(parts.cut(start, end))
                    first, sent = first + end - start, end
                start = parts.start(sent)
                stored, ends, keys = stored[start:], [end - start for end in ends[sent:]], keys[sent:]
                held = sum(sizes[sent:])
                continue
            try:
                data = encode(payload)
                size = fixed + len(data)
                if key_function is not None:
                    key = key_function(payload)
                    if isinstance(key, PendingKey):
                        key = key.checked((yield key))
                    name = encode_deduplication_key(key)
                    size += len(name)
                    keys.append(name)
            except Exception as error:
                _locate(error, first + len(ends))
                raise
            if held + size > max_bytes and ends:
                yield batch(Unjoined(middle, keys[: len(ends)], stored, ends))
                first, held, keys = first + len(ends), 0, keys[len(ends) :]
                stored, ends = bytearray(), []
            stored += data
            ends.append(len(stored))
            held += size
            if len(ends) == most:
                yield batch(Unjoined(middle, keys, stored, ends))
                first, held = first + len(ends), 0
                stored, ends, keys = bytearray(), [], []
        if ends:
            yield batch(Unjoined(middle, keys, stored, ends))

    def batch_of_parts(
        self,
        batch_id: bytes,
        parts: Sequence[bytes],
        deduplication_keys: list[bytes],
        *,
        schedule: Schedule = NOW,
        durability: Durability = MEMORY,
        partial: bool = False,
        receipt_seconds: float = 0,
        first: int = 0,
        tracked: bytes = b"",
    ) -> Batch:
        """Make a batch of messages that are already encoded, and so are their deduplication keys.

        Args:
            batch_id: a unique id of sixteen characters; a caller that made these parts before passes the same id.
            parts: as `client_part` makes them, without an id; at most `max_per_call`.
            deduplication_keys: of each, as `encode_deduplication_key` makes them, or none at all.
            schedule: when they fall due.
            durability: what the publish waits for.
            partial: as in `batches`.
            receipt_seconds: keep the outcomes at least this long, for a repeat under the same `batch_id`.
            first: position of the first of them among all that the caller publishes.
            tracked: as in `batches`.
        """
        overload: Overload = "raise"
        if self.max_pending_length:
            overload = "partial" if partial else "drop_oldest" if self._drops else "raise"
        freed = bool(deduplication_keys) and self.policy == "until_acked"
        window = max(self.window_seconds, _MIN_BOUND_MARKER_SECONDS) if freed else self.window_seconds
        # A repeat learns from a marker what was accepted; after an ack, and for other outcomes, only from a receipt.
        outlived = bool(deduplication_keys) and not freed and window >= 2 * self.retry_seconds
        recorded = receipt_seconds > 0 or not outlived or overload != "raise" or durability != MEMORY
        receipt = max(receipt_seconds, _MIN_RECEIPT_SECONDS, 2 * self.retry_seconds) if recorded else 0.0
        if tracked:  # its record has the outcomes, and lives as long as the batch
            receipt, oldest = 0.0, float(checks.MAX_SECONDS)
        else:
            oldest = (receipt or window) * _SAFE_SHARE
        kinds = (b"5", b"6") if tracked else (b"1", b"2")
        return Batch(
            batch_id,
            parts,
            deduplication_keys,
            window_seconds=window if deduplication_keys else 0,
            receipt_seconds=receipt,
            oldest_seconds=oldest,
            kind=kinds[freed],
            delay_seconds=schedule.delay_seconds,
            due_ms=schedule.due_ms,
            max_pending_length=self.max_pending_length,
            overload=overload,
            durability=durability,
            tracked=tracked,
            first=first,
            in_stream=isinstance(self.keys, StreamKeys),
            packs=True,
        )

    @property
    def _drops(self) -> bool:
        return self.overload == "drop_oldest"

    def _checked(self, payload: Any) -> bytes:
        self.limits.check_payload(payload)
        data = encode_payload(payload, sort_keys=self.sort_keys, default=self.json_default)
        # What replaced a value may be nested itself, so that only the stored text has the true depth.
        self.limits.check_stored(payload if self.json_default is None else data, data)
        return data


def _locate(error: Exception, position: int) -> None:
    """Set `position` on the error of one message, also on an error of Python or of the user's key function."""
    if isinstance(error, RedisMessageQueueError):
        error.locate(position=position)
    else:
        error.__dict__.setdefault("position", position)
