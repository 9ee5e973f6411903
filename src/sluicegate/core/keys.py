"""A queue's keys share one hash tag, so a queue lives in one cluster slot.

Names are encoded injectively: any name works, and `x` and `{x}` are different queues.

A stream has keys of its own under the hash tag of its name, and so has each of its groups. A queue and a stream of one
name share the tag and no key.
"""

from __future__ import annotations

import hashlib
import re

from sluicegate.core.bounds import MAX_ID_LENGTH, MAX_NAME_LENGTH
from sluicegate.core.marker_chain import MarkerChain
from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = [
    "PREFIX",
    "RESERVED",
    "GroupKeys",
    "QueueKeys",
    "StreamKeys",
    "bounded_name",
    "consumer_name",
    "decode_name",
    "encode_name",
    "lease_id_of",
    "text_of",
]

PREFIX = "sluicegate"
RESERVED = b"%{}:\x7f" + bytes(range(32))
"""The characters that have a meaning in a key, or none in a text: `encode_name` replaces them."""

_RESERVED = re.compile(r"[{}:%\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_MAX_LEASE_ID_LENGTH = 40


def encode_name(name: str) -> str:
    """Percent-encode what has a meaning in a key: `{ } : %` and control characters. Injective."""
    if not _RESERVED.search(name):
        return name
    return _RESERVED.sub(lambda match: f"%{ord(match.group()):02X}", name)


def decode_name(encoded: str) -> str:
    """Decode what `encode_name` made."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), encoded)


def text_of(raw: bytes) -> str:
    """Decode stored bytes, even if another program has overwritten them with something that is not UTF-8."""
    return raw.decode(errors="backslashreplace")


def consumer_name(name: str) -> bytes:
    """Encode the name of a consumer as its leases show it.

    Raises:
        ConfigurationError: it is blank or too long, or holds a lone surrogate.
    """
    if not isinstance(name, str):
        raise OptionTypeError(f"consumer must be a str, not {type(name).__name__}")
    if name.strip() == "":
        raise ConfigurationError("consumer is blank; leave it out, or give it at least one visible character")
    if len(name) > MAX_ID_LENGTH:
        raise ConfigurationError(f"consumer has {len(name)} characters; the limit is {MAX_ID_LENGTH}")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("consumer holds a lone surrogate; UTF-8 cannot carry it") from None


def lease_id_of(name: bytes) -> str:
    """Return the lease's id as its keys contain it: a hash (`#...`) if the id has more than 40 bytes."""
    text = text_of(name)
    return text if text.startswith("#") else decode_name(text)


def _bounded(raw: bytes, longest: int) -> bytes:
    """Limit the length of a key part: return it, or `#` and a hash. Injective, because a leading `#` is escaped."""
    if len(raw) > longest:
        return b"#" + hashlib.sha256(raw).hexdigest()[: longest - 1].encode()
    return b"%23" + raw[1:] if raw.startswith(b"#") else raw


def _encoded(what: str, name: str) -> str:
    """Encode the name of a queue, a stream or a group, or say why no such thing may have it."""
    if not isinstance(name, str):
        raise OptionTypeError(f"{what} name must be a str, not {type(name).__name__}")
    if not name.strip():
        raise ConfigurationError(f"{what} name is blank; give it at least one visible character")
    if len(name) > MAX_NAME_LENGTH:
        raise ConfigurationError(f"{what} name has {len(name)} characters; the limit is {MAX_NAME_LENGTH}")
    encoded = encode_name(name)
    try:
        encoded.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} name holds a lone surrogate; UTF-8 cannot carry it") from None
    return encoded


def bounded_name(name: str) -> bytes:
    """Encode a name as part of a key: percent-encoded, or a hash if that has over 40 bytes. Injective."""
    return _bounded(encode_name(name).encode(), _MAX_LEASE_ID_LENGTH)


class QueueKeys:
    """The key names of one queue, as bytes for commands and as str (`str(keys.pending, "utf-8")`) for people.

    Attributes:
        group: the group's name where these are the keys of a group of a stream, else "".
        markers: the chain of deduplication markers, as far as the holder of these keys knows it.
    """

    group: str = ""

    @property
    def full_name(self) -> str:
        """Return the name of the queue, or the names of the stream and its group."""
        return f"{self.name}/{self.group}" if self.group else self.name

    __slots__ = (
        "_lease",
        "_root",
        "completed",
        "counters",
        "dead",
        "dead_records",
        "delayed",
        "failed",
        "leases",
        "markers",
        "name",
        "pending",
        "returned",
        "set_aside",
        "tracking",
        "tracking_ended",
        "tracking_news",
        "wakeup",
    )

    def __init__(self, name: str) -> None:
        self._name_all(name, f"{PREFIX}:{{{_encoded('queue', name)}}}:".encode())

    def _name_all(self, name: str, root: bytes) -> None:
        """Name every key, under the root that they share."""
        self.name = name
        self._root = root
        self._lease = root + b"lease:"
        self.markers = MarkerChain(root + b"markers:")
        self.pending = root + b"pending"
        self.returned = root + b"returned"
        self.delayed = root + b"delayed"
        self.leases = root + b"leases"
        self.dead = root + b"dead"
        self.dead_records = root + b"dead:records"
        self.completed = root + b"completed"
        self.failed = root + b"failed"
        self.counters = root + b"counters"
        self.wakeup = root + b"bell"
        self.set_aside = root + b"set_aside"
        self.tracking = root + b"tracking"
        self.tracking_ended = root + b"tracking:ended"
        self.tracking_news = root + b"tracking:news"

    def lease(self, lease: bytes) -> bytes:
        """Return the key of the hash of an open lease (`lease` as made by `lease_name`)."""
        return self._lease + lease

    def closed(self, lease: bytes) -> bytes:
        """Return the key of the record of how the last opening of a lease ended."""
        return self._root + b"closed:" + lease

    @property
    def marker_counters(self) -> bytes:
        """Return the key of the totals with the chain of the markers; a group's are those of its stream."""
        return self.counters

    def published(self, batch_id: bytes) -> bytes:
        """Return the key of the receipt of a publish whose markers may not outlive its retries."""
        return self._root + b"published:" + batch_id

    def write(self, digest: bytes) -> bytes:
        """Return the key of the record of a staged write: what it publishes, or that it is done."""
        return self._root + b"write:" + digest

    def stage(self, name: bytes) -> bytes:
        """Return the key of what one attempt of one task has staged."""
        return self._root + b"stage:" + name

    @property
    def moved(self) -> bytes:
        """Return the key that records which pages of other libraries' queues were moved here."""
        return self._root + b"moved"

    def run(self, run_id: str) -> bytes:
        """Return the key that lists what a run has returned itself; any text is the id of a run."""
        return self._root + b"run:" + hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()[:32].encode()

    def drivers(self, run_id: str) -> bytes:
        """Return the key that lists the drivers of a run that are alive."""
        return self.run(run_id) + b":drivers"

    def consumer(self, name: str) -> bytes:
        """Return the key that records which reader claims for a consumer, and in which epoch."""
        if len(name) > MAX_ID_LENGTH:
            raise ConfigurationError(f"consumer's name has {len(name)} characters; the limit is {MAX_ID_LENGTH}")
        return self._root + b"consumer:" + bounded_name(name)

    @staticmethod
    def lease_name(lease_id: str) -> bytes:
        """Return the part of a lease's keys that stands for its id: the id, or a hash if it has over 40 bytes."""
        if not isinstance(lease_id, str):
            raise OptionTypeError(f"lease_id must be a str, not {type(lease_id).__name__}")
        if not lease_id:
            raise ConfigurationError("lease_id is empty; leave it out to let the library make one")
        if len(lease_id) > MAX_ID_LENGTH:
            raise ConfigurationError(
                f"lease_id has {len(lease_id)} characters; {MAX_ID_LENGTH} at most, so give a hash of it"
            )
        try:
            return bounded_name(lease_id)
        except UnicodeEncodeError:
            raise ConfigurationError("lease_id holds a lone surrogate; UTF-8 cannot carry it") from None


class StreamKeys(QueueKeys):
    """The key names of a stream: its entries are in `pending`, and markers and receipts have names of its own.

    Attributes:
        stream: the Redis stream, which any client can read.
        groups: a hash of what is known of each group: where it started, when it was made, when it expires.
    """

    __slots__ = ("_stream_root", "groups", "stream")

    def __init__(self, name: str) -> None:
        self._name_stream(f"{PREFIX}:{{{_encoded('stream', name)}}}:".encode())
        self._name_all(name, self._stream_root)
        self.pending = self.stream

    def _name_stream(self, root: bytes) -> None:
        self.stream = root + b"stream"
        self._stream_root = root + b"stream:"
        self.groups = root + b"stream:groups"

    def of_group(self, group: str) -> GroupKeys:
        """Return the keys of one of the stream's groups."""
        return GroupKeys(self.name, group)

    def wakeup_of(self, group: bytes) -> bytes:
        """Return the wake-up key of a group by its name in Redis, which another program may have chosen."""
        name = encode_name(group.decode(errors="surrogateescape"))
        return self._stream_root[: -len(b"stream:")] + f"group:{name}:bell".encode(errors="surrogateescape")


class GroupKeys(StreamKeys):
    """The key names of a group of a stream: those of a queue whose pending list is the stream.

    Deduplication markers are the stream's; everything else except the stream and its `groups` is the group's own.

    Attributes:
        group: the group's name, which is also the name of Redis's consumer group.
        stream_counters: the totals of the stream.
    """

    __slots__ = ("group", "stream_counters")

    def __init__(self, name: str, group: str) -> None:
        root = f"{PREFIX}:{{{_encoded('stream', name)}}}:".encode()
        self._name_stream(root)
        self._name_all(name, root + f"group:{_encoded('group', group)}:".encode())
        self.group = group
        self.pending = self.stream
        self.stream_counters = self._stream_root + b"counters"
        self.markers = MarkerChain(self._stream_root + b"markers:")

    @property
    def marker_counters(self) -> bytes:
        """Return the key of the totals of the stream, whose groups share its markers."""
        return self.stream_counters
