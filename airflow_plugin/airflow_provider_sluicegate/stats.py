"""Report depths of queues as gauges, and what tasks did as counters, where Airflow sends its own metrics."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.places import value_of

if TYPE_CHECKING:
    from sluicegate import Depth, DrainSummary
    from sluicegate.place import Place

__all__ = ["emit_counts", "emit_depth", "emit_drain"]

_log = logging.getLogger(__name__)

_INVALID = re.compile(r"[^a-zA-Z0-9_.-]")  # Airflow's own rule for names in metrics
# Airflow drops a metric whose whole name has 250 characters or more, with its prefix.
_MAX_NAME = 150


def emit_depth(queue: str | Place, depth: Depth) -> None:
    """
    Report a depth as gauges of Airflow's metrics.

    Those of a queue are ``sluicegate.queue.ready``, ``sluicegate.queue.in_flight``, ``sluicegate.queue.dead`` and
    ``sluicegate.queue.oldest_ready_age_seconds``, with the tag ``queue``; those of a group begin with
    ``sluicegate.group`` and have the tags ``stream`` and ``group``. Unless ``[metrics] legacy_names_on`` is
    false, each is sent a second time with the names at its end, such as ``sluicegate.queue.ready.orders`` or
    ``sluicegate.group.ready.orders.billing``, for a StatsD without tags. In both, characters that Airflow refuses in a
    metric are underscores, and names are cut after 150 characters together. The age is 0 when no message is ready.

    Nothing is sent unless Airflow's metrics are on. It never raises: an error of the metrics is logged.

    :param queue: the name of a queue, or a place such as ``Place("orders", stream=True, group="billing")``.
    :param depth: what was read.
    """
    values = _values(depth)

    def send_all(stats: Any, send: Callable[..., None]) -> None:
        for name, value in values.items():
            send(stats.gauge, name, value)

    _emit(queue, "depth", send_all)


def emit_counts(queue: str | Place, counts: Mapping[str, int], *, seconds: float | None = None) -> None:
    """
    Report what a task did as counters of Airflow's metrics, and how long it took as a timer.

    The counter of ``{"acked": 7}`` is ``sluicegate.queue.acked``, with the tags and the second name that the gauges of
    :func:`emit_depth` have; the timer is ``sluicegate.queue.drain_duration``. A count of 0 is not sent.

    Nothing is sent unless Airflow's metrics are on. It never raises: an error of the metrics is logged.

    :param queue: the name of a queue, or a place.
    :param counts: messages by what became of them.
    :param seconds: how long a drain worked.
    """

    def send_all(stats: Any, send: Callable[..., None]) -> None:
        for name, count in counts.items():
            if count:
                send(stats.incr, name, count)
        if seconds is not None:
            send(stats.timing, "drain_duration", timedelta(seconds=seconds))

    _emit(queue, "counts", send_all)


def emit_drain(queue: str | Place, summary: DrainSummary) -> None:
    """
    Report a drain: the counters ``claimed``, ``acked``, ``returned``, ``buried`` and ``failed``, and its duration.

    :param queue: the name of a queue, or a place.
    :param summary: of the drain, with what earlier tries of its run did.
    """
    names = ("claimed", "acked", "returned", "buried", "failed")
    emit_counts(queue, {name: getattr(summary, name) for name in names}, seconds=summary.seconds)


def _emit(queue: str | Place, what: str, send_all: Callable[[Any, Callable[..., None]], object]) -> None:
    """Send metrics of a place under both of their names; an error is logged."""
    try:
        kind, tags = _named(queue)
        stats = compat.stats()
        has_legacy_names = compat.has_legacy_metric_names()
        # A dot in a name would be a level of the hierarchy.
        path = ".".join(name.replace(".", "__") for name in tags.values())

        def send(method: Callable[..., object], name: str, value: object) -> None:
            method(f"sluicegate.{kind}.{name}", value, tags=tags)
            if has_legacy_names:
                method(f"sluicegate.{kind}.{name}.{path}", value)

        send_all(stats, send)
    except Exception as error:  # noqa: BLE001  (metrics change no outcome)
        shown = f"queue {queue!r}" if isinstance(queue, str) else queue
        _log.warning("%s: its %s could not be reported to Airflow's metrics: %s", shown, what, error)


def _named(queue: str | Place) -> tuple[str, dict[str, str]]:
    """Return the kind of what has a depth, and its tags."""
    names = {"queue": queue} if isinstance(queue, str) else value_of(queue)
    most = _MAX_NAME // len(names)
    tags = {tag: _INVALID.sub("_", name)[:most] for tag, name in names.items()}
    return "queue" if "queue" in tags else "group", tags


def _values(depth: Depth) -> dict[str, float]:
    return {
        "ready": depth.ready,
        "in_flight": depth.in_flight,
        "dead": depth.dead,
        "oldest_ready_age_seconds": depth.oldest_ready_age_seconds or 0,
    }
