"""Declare the options of `format("sluicegate")` and read them into checked values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sluicegate.consumer import QueueConsumer
from sluicegate.draining.arguments import MAX_PARTITIONS
from sluicegate.errors import ConfigurationError
from sluicegate.spark import _workers, variants  # noqa: F401  (every reader gets the encoder of variants)
from sluicegate.spark._option_rules import (
    GivenOptions,
    count,
    declared_options,
    flag,
    number,
    one_of,
    option,
    seconds,
    text,
)
from sluicegate.spark._place import QUEUE_OPTIONS, Role, check_named_place, queue_of, spec_of
from sluicegate.spec import QueueSpec
from sluicegate.streams import RedisStreamQueue
from sluicegate.tables.misfits import Mode, checked_mode

__all__ = [
    "QUEUE_OPTIONS",
    "BrowseOptions",
    "StreamOptions",
    "WriteOptions",
    "check_early",
    "options",
    "queue_of",
    "refuse_path",
]

BrowseState = Literal["pending", "returned", "delayed", "dead", "completed", "failed"]
WriteMode = Literal["direct", "staged"]
WriteOverload = Literal["raise", "block"]
WriteKey = Literal["partition", "content"]

_MAX_BATCH_SIZE = 1000  # messages that one publish call takes
_MAX_CONSUMER_BYTES = 200  # the name is part of lease ids, keys and every offset
_MAX_SIZE = 2**53


def options(queue: QueueConsumer | RedisStreamQueue) -> dict[str, str]:
    """Return the options that name a queue, a stream or a group of a stream to `format("sluicegate")`.

    ::

        spark.read.format("sluicegate").options(**options(queue)).load()

    Args:
        queue: a queue or a group of a stream, for reads; a queue or a stream, for writes.

    Raises:
        ConfigurationError: the queue was made from a client, or its URL carries a password, so that it cannot be
            serialized for executors.
    """
    if not isinstance(queue, (QueueConsumer, RedisStreamQueue)):
        raise TypeError(f"queue must be a queue, a stream or a group of a stream, not a {type(queue).__name__}")
    spec = queue.spec()
    given = {"spec": spec.to_json()}
    with suppress(Exception):  # the first chance to prepare the workers that will read this; a session is not needed
        from pyspark.sql import SparkSession

        _workers.prepare(SparkSession.getActiveSession(), spec)
    return given


def check_early(raw: Mapping[str, str]) -> None:
    """Refuse at `load()` what would otherwise fail at the first action.

    Above all this refuses a password, which the query plan would show until then. Every other check depends on what is
    done with the source.

    Raises:
        ConfigurationError: a queue that cannot be serialized, or an unknown state.
    """
    given = GivenOptions(raw, "spark.read")
    check_named_place(given)
    given.read({"state": declared_options(BrowseOptions)["state"]})


def refuse_path(raw: Mapping[str, str]) -> None:
    """Refuse a batch write to a path, which a user may take for the queue's.

    Raises:
        ConfigurationError: there is a path.
    """
    if GivenOptions(raw, "a write").text("path") is not None:
        raise ConfigurationError(
            "a queue has no path: publish with .mode('append').options(...).save(), or INSERT INTO a TEMPORARY VIEW; "
            "nothing was published"
        )


def _mode(name: str, given: str) -> Mode:
    """Take what happens to payloads that do not fit."""
    return checked_mode(given)


def _consumer(name: str, given: str) -> str:
    """Take a name that fits into lease ids and keys."""
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"option {name} holds a lone surrogate; UTF-8 cannot carry it") from None
    if size > _MAX_CONSUMER_BYTES:
        raise ConfigurationError(f"option {name} must take {_MAX_CONSUMER_BYTES} bytes at most, not {size}")
    return given


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    """Holds the options of `spark.read`.

    Attributes:
        spec: the queue, as JSON.
        state: which messages are shown.
        limit: the largest number of messages.
        num_partitions: tasks that read; None: by the number of messages.
        manifest: the leases to read instead, as `lease_batch` writes them; None to browse.
        mode: what happens to payloads that do not fit the declared schema.
        column_name_of_corrupt_record: the column that holds them in the mode PERMISSIVE; None for `_corrupt_record`.
    """

    spec: str
    state: BrowseState = option(one_of(*get_args(BrowseState)), default="pending")
    limit: int = option(count(), default=100_000)
    num_partitions: int | None = option(count(MAX_PARTITIONS), default=None)
    manifest: str | None = option(text, default=None, internal=True)
    mode: Mode = option(_mode, default="FAILFAST")
    column_name_of_corrupt_record: str | None = option(text, default=None)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> BrowseOptions:
        """Read the options that Spark hands over.

        Raises:
            ConfigurationError: an option is unknown, missing or out of range, or the mode is BURY.
        """
        found = cls(**_values(cls, raw, "spark.read", "consumer"))
        if found.mode == "BURY":
            raise ConfigurationError(
                "a read changes nothing, so it cannot bury; mode=BURY is for readStream, lease_batch and drain. Read "
                "with mode=PERMISSIVE to find the payloads that do not fit"
            )
        return found


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Holds the options of `spark.readStream`.

    Attributes:
        spec: the queue, as JSON.
        consumer: who consumes; names the leases of one streaming query and fences a second query.
        max_messages_per_trigger: messages of one micro-batch.
        max_messages_per_second: messages claimed per second, None for any number.
        max_bytes_per_trigger: bytes of one micro-batch, approximately; None for no bound.
        lease_seconds: how long a stopped query keeps its messages.
        poll_wait_seconds: how long an idle micro-batch waits for a message.
        num_partitions: tasks of a micro-batch; None: by its size.
        fail_on_data_loss: whether a batch that can no longer be replayed whole fails the query.
        mode: what happens to payloads that do not fit the declared schema.
        column_name_of_corrupt_record: the column that holds them in the mode PERMISSIVE; None for `_corrupt_record`.
    """

    spec: str
    consumer: str = option(
        _consumer,
        required="a name of this streaming query, the same at every start and used by no other query of the queue",
    )
    max_messages_per_trigger: int = option(count(), default=100_000)
    max_bytes_per_trigger: int | None = option(count(_MAX_SIZE), default=None)
    lease_seconds: float = option(seconds(minimum=1), default=600)
    poll_wait_seconds: float = option(seconds(maximum=60), default=1)
    num_partitions: int | None = option(count(MAX_PARTITIONS), default=None)
    fail_on_data_loss: bool = option(flag, default=True)
    mode: Mode = option(_mode, default="FAILFAST")
    column_name_of_corrupt_record: str | None = option(text, default=None)
    max_messages_per_second: float | None = option(number(0.001, _MAX_SIZE), default=None)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> StreamOptions:
        """Read the options that Spark hands over.

        Raises:
            ConfigurationError: an option is unknown, missing or out of range, or the queue delivers at most once.
        """
        values = _values(cls, raw, "spark.readStream", "consumer")
        if QueueSpec.from_json(values["spec"]).options.get("visibility_timeout_seconds", 1) is None:
            raise ConfigurationError(
                "a queue with visibility_timeout_seconds=None delivers at most once, and a streaming query must be "
                "able to read a micro-batch again; stream from a queue with a visibility timeout"
            )
        return cls(**values)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Holds the options of `df.write` and `df.writeStream`.

    Attributes:
        spec: the queue, as JSON.
        payload_column: what is published; None: `payload` where there is one, else all columns as one JSON object.
        headers_column: a map of texts that becomes the headers of each message.
        deduplication_key: the deduplication key as a template over the row.
        deduplication_key_column: or the column that holds it.
        deduplication_window_seconds: how long a key refuses further messages; None: as the queue's spec says.
        write_mode: `direct` publishes in the tasks, `staged` publishes everything in the commit.
        write_key: by what rows without a key are recognized: their `partition` and content, or the numbered `content`
            that `content_keys` adds.
        write_id: names the write, so that a repeat publishes nothing twice; None for one made here.
        batch_size: messages per call.
        max_pending_length: messages that may wait in the queue; None: as the queue's spec says.
        overload: what a write does when the queue is full; None: as the queue's spec says.
        block_timeout_seconds: how long `block` waits for room; None: as the queue's spec says, or a minute where
            `overload` is given here.
    """

    spec: str
    payload_column: str | None = option(text, default=None)
    headers_column: str | None = option(text, default=None)
    deduplication_key: str | None = option(text, default=None)
    deduplication_key_column: str | None = option(text, default=None)
    deduplication_window_seconds: float | None = option(seconds(minimum=0.001), default=None)
    write_mode: WriteMode = option(one_of(*get_args(WriteMode)), default="direct")
    write_key: WriteKey = option(one_of(*get_args(WriteKey)), default="partition")
    write_id: str | None = option(text, default=None)
    batch_size: int = option(count(_MAX_BATCH_SIZE), default=1000)
    max_pending_length: int | None = option(count(_MAX_SIZE), default=None)
    overload: WriteOverload | None = option(one_of(*get_args(WriteOverload)), default=None)
    block_timeout_seconds: float | None = option(seconds(), default=None)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> WriteOptions:
        """Read the options that Spark hands over.

        Raises:
            ConfigurationError: an option is unknown, missing or out of range, or two exclude each other.
        """
        found = cls(**_values(cls, raw, "a write", "publisher"))
        if found.deduplication_key is not None and found.deduplication_key_column is not None:
            raise ConfigurationError("give deduplicationKey (a template) or deduplicationKeyColumn, not both")
        return found


def _values(kind: type, raw: Mapping[str, str], use: str, role: Role) -> dict[str, Any]:
    """Return the fields of one kind of options: the spec of the place, and the declared options that are given."""
    declared, given = declared_options(kind), GivenOptions(raw, use)
    shown = [one.name for one in declared.values() if not one.internal]
    hidden = [one.name for one in declared.values() if one.internal]
    given.refuse_unknown((*QUEUE_OPTIONS, *shown), hidden)
    return {"spec": spec_of(given, role), **given.read(declared)}
