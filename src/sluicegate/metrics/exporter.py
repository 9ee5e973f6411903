"""Serves metrics to Prometheus, over HTTP or inside another application."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import choose_encoder

from sluicegate import checks
from sluicegate.gateway import RedisGateway
from sluicegate.metrics.collector import QueueCollector
from sluicegate.place import Place
from sluicegate.survey import FoundPlace

__all__ = ["DEFAULT_PORT", "Exporter", "make_app", "render", "serve"]

DEFAULT_PORT = 9464
Environment: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]
_LOOK_SECONDS = 0.05  # between looks whether to close
_log = logging.getLogger("sluicegate")
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


def render(collector: QueueCollector, accept: str = "") -> tuple[str, bytes]:
    """Return one scrape: its content type, and the text.

    Args:
        collector: what to read.
        accept: the header of the request, which may ask for OpenMetrics.
    """
    encode, content_type = choose_encoder(accept)
    return content_type, encode(_registry_of(collector))


def make_app(collector: QueueCollector) -> Application:
    """Return a WSGI application: `/metrics`, and `/healthz`, which answers without asking Redis.

    Args:
        collector: what to read at each scrape.
    """
    metrics = make_wsgi_app(_registry_of(collector))

    def app(environment: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if environment.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [*_TEXT, ("Allow", "GET, HEAD")])
            return [b"only GET is served here\n"]
        if path == "/metrics":
            answer: Iterable[bytes] = metrics(environment, start_response)
            return answer
        if path == "/healthz":
            start_response("200 OK", _TEXT)
            return [b"ok\n"]
        start_response("404 Not Found", _TEXT)
        return [b"the metrics are at /metrics\n"]

    return app


class Exporter:
    """An exporter that serves in a thread of its own, until it is closed.

    Args:
        collector: what to read at each scrape; it is closed with the exporter.
        host: the address to listen at.
        port: 0 for a free one.

    Attributes:
        port: the port that it listens at.
        url: of the metrics.
    """

    def __init__(self, collector: QueueCollector, host: str, port: int) -> None:
        self._collector = collector
        is_v6 = ":" in host
        self._server = make_server(host, port, make_app(collector), _Server6 if is_v6 else _Server, _Handler)
        self.port = self._server.server_port
        self.url = f"http://{f'[{host}]' if is_v6 else host}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="sluicegate-exporter", daemon=True
        )
        self._thread.start()

    def wait(self, stop: threading.Event | None = None) -> None:
        """Wait until `stop` is set, or without it for ever; Ctrl-C ends the wait."""
        (stop or threading.Event()).wait()

    def close(self) -> None:
        """Stop to serve, and close the connections to Redis."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve(
    *,
    url: str | None = None,
    gateway: RedisGateway | None = None,
    places: Iterable[str | Place | FoundPlace] | None = None,
    refresh_seconds: float = 60.0,
    max_places: int = 2000,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
) -> Exporter:
    """Serve the metrics of queues, streams and groups for Prometheus to scrape.

    It listens on this machine only, unless `host` says otherwise: whoever reaches it reads the names of all places.

    Args:
        url: of the Redis, as for a queue.
        gateway: instead, a gateway, which stays the caller's to close.
        places: what to read; None for all that a search finds.
        refresh_seconds: how often that search is repeated, in the background.
        max_places: most places to read.
        host: the address to listen at.
        port: 0 for a free one.

    Raises:
        ConfigurationError: an argument that cannot work.
        OSError: the address is in use.
    """
    checks.count("port", port, 65_535, least=0)
    collector = QueueCollector(
        url=url, gateway=gateway, places=places, refresh_seconds=refresh_seconds, max_places=max_places
    )
    try:
        return Exporter(collector, host, port)
    except OSError:
        collector.close()
        raise


def _registry_of(collector: QueueCollector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


class _Server(ThreadingMixIn, WSGIServer):
    """A server in which a slow client delays no other."""

    daemon_threads = True
    request_queue_size = 32


class _Server6(_Server):
    """The same at an address of IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 30  # of a client that sends nothing

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
        _log.debug("exporter: " + format, *args)
