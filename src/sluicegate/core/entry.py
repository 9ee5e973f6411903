"""An entry is a stored message, with this layout.

::

    1  00000000001c  0199f3c2b1a4  00a  0  <id> US <deduplication key> US <headers> US <payload>
    │  │             │             │    └ releases that did not count (1 hex digit)
    │  │             │             └ finished deliveries (3 hex digits, saturating)
    │  │             └ time of enqueueing, ms since the epoch (12 hex digits)
    │  └ sequence: the queue's `published` total (12 hex digits)
    └ kind: 1, and 5 for a message of a batch, 7 for a job; 2, 6 and 8 when the deduplication marker is freed as the
      message ends

The server writes the prefix and changes it by position. The client's part starts at byte 29; of it, Lua reads only the
id and the deduplication key. `US` is the ASCII unit separator 0x1F, which neither an id, an encoded key nor JSON can
contain. The payload is last and may contain anything. JSON payloads stay readable in `redis-cli LRANGE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sluicegate.core import json
from sluicegate.core.bounds import MAX_HEADERS_BYTES, MAX_KEY_BYTES, SEPARATOR
from sluicegate.core.keys import RESERVED, encode_name
from sluicegate.errors import ConfigurationError, MalformedStoredMessageError, PayloadTooLargeError

__all__ = [
    "KINDS",
    "PREFIX_LENGTH",
    "SEPARATOR",
    "Prefix",
    "bound_keys",
    "client_part",
    "encode_deduplication_key",
    "encode_headers",
    "identify",
    "is_entry",
    "is_tracked",
    "key_of",
    "payload_of",
    "read_prefix",
    "split_entry",
    "was_delivered",
]

KINDS = (b"1", b"2", b"5", b"6", b"7", b"8")
PREFIX_LENGTH = 29
_FIELDS = 4
_LAST_UNTRACKED = ord("4")
_ENTRY = re.compile(rb"[125678][0-9a-fA-F]{28}[^%(us)b]+%(us)b[^%(us)b]*%(us)b[^%(us)b]*%(us)b" % {b"us": SEPARATOR})
_WITHOUT_RESERVED = bytes.maketrans(RESERVED, b"\xff" * len(RESERVED))  # no byte of UTF-8


class Prefix(NamedTuple):
    """The server writes this prefix on an entry."""

    sequence: int
    enqueued_ms: int
    deliveries: int
    releases: int


def client_part(message_id: bytes, deduplication_key: bytes, headers: bytes, payload: bytes) -> bytes:
    """Join the bytes that follow the server's prefix."""
    return SEPARATOR.join((message_id, deduplication_key, headers, payload))


def encode_headers(headers: dict[str, str] | None) -> bytes:
    """Encode headers as compact JSON; no headers are empty bytes.

    Raises:
        TypeError: a name or value that is not a str.
        PayloadTooLargeError: more than `MAX_HEADERS_BYTES`.
    """
    if not headers:
        return b""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"header {name!r} must map a str to a str, not to {type(value).__name__}")
    data = json.dumps(dict(headers))
    if len(data) > MAX_HEADERS_BYTES:
        raise _too_long("headers", data, MAX_HEADERS_BYTES, "put the bulk into the payload")
    return data


def encode_deduplication_key(key: str) -> bytes:
    """Encode a deduplication key as entries and key names contain it.

    Raises:
        ConfigurationError: a lone surrogate, which UTF-8 cannot carry.
        PayloadTooLargeError: more than `MAX_KEY_BYTES`.
    """
    try:
        data = key.encode()
        if data.translate(_WITHOUT_RESERVED) != data:
            data = encode_name(key).encode()
    except UnicodeEncodeError:
        raise ConfigurationError("deduplication key holds a lone surrogate; UTF-8 cannot carry it") from None
    if len(data) > MAX_KEY_BYTES:
        raise _too_long("deduplication key", data, MAX_KEY_BYTES, "use a hash of it")
    return data


def _too_long(what: str, data: bytes, longest: int, advice: str) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"{what} of {len(data)} bytes as stored is over the limit of {longest}; {advice}", size=len(data), limit=longest
    )


def read_prefix(entry: bytes) -> Prefix:
    """Read the server's prefix of an entry.

    Raises:
        MalformedStoredMessageError: the value is not an entry of this version.
    """
    try:
        if entry[:1] not in KINDS:
            raise ValueError("unknown kind")
        return Prefix(int(entry[1:13], 16), int(entry[13:25], 16), int(entry[25:28], 16), int(entry[28:29], 16))
    except ValueError:
        raise MalformedStoredMessageError("a stored value is not a Sluicegate entry") from None


def was_delivered(entry: bytes) -> bool:
    """Return whether an earlier delivery of an entry has ended, whatever its verdict."""
    return entry[25:29] != b"0000"


def is_entry(value: bytes) -> bool:
    """Return whether a stored value has the layout of an entry."""
    return _ENTRY.match(value) is not None


def is_tracked(entry: bytes) -> bool:
    """Return whether an entry belongs to a batch or is a job, so that what becomes of it is recorded."""
    return entry[0] > _LAST_UNTRACKED


def split_entry(entry: bytes) -> list[bytes]:
    """Split the client's part into [id, deduplication key, headers, payload].

    Raises:
        MalformedStoredMessageError: the value is not an entry.
    """
    fields = entry[PREFIX_LENGTH:].split(SEPARATOR, _FIELDS - 1)
    if len(fields) != _FIELDS:
        raise MalformedStoredMessageError("a stored value is not a Sluicegate entry")
    return fields


def payload_of(entry: bytes) -> bytes:
    """Return only the payload, for handlers that use nothing else.

    Raises:
        MalformedStoredMessageError: the value is not an entry.
    """
    fields = entry.split(SEPARATOR, _FIELDS - 1)
    if len(fields) != _FIELDS:
        raise MalformedStoredMessageError("a stored value is not a Sluicegate entry")
    return fields[-1]


def identify(value: bytes) -> tuple[bytes, bytes]:
    """Return id and deduplication key of an entry, or of its beginning as far as the end of the key."""
    message_id, key, _ = value.split(SEPARATOR, 2)
    return message_id[PREFIX_LENGTH:], key


def key_of(value: bytes) -> bytes:
    """Return the deduplication key of an entry, or of its beginning as far as the end of its key; b"" for none."""
    if value.count(SEPARATOR) < 2 or value.startswith(SEPARATOR):
        return b""
    return identify(value)[1]


def bound_keys(entries: Iterable[tuple[int, bytes]]) -> tuple[tuple[int, bytes], ...]:
    """List slot and key of each message whose marker must be freed when it ends, for `SettleRequest.bound`.

    Args:
        entries: slots, ascending, with their entries. An entry without such a marker costs a look at its first byte.
    """
    return tuple([(slot, split_entry(entry)[1]) for slot, entry in entries if not entry[0] & 1])
