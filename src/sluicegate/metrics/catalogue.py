"""Declares every metric once: its name, its labels, what it means, and where its value is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.report import GroupInfo, StreamInfo

__all__ = [
    "CLIENT_METRICS",
    "CONSUMER_METRICS",
    "GROUP_METRICS",
    "PLACE_LABELS",
    "SCRAPE_METRICS",
    "STREAM_METRICS",
    "Declared",
    "Metric",
    "metrics_table",
]

MetricKind: TypeAlias = Literal["gauge", "counter", "histogram"]
T = TypeVar("T")

PLACE_LABELS = ("queue", "stream", "group")
"""The labels of every metric of a place; those that do not apply to it are empty, which Prometheus treats as absent."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What is said of a metric.

    Attributes:
        name: as Prometheus shows it; that of a counter ends in `_total`.
        kind: its type.
        help: its meaning, as a phrase.
        labels: beside those of the place, if it is of one.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric(Declared, Generic[T]):
    """A metric that is read from the state of a place.

    Attributes:
        read: returns its value; None where it has none, and then it has no sample.
        value: of its label, if it has one.
    """

    read: Callable[[T], float | None] = lambda _: None
    value: str = ""


def _messages(state: str, read: Callable[[Snapshot], float | None]) -> Metric[Snapshot]:
    return Metric("sluicegate_messages", "gauge", "messages by state", ("state",), read, state)


def _gauge(name: str, text: str, read: Callable[[Snapshot], float | None]) -> Metric[Snapshot]:
    return Metric(f"sluicegate_{name}", "gauge", text, (), read)


def _total(name: str, text: str, field: str) -> Metric[Snapshot]:
    return Metric(f"sluicegate_{name}_total", "counter", text, (), lambda found: float(getattr(found.stats, field)))


CONSUMER_METRICS: tuple[Metric[Snapshot], ...] = (
    _messages("pending", lambda found: found.depth.pending),
    _messages("returned", lambda found: found.depth.returned),
    _messages("delayed", lambda found: found.depth.delayed),
    _messages("in_flight", lambda found: found.depth.in_flight),
    _messages("dead", lambda found: found.depth.dead),
    _messages("set_aside", lambda found: found.depth.set_aside),
    _gauge(
        "ready_messages",
        "messages that a claim would get: pending, returned, due and expired ones; scale on this",
        lambda found: found.depth.ready,
    ),
    _gauge("due_messages", "delayed messages whose time has come", lambda found: found.depth.due),
    _gauge("expired_messages", "in-flight messages whose lease has expired", lambda found: found.depth.expired),
    _gauge("leases", "open leases", lambda found: found.depth.leases),
    _gauge(
        "oldest_ready_age_seconds",
        "age of the oldest ready message; 0 if no message is ready",
        lambda found: found.depth.oldest_ready_age_seconds or 0.0,
    ),
    _gauge("paused", "whether claims are paused", lambda found: float(found.depth.paused)),
    _total("published_messages", "messages accepted", "published"),
    _total("duplicate_messages", "messages refused because their deduplication key was held", "duplicates"),
    _total("claimed_messages", "deliveries begun", "claimed"),
    _total("taken_over_leases", "leases taken over", "taken_over"),
    _total("acked_messages", "messages acked", "acked"),
    _total("nacked_messages", "messages returned as failed", "nacked"),
    _total("released_messages", "messages returned uncounted", "released"),
    _total("buried_messages", "messages that became dead letters", "buried"),
    _total("reaped_messages", "messages recovered from expired leases", "reaped"),
    _total("dropped_messages", "waiting messages dropped by `drop_oldest`", "dropped"),
    _total("dropped_dead_letters", "dead letters dropped by `max_dead_length`", "dead_dropped"),
    _total("discarded_messages", 'failed messages deleted by `on_error="discard"`', "discarded"),
    _total("foreign_values", "values that are no messages, found and buried", "foreign"),
    _total("redriven_messages", "dead letters made pending again", "redriven"),
    _total("purged_messages", "messages and records deleted by `purge`", "purged"),
    _total("cancelled_messages", "messages deleted by `cancel`", "cancelled"),
    _total("completed_messages", "messages handled to the end", "completed"),
    _total("failed_deliveries", "deliveries that failed: nacked, buried by their consumer or discarded", "failed"),
)
"""Of a queue, of a queue of jobs, and of a group of a stream."""

STREAM_METRICS: tuple[Metric[StreamInfo], ...] = (
    Metric(
        "sluicegate_stream_messages",
        "gauge",
        "messages in the stream, finished ones included",
        (),
        lambda info: info.length,
    ),
    Metric(
        "sluicegate_stream_replays",
        "gauge",
        "temporary groups of replays",
        (),
        lambda info: sum(group.is_temporary for group in info.groups),
    ),
    Metric("sluicegate_published_messages_total", "counter", "messages accepted", (), lambda info: info.published),
    Metric(
        "sluicegate_duplicate_messages_total",
        "counter",
        "messages refused because their deduplication key was held",
        (),
        lambda info: info.duplicates,
    ),
    Metric(
        "sluicegate_trimmed_messages_total",
        "counter",
        "messages of a stream that were trimmed",
        (),
        lambda info: info.trimmed,
    ),
    Metric(
        "sluicegate_trimmed_unfinished_messages_total",
        "counter",
        "trimmed messages that a group had not finished",
        (),
        lambda info: info.trimmed_unfinished,
    ),
)
"""Of a stream."""

GROUP_METRICS: tuple[Metric[GroupInfo], ...] = (
    Metric(
        "sluicegate_group_lag_messages",
        "gauge",
        "messages that the group has not been delivered; absent where the server does not count them",
        (),
        lambda group: group.lag,
    ),
    Metric(
        "sluicegate_group_foreign_pending_messages",
        "gauge",
        "messages that consumers of other libraries were delivered and have not acked",
        (),
        lambda group: group.held,
    ),
    Metric(
        "sluicegate_group_foreign_consumers",
        "gauge",
        "consumers of other libraries in the group",
        (),
        lambda group: group.consumers,
    ),
)
"""Of each group of a stream, as the stream lists it; temporary groups are left out."""

SCRAPE_METRICS: tuple[Declared, ...] = (
    Declared("sluicegate_up", "gauge", "whether Redis answered this scrape", ("server",)),
    Declared("sluicegate_places", "gauge", "places that were read, by what they are", ("kind",)),
    Declared("sluicegate_places_left_out", "gauge", "places beyond `max_places`, which were not read"),
    Declared(
        "sluicegate_place_error",
        "gauge",
        "1 for a place that could not be read, with the class of the error",
        (*PLACE_LABELS, "error"),
    ),
    Declared("sluicegate_discovery_up", "gauge", "whether the last search for places succeeded"),
    Declared("sluicegate_scrape_duration_seconds", "gauge", "how long this scrape took"),
)
"""Of the scrape itself."""

CLIENT_METRICS: tuple[Declared, ...] = (
    Declared(
        "sluicegate_client_operation_duration_seconds",
        "histogram",
        "duration of calls, with waits and retries",
        (*PLACE_LABELS, "operation", "outcome"),
    ),
    Declared(
        "sluicegate_client_hold_duration_seconds",
        "histogram",
        "time from the claim of a lease to the verdict on its messages",
        (*PLACE_LABELS, "outcome"),
    ),
    Declared(
        "sluicegate_client_handle_duration_seconds",
        "histogram",
        "time that a worker's handler took, with its middleware",
        (*PLACE_LABELS, "handler", "outcome"),
    ),
    Declared(
        "sluicegate_client_messages_total",
        "counter",
        "messages by operation and outcome, of this process",
        (*PLACE_LABELS, "operation", "outcome"),
    ),
    Declared(
        "sluicegate_client_retries_total",
        "counter",
        "failed attempts that were retried, of this process",
        (*PLACE_LABELS, "operation"),
    ),
)
"""Of the process that publishes and consumes, through `on_event`."""


def metrics_table(which: str) -> str:
    """Return the metrics of one kind as a Markdown table for `docs/metrics.md`.

    Args:
        which: `consumers`, `streams`, `groups`, `scrape` or `client`.
    """
    metrics: dict[str, tuple[tuple[Declared, ...], tuple[str, ...]]] = {
        "consumers": (CONSUMER_METRICS, PLACE_LABELS),
        "streams": (STREAM_METRICS, ("stream",)),
        "groups": (GROUP_METRICS, ("stream", "group")),
        "scrape": (SCRAPE_METRICS, ()),
        "client": (CLIENT_METRICS, ()),
    }
    declared, shared = metrics[which]
    rows = {
        one.name: f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in (*shared, *one.labels))} | "
        f"{one.help} |"
        for one in declared
    }
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows.values()]) + "\n"
