"""From Spark's options, texts all of them, to checked values.

Spark takes option names in any case, hands them over as texts, and says nothing of a name that nobody reads: here an
unknown one is an error, because a misspelt `maxMessagesPerTrigger` would be found in production only.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

from sluicegate import checks
from sluicegate.errors import ConfigurationError
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _workers
from sluicegate.spec import QueueSpec

__all__ = ["BrowseOptions", "StreamOptions", "WriteOptions", "check_early", "options", "queue_of", "refuse_path"]

BrowseState = Literal["pending", "returned", "delayed", "dead", "completed", "failed"]
WriteMode = Literal["direct", "staged"]
WriteOverload = Literal["raise", "block"]

_QUEUE = ("spec", "url", "queue", "maxDeliveryCount")
_BROWSE = ("state", "limit", "numPartitions", "manifest")
_STREAM = (
    "consumer",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "leaseSeconds",
    "pollWaitSeconds",
    "numPartitions",
    "failOnDataLoss",
)
_WRITE = (
    "payloadColumn",
    "headersColumn",
    "deduplicationKey",
    "deduplicationKeyColumn",
    "deduplicationWindowSeconds",
    "writeMode",
    "writeId",
    "batchSize",
    "maxPendingLength",
    "overload",
    "blockTimeoutSeconds",
)
_INTERNAL = frozenset({"manifest"})
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})  # which Spark adds by itself
_STATES = ("pending", "returned", "delayed", "dead", "completed", "failed")
_MOST = 2**31 - 1
_MAX_PARTITIONS = 10_000
_MAX_DELIVERIES = 4000
_MAX_CONSUMER_LENGTH = 200  # bytes; it stands in lease ids, keys and every offset


def options(queue: RedisMessageQueue) -> dict[str, str]:
    """The options that name a queue to `format("sluicegate")`: `spark.read.format(…).options(**options(queue))`.

    Raises:
        ConfigurationError: the queue cannot travel: made from a client, or its URL carries a password.
    """
    if not isinstance(queue, RedisMessageQueue):
        raise TypeError(f"queue must be a RedisMessageQueue, not a {type(queue).__name__}")
    given = {"spec": queue.spec().to_json()}
    with suppress(Exception):  # the first chance to see to the workers of what they are for; a session is not needed
        from pyspark.sql import SparkSession

        _workers.prepare(SparkSession.getActiveSession())
    return given


def check_early(raw: Mapping[str, str]) -> None:
    """Refuse at `load()` what would otherwise fail at the first action: above all a password, which stood in the plan
    until then. What else may be wrong depends on what is done with the source.

    Raises:
        ConfigurationError: a queue that cannot travel, or an unknown state.
    """
    given = _Given(raw, tuple(raw), "spark.read")
    if given.maybe_text("spec") is not None or None not in (given.maybe_text("url"), given.maybe_text("queue")):
        given.spec()
    given.choice("state", _STATES, "pending")


def refuse_path(raw: Mapping[str, str]) -> None:
    """Refuse a batch write to a place, for whoever takes the path for that of the queue.

    Raises:
        ConfigurationError: there is a path.
    """
    if _Given(raw, tuple(raw), "a write").maybe_text("path") is not None:
        raise ConfigurationError(
            "a queue has no path: publish with .mode('append').options(...).save(), or INSERT INTO a TEMPORARY VIEW; "
            "nothing was published"
        )


def queue_of(spec: str) -> RedisMessageQueue:
    """The queue that a spec describes; connects at its first command."""
    return RedisMessageQueue.from_spec(QueueSpec.from_json(spec))


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    """Options of `spark.read`.

    Attributes:
        spec: of the queue, as JSON.
        state: which messages are shown.
        limit: most of them.
        partitions: tasks that read; None to go by their number.
        manifest: leases to read instead, as `lease_batch` writes them; None to browse.
    """

    spec: str
    state: BrowseState = "pending"
    limit: int = 100_000
    partitions: int | None = None
    manifest: str | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> BrowseOptions:
        """Read options as Spark hands them over.

        Raises:
            ConfigurationError: one that is unknown, missing or out of range.
        """
        given = _Given(raw, _BROWSE, "spark.read")
        return cls(
            spec=given.spec(),
            state=cast("BrowseState", given.choice("state", _STATES, "pending")),
            limit=given.count("limit", 100_000),
            partitions=given.maybe_count("numPartitions", _MAX_PARTITIONS),
            manifest=given.maybe_text("manifest"),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `spark.readStream`.

    Attributes:
        spec: of the queue, as JSON.
        consumer: who consumes: names the leases of one streaming query and fences a second one.
        max_messages_per_trigger: of one micro-batch.
        max_bytes_per_trigger: of one micro-batch, about; None for no bound.
        lease_seconds: how long the messages of a stopped query stay with it.
        poll_seconds: how long an idle micro-batch waits for a message.
        partitions: tasks of a micro-batch; None to go by its size.
        fail_on_data_loss: whether a batch that can no longer be replayed whole fails the query.
    """

    spec: str
    consumer: str
    max_messages_per_trigger: int = 100_000
    max_bytes_per_trigger: int | None = None
    lease_seconds: float = 600
    poll_seconds: float = 1
    partitions: int | None = None
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> StreamOptions:
        """Read options as Spark hands them over.

        Raises:
            ConfigurationError: one that is unknown, missing or out of range.
        """
        given = _Given(raw, _STREAM, "spark.readStream")
        spec = given.spec()
        if QueueSpec.from_json(spec).options.get("visibility_timeout_seconds", 1) is None:
            raise ConfigurationError(
                "a queue with visibility_timeout_seconds=None delivers at most once, and a streaming query must be "
                "able to read a micro-batch again; stream from a queue with a visibility timeout"
            )
        return cls(
            spec=spec,
            consumer=given.consumer(),
            max_messages_per_trigger=given.count("maxMessagesPerTrigger", 100_000),
            max_bytes_per_trigger=given.maybe_count("maxBytesPerTrigger", 2**53),
            lease_seconds=given.seconds("leaseSeconds", 600, least=1),
            poll_seconds=given.seconds("pollWaitSeconds", 1, most=60),
            partitions=given.maybe_count("numPartitions", _MAX_PARTITIONS),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `df.write` and `df.writeStream`.

    Attributes:
        spec: of the queue, as JSON.
        payload_column: what is published; None: `payload` where there is one, else all columns as one JSON object.
        headers_column: a map of texts that travels with each message.
        key_template: deduplication key as a template over the row.
        key_column: or the column that holds it.
        window_seconds: how long a key refuses further messages; None: as the queue's spec says.
        mode: `direct` publishes in the tasks, `staged` all at once in the commit.
        write_id: names the write, so that a repeat publishes nothing twice; None for one made here.
        batch_size: messages per call.
        max_pending_length: messages that may wait in the queue; None: as the queue's spec says.
        overload: what a write beyond it does; None likewise.
        block_seconds: how long `block` waits for room; None likewise, or a minute where `overload` is given here.
    """

    spec: str
    payload_column: str | None = None
    headers_column: str | None = None
    key_template: str | None = None
    key_column: str | None = None
    window_seconds: float | None = None
    mode: WriteMode = "direct"
    write_id: str | None = None
    batch_size: int = 1000
    max_pending_length: int | None = None
    overload: WriteOverload | None = None
    block_seconds: float | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> WriteOptions:
        """Read options as Spark hands them over.

        Raises:
            ConfigurationError: one that is unknown, missing or out of range, or two that exclude each other.
        """
        given = _Given(raw, _WRITE, "a write")
        template, column = given.maybe_text("deduplicationKey"), given.maybe_text("deduplicationKeyColumn")
        if template is not None and column is not None:
            raise ConfigurationError("give deduplicationKey (a template) or deduplicationKeyColumn, not both")
        return cls(
            spec=given.spec(),
            payload_column=given.maybe_text("payloadColumn"),
            headers_column=given.maybe_text("headersColumn"),
            key_template=template,
            key_column=column,
            window_seconds=given.maybe_seconds("deduplicationWindowSeconds", least=0.001),
            mode=cast("WriteMode", given.choice("writeMode", ("direct", "staged"), "direct")),
            write_id=given.maybe_text("writeId"),
            batch_size=given.count("batchSize", 1000, most=1000),
            max_pending_length=given.maybe_count("maxPendingLength", 2**53),
            overload=cast("WriteOverload | None", given.maybe_choice("overload", ("raise", "block"))),
            block_seconds=given.maybe_seconds("blockTimeoutSeconds"),
        )


class _Given:
    """The options of one read or write, by name in any case."""

    def __init__(self, raw: Mapping[str, str], known: Sequence[str], what: str) -> None:
        self._what = what
        self._values = {name.lower(): str(value).strip() for name, value in raw.items()}
        names = {name.lower(): name for name in (*_QUEUE, *known)}
        unknown = sorted(self._values.keys() - names.keys() - _SPARKS_OWN)
        if unknown:
            told = [name for name in names.values() if name not in _INTERNAL]
            near = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0.6)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise ConfigurationError(f"{what} has no option {unknown[0]!r}; there are {', '.join(told)}{hint}")

    def spec(self) -> str:
        """The queue, as JSON without a secret."""
        spec, url, name = (self.maybe_text(option) for option in ("spec", "url", "queue"))
        count = self.maybe_text("maxDeliveryCount")
        if spec is not None:
            if url is not None or name is not None or count is not None:
                raise ConfigurationError("option spec names the queue whole; leave url, queue and maxDeliveryCount out")
            return self._read_spec(spec)
        if url is None or name is None:
            missing = " and ".join(option for option, value in (("url", url), ("queue", name)) if value is None)
            raise ConfigurationError(
                f"{self._what} from or to a queue needs the option {missing}: .option('url', 'redis://host:6379/0') "
                "and .option('queue', 'name'), or .options(**sluicegate.spark.options(queue)). Those of a table "
                "(CREATE TABLE, saveAsTable) Spark hands to no data source in Python: use CREATE TEMPORARY VIEW"
            )
        if count is None:
            return RedisMessageQueue(name, url=url).spec().to_json()
        most = None if count.lower() == "none" else self.count("maxDeliveryCount", 10, most=_MAX_DELIVERIES)
        return RedisMessageQueue(name, url=url, max_delivery_count=most).spec().to_json()

    def _read_spec(self, text: str) -> str:
        try:
            queue_of(text).spec()
            return text
        except ConfigurationError:
            raise
        except (ValueError, TypeError, AttributeError):  # what it quotes may hold a secret
            raise ConfigurationError(
                "option spec is no queue spec; write .options(**sluicegate.spark.options(queue))"
            ) from None

    def consumer(self) -> str:
        """Who consumes."""
        consumer = self.maybe_text("consumer")
        if consumer is None:
            raise ConfigurationError(
                "spark.readStream needs the option consumer: a name of this streaming query, the same at every start "
                "and used by no other query of the queue"
            )
        try:
            size = len(consumer.encode())
        except UnicodeEncodeError:
            raise ConfigurationError("option consumer holds a lone surrogate; UTF-8 cannot carry it") from None
        if size > _MAX_CONSUMER_LENGTH:
            raise ConfigurationError(f"option consumer must take {_MAX_CONSUMER_LENGTH} bytes at most, not {size}")
        return consumer

    def maybe_text(self, name: str) -> str | None:
        """A text; None where it is left out or blank."""
        return self._values.get(name.lower()) or None

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of a few words, in any case."""
        text = (self.maybe_text(name) or default).lower()
        if text not in allowed:
            raise ConfigurationError(f"option {name} must be one of {', '.join(allowed)}, not {text!r}")
        return text

    def maybe_choice(self, name: str, allowed: Sequence[str]) -> str | None:
        """The same; None where it is left out."""
        return None if self.maybe_text(name) is None else self.choice(name, allowed, "")

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def count(self, name: str, default: int, *, most: int = _MOST) -> int:
        """A whole number of 1 or more."""
        found = self.maybe_count(name, most)
        return default if found is None else found

    def maybe_count(self, name: str, most: int) -> int | None:
        """The same; None where it is left out."""
        text = self.maybe_text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 20) or not 1 <= int(text) <= most:
            raise ConfigurationError(f"option {name} must be a whole number from 1 to {most}, not {text!r}")
        return int(text)

    def seconds(self, name: str, default: float, *, least: float = 0, most: float = checks.MAX_SECONDS) -> float:
        """A number of seconds."""
        found = self.maybe_seconds(name, least=least, most=most)
        return default if found is None else found

    def maybe_seconds(self, name: str, *, least: float = 0, most: float = checks.MAX_SECONDS) -> float | None:
        """The same; None where it is left out."""
        text = self.maybe_text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ConfigurationError(f"option {name} must be seconds from {least:g} to {most:g}, not {text!r}")
        return value
