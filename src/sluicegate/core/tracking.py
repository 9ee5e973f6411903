"""The records of batches and jobs: field names and values of the hash `tracking`, as the scripts write them.

Every record is a field of one hash per queue:

- a batch: `b:<batch>:<count>`, where a count is `total`, `delayed`, `in_flight`, `done`, `dead` or `gone`, and
  `b:<batch>:sealed` and `:ended` with the time in ms;
- a job: `j:<id>` when it was enqueued, `s:<id>` for its state since then, and `r:<id>` for its result; `p:<id>` for its
  progress, and `x:<id>` with the time in ms at which its cancellation was requested.

What a script changes in them is in `tracking.lua`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, get_args

from sluicegate.core.bounds import MAX_ID_LENGTH, SEPARATOR
from sluicegate.core.keys import bounded_name, lease_id_of, text_of
from sluicegate.errors import ConfigurationError, MalformedStoredMessageError, OptionTypeError

__all__ = [
    "BATCH_COUNTS",
    "ENDED_STATUSES",
    "JOB_FIELDS",
    "JobRecord",
    "JobState",
    "JobStatus",
    "Progress",
    "batch_call_ids",
    "batch_fields",
    "batch_id_of",
    "batch_member",
    "batch_name",
    "batch_of",
    "job_field",
    "job_member",
]

JobStatus = Literal["waiting", "delayed", "running", "completed", "failed", "cancelled"]
_STATUSES: Final = frozenset(get_args(JobStatus))
ENDED_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
BATCH_COUNTS: Final = (b"total", b"delayed", b"in_flight", b"done", b"dead", b"gone", b"sealed", b"ended")
JOB_FIELDS: Final = (b"j", b"s", b"r", b"p", b"x")
"""The letters of a job's fields: record, state, result, progress and the request to cancel it."""


def batch_name(batch_id: str) -> bytes:
    """Return the part of names that stands for a batch: its id encoded, or a hash if that has over 40 bytes.

    Raises:
        ConfigurationError: an id that is empty, too long or not UTF-8.
    """
    if not isinstance(batch_id, str):
        raise OptionTypeError(f"batch_id must be a str, not {type(batch_id).__name__}")
    if not batch_id:
        raise ConfigurationError("batch_id is empty; leave it out to let the library make one")
    if len(batch_id) > MAX_ID_LENGTH:
        raise ConfigurationError(
            f"batch_id has {len(batch_id)} characters; {MAX_ID_LENGTH} at most, so give a hash of it"
        )
    try:
        return bounded_name(batch_id)
    except UnicodeEncodeError:
        raise ConfigurationError("batch_id holds a lone surrogate; UTF-8 cannot carry it") from None


def batch_of(message_id: bytes) -> bytes:
    """Return the name of the batch that a message or job belongs to; b"" for none."""
    name, found, _ = message_id.partition(b":")
    return name if found else b""


def batch_id_of(name: bytes) -> str:
    """Return the id of a batch, or a hash (`#...`) if it has more than 40 bytes as names contain it."""
    return lease_id_of(name)


def batch_call_ids(name: bytes) -> Callable[[], bytes]:
    """Return a function that makes the ids of the calls that publish a batch, one after the other."""
    numbers = count()
    return lambda: b"%b:%d" % (name, next(numbers))


def batch_fields(name: bytes) -> list[bytes]:
    """List the fields of a batch in the order of `BATCH_COUNTS`."""
    return [b"b:" + name + b":" + count for count in BATCH_COUNTS]


def batch_member(name: bytes) -> bytes:
    """Return what stands for a batch in `tracking:ended` and in notifications."""
    return b"b:" + name


def job_field(letter: bytes, job_id: bytes) -> bytes:
    """Return one of the fields of a job, by its letter in `JOB_FIELDS`."""
    return letter + b":" + job_id


def job_member(job_id: bytes) -> bytes:
    """Return what stands for a job in `tracking:ended` and in notifications."""
    return b"j:" + job_id


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it was enqueued.

    Attributes:
        kind: its kind.
        enqueued_ms: when it was enqueued, in ms since the epoch.
        payload: as it was stored.
    """

    kind: str
    enqueued_ms: int
    payload: bytes = field(repr=False)

    @classmethod
    def decode(cls, raw: bytes) -> JobRecord:
        """Read the field `j:<id>`.

        Raises:
            MalformedStoredMessageError: something else was written in its place.
        """
        parts = raw.split(SEPARATOR, 2)
        if len(parts) != 3 or not parts[1].isdigit():
            raise MalformedStoredMessageError("a stored value is not the record of a job")
        return cls(text_of(parts[0]), int(parts[1]), parts[2])

    def encode(self) -> bytes:
        """Return the record as scripts write it."""
        return SEPARATOR.join((self.kind.encode(), b"%d" % self.enqueued_ms, self.payload))


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job. The times, lease, worker and token are those of its last delivery.

    Attributes:
        status: waiting, delayed, running, completed, failed or cancelled.
        attempts: deliveries begun.
        claimed_ms: when it was last claimed, in ms since the epoch; 0 for never.
        ended_ms: when it ended; 0 if it has not.
        lease_id: the lease that it was last in, as names contain it; "" for none.
        worker: the name of the consumer that claimed it; "" for none.
        token_hash: of the token of that lease: 16 hex digits of its SHA-1; "" for none.
        error_type, error: of its last failed attempt.
    """

    status: JobStatus = "waiting"
    attempts: int = 0
    claimed_ms: int = 0
    ended_ms: int = 0
    lease_id: str = ""
    worker: str = ""
    token_hash: str = ""
    error_type: str = ""
    error: str = ""

    @property
    def is_ended(self) -> bool:
        """Return whether the job is completed, failed or cancelled."""
        return self.status in ENDED_STATUSES

    @classmethod
    def decode(cls, raw: bytes | None) -> JobState:
        """Read the field `s:<id>`; a job that was enqueued and has none is waiting.

        Raises:
            MalformedStoredMessageError: something else was written in its place.
        """
        if raw is None:
            return cls()
        parts = raw.split(SEPARATOR, 8)
        status = text_of(parts[0])
        if len(parts) != 9 or status not in _STATUSES or not all(part.isdigit() for part in parts[1:4]):
            raise MalformedStoredMessageError("a stored value is not the state of a job")
        attempts, claimed_ms, ended_ms = map(int, parts[1:4])
        worker, token_hash, error_type, error = map(text_of, parts[5:])
        return cls(
            status,  # type: ignore[arg-type]
            attempts,
            claimed_ms,
            ended_ms,
            lease_id_of(parts[4]) if parts[4] else "",
            worker,
            token_hash,
            error_type,
            error,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job says it has come.

    Attributes:
        progress: a number, by convention from 0 to 1.
        reported_ms: when it was reported, in ms since the epoch.
        note: a text.
    """

    progress: float
    reported_ms: int
    note: str = ""

    @classmethod
    def decode(cls, raw: bytes) -> Progress:
        """Read the field `p:<id>`.

        Raises:
            MalformedStoredMessageError: something else was written in its place.
        """
        try:
            progress, reported_ms, note = raw.split(SEPARATOR, 2)
            return cls(float(progress), int(reported_ms), text_of(note))
        except ValueError:
            raise MalformedStoredMessageError("a stored value is not the progress of a job") from None

    def encode(self) -> bytes:
        """Return the progress as it is stored."""
        return SEPARATOR.join((repr(self.progress).encode(), b"%d" % self.reported_ms, self.note.encode()))
