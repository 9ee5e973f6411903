"""The exporter serves a scrape over HTTP, answers probes without Redis, and closes what it opened."""

from __future__ import annotations

import gzip
import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.metrics import serve
from tests.support.servers import RedisServer, free_port


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310  (the test's own exporter)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  (the same)
            body = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            return answer.status, answer.headers["Content-Type"], body
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_a_scrape_over_http(client: redis.Redis, server: RedisServer) -> None:
    RedisMessageQueue("orders", client=client).publish_many("abc")
    with serve(url=server.url, port=0) as exporter:
        status, kind, body = get(exporter.url)
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert b'sluicegate_ready_messages{group="",queue="orders",stream=""} 3.0' in body
        _, kind, body = get(exporter.url, Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")
        _, _, packed = get(exporter.url, **{"Accept-Encoding": "gzip"})
        assert b"sluicegate_ready_messages" in packed


def test_probes_and_other_paths() -> None:
    with serve(url=f"redis://127.0.0.1:{free_port()}", port=0) as exporter:
        root = exporter.url.removesuffix("/metrics")
        assert get(f"{root}/healthz")[0] == 200
        assert get(f"{root}/other")[0] == 404
        assert get(exporter.url, method="POST")[0] == 405
        status, _, body = get(exporter.url)
        assert status == 200, "Prometheus would call the exporter down, not Redis"
        assert b"sluicegate_up{" in body


def test_scrapes_at_the_same_time(client: redis.Redis, server: RedisServer) -> None:
    RedisMessageQueue("orders", client=client).publish("a")
    with serve(url=server.url, port=0) as exporter, ThreadPoolExecutor(8) as pool:
        bodies = [body for _, _, body in pool.map(get, [exporter.url] * 24)]
    assert all(b'queue="orders",stream=""} 1.0' in body for body in bodies)


def test_a_client_that_sends_nothing_keeps_no_other_waiting(server: RedisServer) -> None:
    with (
        serve(url=server.url, port=0) as exporter,
        socket.create_connection(("127.0.0.1", exporter.port)),
    ):
        assert get(exporter.url)[0] == 200


def test_closing_frees_the_port_and_leaves_a_given_gateway_open(server: RedisServer) -> None:
    gateway = RedisGateway(url=server.url)
    connection = gateway.ask([("CLIENT", "ID")])
    with serve(gateway=gateway, port=0) as exporter:
        port = exporter.port
    serve(gateway=gateway, port=port).close()
    assert gateway.ask([("CLIENT", "ID")]) == connection
    gateway.close()


def test_a_port_in_use_is_an_error_of_the_system(server: RedisServer) -> None:
    with serve(url=server.url, port=0) as exporter, pytest.raises(OSError, match="in use"):
        serve(url=server.url, port=exporter.port)


def test_a_port_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="port must be an int from 0 to 65535"):
        serve(url="redis://localhost", port=70_000)


def test_an_address_of_ipv6_is_served(server: RedisServer) -> None:
    with serve(url=server.url, host="::1", port=0) as exporter:
        assert exporter.url == f"http://[::1]:{exporter.port}/metrics"
        status, _, text = get(exporter.url)
    assert status == 200
    assert b"sluicegate_up" in text
