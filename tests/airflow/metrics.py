"""Airflow's own metrics in a test, as StatsD gets them: over UDP."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Client:
    """A StatsD client, as far as Airflow uses one for gauges, counters and timers."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def gauge(self, stat: str, value: float, rate: float = 1, delta: bool = False) -> None:
        """Send a gauge in StatsD's protocol."""
        self._send(stat, value, "g")

    def incr(self, stat: str, count: int = 1, rate: float = 1) -> None:
        """Send a counter."""
        self._send(stat, count, "c")

    def timing(self, stat: str, delta: Any, rate: float = 1) -> None:
        """Send a timer, in milliseconds."""
        self._send(stat, delta.total_seconds() * 1000, "ms")

    def _send(self, stat: str, value: float, kind: str) -> None:
        self._socket.sendto(f"airflow.{stat}:{value}|{kind}".encode(), self._address)


class Server:
    """A socket that metrics are sent to."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(10)
        self.port: int = self._socket.getsockname()[1]

    def read(self, count: int) -> dict[str, float]:
        """Wait for so many gauges, counters or timers and return their values by name."""
        found = {}
        for _ in range(count):
            name, _, value = self._socket.recv(4096).decode().rpartition("|")[0].rpartition(":")
            found[name] = float(value)
        return found

    def is_empty(self) -> bool:
        """Return whether everything that was sent has been read."""
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(10)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@contextmanager
def sending(stats: Any, client: Client, *, influxdb: bool = False) -> Iterator[None]:
    """Let one of Airflow's ``Stats`` send by a client, as ``[metrics] statsd_on`` does."""
    try:
        from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
    except ImportError:  # Airflow 3.1
        from airflow.metrics.statsd_logger import SafeStatsdLogger  # type: ignore[import-not-found, no-redef]

    arguments = {"influxdb_tags_enabled": influxdb, "statsd_influxdb_enabled": influxdb}
    known = inspect.signature(SafeStatsdLogger).parameters
    logger: Any = SafeStatsdLogger(client, **{name: arguments[name] for name in arguments if name in known})
    _set(stats, lambda: logger)
    try:
        yield
    finally:
        _set(stats, _nothing)


def _set(stats: Any, factory: Any) -> None:
    if not hasattr(type(stats), "initialize") and "initialize" not in vars(stats):  # Airflow 3.1
        stats.factory, stats.instance = factory, None
        return
    known = inspect.signature(stats.initialize).parameters
    stats.initialize(factory=factory, **({"export_legacy_names": True} if "export_legacy_names" in known else {}))


def _nothing() -> Any:
    try:
        from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    except ImportError:  # Airflow 3.1
        from airflow.metrics.base_stats_logger import NoStatsLogger  # type: ignore[import-not-found, no-redef]
    return NoStatsLogger()
