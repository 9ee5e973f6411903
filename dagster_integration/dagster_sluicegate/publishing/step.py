"""One publish of a step: in batches, with counts, and under keys that its retries share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg

from dagster_sluicegate.batches import BATCH_ID
from dagster_sluicegate.names import NO_NAMES, Names
from dagster_sluicegate.places import in_title, names_of, place_of
from dagster_sluicegate.publishing.rows import is_at_hand, messages_of
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import checks
from sluicegate.bulk.publisher import Publisher, PublishStoppedError
from sluicegate.bulk.reader import Reader
from sluicegate.core.deduplication import KeySource, compile_key_function
from sluicegate.core.durability import DurabilityOption, parse_durability
from sluicegate.core.entry import encode_headers
from sluicegate.core.publishing import MAX_PER_CALL, parse_schedule
from sluicegate.errors import ConfigurationError
from sluicegate.options import QueueOptions
from sluicegate.place import Place

__all__ = ["RETRY_WINDOW_SECONDS", "PublishOptions", "publish"]

RETRY_WINDOW_SECONDS = 86_400.0
_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOptions:
    """How a step publishes; see `build_queue_publish_asset`.

    Raises:
        ConfigurationError: an option that cannot work.
    """

    batch_size: int = MAX_PER_CALL
    deduplication_key: KeySource | None = None
    retry_window_seconds: float = RETRY_WINDOW_SECONDS
    headers: Mapping[str, str] | None = None
    delay_seconds: float = 0
    due_at: datetime | None = None
    durability: DurabilityOption = "memory"

    def __post_init__(self) -> None:
        checks.count("batch_size", self.batch_size, MAX_PER_CALL)
        checks.positive("retry_window_seconds", self.retry_window_seconds)
        if self.deduplication_key is not None:
            checks.synchronous("deduplication_key", self.deduplication_key)
            compile_key_function(self.deduplication_key)
        encode_headers(dict(self.headers) if self.headers else None)
        parse_schedule(self.delay_seconds, self.due_at)
        parse_durability(self.durability)


def publish(
    resource: RedisQueueResource,
    made: Any,
    *,
    what: str,
    work: str,
    log: Any,
    options: PublishOptions,
    names: Names = NO_NAMES,
    batch_id: str | None = None,
    results: list[dg.AssetCheckResult] | None = None,
) -> dict[str, Any]:
    """Publish what a step has made, and return the metadata of its materialization or output.

    Args:
        resource: of the queue or stream.
        made: an iterable of payloads, or a table.
        what: its name in errors.
        work: the name under which the tries of the step publish.
        log: of the step.
        options: how to publish.
        names: of another queue or stream than the resource's.
        batch_id: publishes the messages as this batch; None for no batch.
        results: takes the results of asset checks that stand among the messages.

    Raises:
        dagster.Failure: it stopped midway; says where and why, and forbids a retry that would stop there again.
        ConfigurationError: an option or the resource cannot work.
    """
    if names.over(resource.names).stream_name is not None and (options.delay_seconds or options.due_at):
        raise ConfigurationError("a stream delivers at once; leave delay_seconds and due_at out, or publish to a queue")
    source = enumerate(messages_of(made, what, results), start=1)
    reader = Reader(source, _describe, None, options.batch_size, is_at_hand(made))
    by_position = options.deduplication_key is None and resource.deduplication_key is None
    given = _by_position(resource, reader, work, options) if by_position else _by_key(reader, options)
    with resource.get_publisher(names.queue_name, stream_name=names.stream_name, **given) as queue:
        place = place_of(queue)
        publisher = Publisher(queue, reader, log, _PROGRESS_SECONDS, place=place, batch_id=batch_id)
        try:
            report = publisher.run(
                batch_size=options.batch_size,
                headers=options.headers,
                delay_seconds=options.delay_seconds,
                due_at=options.due_at,
                durability=options.durability,
            )
        except PublishStoppedError as stopped:
            raise _failure(stopped, resource, place, what) from stopped
        left = _what_is_left(queue, place, log)
    before = report["duplicates"] if by_position else 0
    metadata = {
        "dagster/row_count": report["published"] + before,
        **names_of(place),
        "sluicegate/accepted": report["published"],
        "sluicegate/accepted_before": before,
        "sluicegate/duplicates": report["duplicates"] - before,
        "sluicegate/batches": report["batches"],
        "sluicegate/bytes": publisher.size_bytes,
        **left,
        **resource.page_metadata(place),
        **({} if batch_id is None else {BATCH_ID: batch_id}),
    }
    ids = {f"sluicegate/{name}": report[name] for name in ("first_message_id", "last_message_id")}
    return {**metadata, **{name: value for name, value in ids.items() if value is not None}}


def _what_is_left(queue: Any, place: Place, log: Any) -> dict[str, int]:
    """Return how many messages are ready in the queue, or kept by the stream."""
    if place.stream:
        return {"sluicegate/length": queue.info().length}
    depth = queue.depth()
    if depth.paused:
        log.warning(f"{in_title(place)} is paused, so its messages wait until somebody resumes it.")
    return {"sluicegate/ready": depth.ready}


def _by_position(resource: RedisQueueResource, reader: Reader, work: str, options: PublishOptions) -> QueueOptions:
    """Return the options that have a retry publish only what is missing: a message is known by its place."""
    return {
        "get_deduplication_key": reader.position_key(work),
        "deduplication_window_seconds": max(options.retry_window_seconds, resource.deduplication_window_seconds),
    }


def _by_key(reader: Reader, options: PublishOptions) -> QueueOptions:
    key = options.deduplication_key
    if key is None:
        return {}
    return {"get_deduplication_key": reader.watch(key) if callable(key) else key}


def _describe(number: int) -> str:
    return f"message {number}"


def _failure(stopped: PublishStoppedError, resource: RedisQueueResource, place: Place, what: str) -> Exception:
    """Return the error that fails the step; the user's own requests to Dagster stay what they are."""
    cause = stopped.__cause__
    if isinstance(cause, (dg.Failure, dg.RetryRequested)):
        return cause
    return dg.Failure(
        f"{place}, {what}: {stopped}",
        metadata={
            **names_of(place),
            "sluicegate/accepted": stopped.published,
            "sluicegate/duplicates": stopped.duplicates,
            "sluicegate/batches": stopped.batches,
            **resource.page_metadata(place),
        },
        allow_retries=not stopped.is_permanent,
    )
