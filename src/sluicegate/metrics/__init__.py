"""Metrics for Prometheus: what Redis knows of queues, streams and groups, and what a process measures of its own work.

It needs the extra `metrics`. `serve` is the exporter; `QueueCollector` is what it reads with, for a registry of yours.
`instrument` and `MetricsObserver` measure the calls of one process.
"""

from sluicegate.extras import extra_needed

with extra_needed("metrics", "sluicegate.metrics"):
    from sluicegate.metrics.collector import QueueCollector
    from sluicegate.metrics.exporter import DEFAULT_PORT, Exporter, make_app, render, serve
    from sluicegate.metrics.observer import MetricsObserver, instrument

__all__ = [
    "DEFAULT_PORT",
    "Exporter",
    "MetricsObserver",
    "QueueCollector",
    "instrument",
    "make_app",
    "render",
    "serve",
]
