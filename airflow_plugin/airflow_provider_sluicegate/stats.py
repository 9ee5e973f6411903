"""Report the depth of queues as gauges, where Airflow sends its own metrics."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from airflow_provider_sluicegate import compat

if TYPE_CHECKING:
    from sluicegate import Depth

__all__ = ["emit_depth"]

_log = logging.getLogger(__name__)

_PREFIX = "sluicegate.queue"
_INVALID = re.compile(r"[^a-zA-Z0-9_.-]")  # Airflow's own rule for names in metrics
# Airflow drops a metric whose whole name has 250 characters or more, with its prefix.
_MAX_NAME = 150


def emit_depth(queue_name: str, depth: Depth) -> None:
    """
    Report a depth as gauges of Airflow's metrics.

    They are ``sluicegate.queue.ready``, ``sluicegate.queue.in_flight``, ``sluicegate.queue.dead`` and
    ``sluicegate.queue.oldest_ready_age_seconds``, with the tag ``queue``. Unless ``[metrics] legacy_names_on`` is
    false, each is sent a second time with the queue in its name, such as ``sluicegate.queue.ready.orders``, for a
    StatsD without tags. In both, characters that Airflow refuses in a metric are underscores, and the name of the
    queue is cut after 150 characters. The age is 0 when no message is ready.

    Nothing is sent unless Airflow's metrics are on. It never raises: an error of the metrics is logged.

    :param queue_name: the name of the queue.
    :param depth: what was read.
    """
    name = _INVALID.sub("_", queue_name)[:_MAX_NAME]
    try:
        stats = compat.stats()
        has_legacy_names = compat.has_legacy_metric_names()
        for gauge, value in _values(depth).items():
            stats.gauge(f"{_PREFIX}.{gauge}", value, tags={"queue": name})
            if has_legacy_names:
                # A dot in the name would be a level of the hierarchy.
                stats.gauge(f"{_PREFIX}.{gauge}.{name.replace('.', '__')}", value)
    except Exception as error:  # noqa: BLE001  (metrics change no outcome)
        _log.warning("queue %r: its depth could not be reported to Airflow's metrics: %s", queue_name, error)


def _values(depth: Depth) -> dict[str, float]:
    return {
        "ready": depth.ready,
        "in_flight": depth.in_flight,
        "dead": depth.dead,
        "oldest_ready_age_seconds": depth.oldest_ready_age_seconds or 0,
    }
