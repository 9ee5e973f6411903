"""What the test button of a connection says, on real servers of every topology."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.servers import PasswordServer
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.topologies import ClusterServers, SentinelServers

pytestmark = pytest.mark.airflow


def test_the_connection_test_says_where_it_got_through(password_server: PasswordServer, connect: Connect) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)
    with password_server.client() as client:
        before = sorted(client.scan_iter())

        works, text = RedisQueueHook().test_connection()

        assert sorted(client.scan_iter()) == before
    assert works is True
    assert text.startswith(f"Redis at localhost:{password_server.port} answers and runs the queue's scripts. It is a ")
    assert re.search(r"a single server; the primary runs Redis [0-9.]+; persistence: none, a restart loses", text)
    assert text.endswith("eviction policy: noeviction")


def test_the_connection_test_says_why_it_failed(
    password_server: PasswordServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUEUE_PASSWORD", raising=False)
    closed, port = free_port(), password_server.port
    for fields, reason in [
        ({"port": port, "password": "wr0ng-s3cret"}, f"Redis at localhost:{port} refused access "),
        ({"port": port}, f"Redis at localhost:{port} refused access "),
        ({"port": port, "extra": {"password_env": "QUEUE_PASSWORD"}}, "environment variable QUEUE_PASSWORD"),
        ({"port": closed, "password": "wr0ng-s3cret"}, f"Redis at localhost:{closed} cannot be reached"),
        ({"extra": {"colour": "red"}}, "the key 'colour'"),
    ]:
        connect(host="localhost", **fields)  # type: ignore[arg-type]

        works, text = RedisQueueHook().test_connection()

        assert works is False
        assert reason in text
        assert "wr0ng-s3cret" not in text


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Yield a server that may evict messages, and keeps those that it has."""
    options = ("--maxmemory-policy", "allkeys-lru", "--save", "60", "1", "--appendonly", "yes")
    started = RedisServer(PROGRAMS[0], *options, port=free_port()).start()
    yield started
    started.remove()


def test_a_server_that_evicts_messages_is_warned_about(server: RedisServer, connect: Connect) -> None:
    connect(host="localhost", port=server.port)

    works, text = RedisQueueHook().test_connection()

    assert works is True
    assert "persistence: AOF and RDB; eviction policy: allkeys-lru. WARNING: with allkeys-lru a full server" in text
    assert "set maxmemory-policy to noeviction" in text


def test_a_user_without_the_right_to_ask_still_passes(server: RedisServer, connect: Connect) -> None:
    with server.client() as client:
        client.execute_command(
            *("ACL", "SETUSER", "worker", "on", f">{PASSWORD}", "~*", "+@all", "-info", "-config"),
        )
    connect(host="localhost", port=server.port, login="worker", password=PASSWORD)

    works, text = RedisQueueHook().test_connection()

    assert works is True
    assert text.endswith("its user may not call INFO, which tells version, role, persistence and eviction policy")


def test_an_embedded_server_is_described(embedded_url: str, connect: Connect) -> None:
    connect(extra={"url": embedded_url})

    works, text = RedisQueueHook().test_connection()

    assert works is True
    assert f"Redis at embedded:{urlsplit(embedded_url).path} answers" in text
    assert "persistence: AOF" in text


def test_a_service_behind_sentinel_is_described(connect: Connect) -> None:
    with SentinelServers(PROGRAMS[0]) as servers:
        parts = urlsplit(servers.url)
        connect(host=parts.netloc, extra={"sentinel_service": parts.path.split("/")[1]})

        works, text = RedisQueueHook().test_connection()

    assert works is True
    assert re.search(r"It is the Sentinel service \S+; the primary runs Redis", text)


def test_a_cluster_is_described(connect: Connect) -> None:
    with ClusterServers(PROGRAMS[0]) as servers:
        connect(host=urlsplit(servers.url).netloc, extra={"cluster": True})

        works, text = RedisQueueHook().test_connection()

    assert works is True
    assert "It is a cluster of 3 primaries and 0 replicas; the primary runs Redis" in text
