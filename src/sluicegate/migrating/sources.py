"""Where another library keeps its messages: the names of its keys, and how a stored value is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sluicegate.core.bounds import SEPARATOR, shorten
from sluicegate.core.json import loads
from sluicegate.core.keys import encode_name
from sluicegate.errors import ConfigurationError
from sluicegate.migrating.calls import State

__all__ = [
    "InFlight",
    "JobQueueSource",
    "MessageQueueSource",
    "Moved",
    "Source",
    "StreamSource",
    "entry_fields",
    "entry_tail",
    "payload_of_envelope",
    "read_job",
    "read_stream_fields",
]

InFlight = Literal["refuse", "return", "leave"]
_ENVELOPE = b"\x1eRMQ1:"
_MAX_DELIVERIES = 4095
_MAX_TIME = 281474976710655  # an entry has room for no greater time
_RESERVED = frozenset({b"data", b"headers", b"key", b"policy"})
MAX_FIELDS = 1000  # of an entry that is moved as it is; Redis calls a script's command with a few thousand values


@dataclass(frozen=True, slots=True)
class MessageQueueSource:
    """A queue of redis-message-queue, of any version and layout.

    Attributes:
        name: of the queue, with its hash tag on a cluster.
        separator: its `key_separator`.
        dead_letter_key: the list of its dead letters, if its gateway had a `dead_letter_queue` of another name.
    """

    name: str
    separator: str = "::"
    dead_letter_key: str | None = None

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        _check_name("separator", self.separator)

    def key(self, suffix: str) -> bytes:
        """Return the name of one of the queue's keys."""
        return f"{self.name}{self.separator}{suffix}".encode()

    def notes(self) -> tuple[bytes, bytes, bytes]:
        """Return the keys with deadlines, deliveries and tokens of claimed values."""
        claimed = self.key("processing")
        return claimed + b":lease_deadlines", claimed + b":delivery_counts", claimed + b":lease_tokens"

    def dead_letter_keys(self) -> list[bytes]:
        """List the lists that dead letters may be in: versions and gateways have named them differently."""
        named = [self.dead_letter_key.encode()] if self.dead_letter_key else []
        return [*named, *(key for key in (self.key("dlq"), self.key("dead_letter")) if key not in named)]

    def __str__(self) -> str:
        return f"redis-message-queue {self.name!r}"


@dataclass(frozen=True, slots=True)
class JobQueueSource:
    """A job queue as Redis's tutorial builds it: lists of ids, and a hash per job.

    Attributes:
        name: the prefix of its keys, `queue:jobs` there.
    """

    name: str = "queue:jobs"

    def __post_init__(self) -> None:
        _check_name("name", self.name)

    def key(self, suffix: str) -> bytes:
        """Return the name of one of the queue's lists."""
        return f"{self.name}:{suffix}".encode()

    def record(self, job_id: bytes) -> bytes:
        """Return the name of the hash of a job."""
        return self.key("job:") + job_id

    def __str__(self) -> str:
        return f"job queue {self.name!r}"


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream of Redis that any client has written.

    Attributes:
        name: its key.
        group: move only what this group has not finished, for a queue; None for all entries.
        payload_field: the field with the payload; None for `data`, or without one a JSON object of all fields.
    """

    name: str
    group: str | None = None
    payload_field: str | None = None

    def __post_init__(self) -> None:
        _check_name("name", self.name)

    def __str__(self) -> str:
        group = "" if self.group is None else f"group {self.group!r} of "
        return f"{group}stream {self.name!r}"


Source = MessageQueueSource | JobQueueSource | StreamSource


@dataclass(frozen=True, slots=True)
class Moved:
    """A message as `move_in` takes it.

    Attributes:
        values: of the call.
        raw: whether the value did not have the format of its library, and was moved as it is.
    """

    values: tuple[bytes, ...]
    raw: bool = False


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"the {what} of what is to be moved is blank; give the one that its library uses")


def entry_tail(ms: int, deliveries: int, message_id: bytes, headers: bytes, payload: bytes) -> bytes:
    """Return an entry from its time on, as `move_in` takes it."""
    counts = b"%012x%03x0" % (min(max(ms, 0), _MAX_TIME), min(max(deliveries, 0), _MAX_DELIVERIES))
    return SEPARATOR.join((counts + message_id, b"", headers, payload))


def payload_of_envelope(value: bytes) -> tuple[bytes, bool]:
    """Return the payload of a value of redis-message-queue, and whether the value is no envelope of it.

    Such a value is a payload itself: versions before 2 stored payloads so, and later ones accept them.
    """
    if not value.startswith(_ENVELOPE):
        return value, True
    try:
        envelope = _loads(value[len(_ENVELOPE) :])
        if "payload_hex" in envelope:
            return bytes.fromhex(envelope["payload_hex"]), False
        return envelope["payload"].encode(), False
    except (ValueError, TypeError, KeyError, AttributeError):
        return value, True


def read_job(job_id: bytes, fields: Mapping[bytes, bytes], left_ms: int, now_ms: int, state: State) -> Moved:
    """Turn a job's hash into a job of ours with the same id.

    Args:
        job_id: of the job.
        fields: of its hash.
        left_ms: the hash's time to live, -1 for no end.
        now_ms: the server's time.
        state: which of its lists the job is in.
    """
    payload, raw = fields.get(b"payload", b""), False
    try:
        content = _loads(payload)
    except ValueError:
        raw, content = True, payload.decode(errors="backslashreplace")
        payload = json.dumps(content).encode()
    kind = content.get("kind") if isinstance(content, dict) else None
    kind = kind if isinstance(kind, str) and kind and SEPARATOR.decode() not in kind else "default"
    attempts = _number(fields, b"attempts")
    error = shorten(_text(fields, b"last_error").replace(SEPARATOR.decode(), " "), 2000).encode()
    enqueued, ended = _number(fields, b"enqueued_at_ms") or now_ms, _number(fields, b"completed_at_ms") or now_ms
    status = {"waiting": b"waiting", "dead": b"failed", "completed": b"completed"}[state]
    known_state = state != "waiting" or attempts or error
    numbers = (attempts, _number(fields, b"claimed_at_ms"), 0 if state == "waiting" else ended)
    record = b""
    if known_state:
        record = SEPARATOR.join((status, *(b"%d" % number for number in numbers), b"", b"", b"", b"", error))
    result = fields.get(b"result", b"") if state == "completed" and _is_json(fields.get(b"result", b"")) else b""
    note = b""
    if state == "dead":
        note = SEPARATOR.join((b"%d" % ended, b"max_delivery_count", b"", error or b"failed before it was moved here"))
    elif state == "completed":
        note = b"%d" % ended
    life = left_ms if left_ms > 0 else 86_400_000
    stored_id = encode_name(job_id.decode(errors="backslashreplace")).encode()
    tail = entry_tail(enqueued, attempts, stored_id, b"", payload)
    return Moved((tail, note, kind.encode(), record, result, b"%d" % life), raw)


def read_stream_fields(fields: Sequence[bytes], payload_field: bytes | None) -> tuple[bytes, bytes]:
    """Return headers and payload of an entry of a stream, as a group of ours would read it."""
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    payload = found.pop(payload_field or b"data", None)
    if payload is None:
        return b"", _json_of(found)
    return _json_of(found) if found else b"", payload


def entry_fields(fields: Sequence[bytes], payload_field: bytes | None) -> Sequence[bytes]:
    """Return the fields of an entry as our stream keeps it: as they are, unless a name has a meaning there."""
    names = set(fields[::2])
    taken = names & _RESERVED
    plain = len(fields) <= MAX_FIELDS and len(names) * 2 == len(fields)
    if payload_field is None and plain and taken <= {b"data"}:
        return fields
    headers, payload = read_stream_fields(fields, payload_field)
    return (b"data", payload, b"headers", headers) if headers else (b"data", payload)


def _json_of(fields: Mapping[bytes, bytes]) -> bytes:
    content = {_decoded(name): _decoded(value) for name, value in fields.items()}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(raw: bytes) -> str:
    """Decode a text; of bytes that are not UTF-8, each is the character of its number."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _loads(raw: bytes) -> Any:
    """Decode JSON with the quicker parser; what that refuses may still be JSON, such as escaped lone surrogates."""
    try:
        return loads(raw)
    except ValueError:
        return json.loads(raw)


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    raw = fields.get(name, b"")
    return int(raw) if raw.isdigit() and len(raw) < 16 else 0


def _text(fields: Mapping[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode(errors="backslashreplace")


def _is_json(raw: bytes) -> bool:
    try:
        _loads(raw)
    except ValueError:
        return False
    return True
