"""URLs of a Sentinel service and of a cluster, and which clients a gateway takes. Nothing here connects."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel

from sluicegate._redis.cluster_routes import Routes
from sluicegate._redis.connection import Address
from sluicegate._redis.pools_base import Stage, derived_pool
from sluicegate.asyncio.gateway import RedisGateway as AsyncRedisGateway
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import RedisGateway

SENTINEL = "redis+sentinel://app@one:1001,two/my%20service/3?password_env=PW&sentinel_password_env=SPW&protocol=3"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sentinel_url(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "secret")
    monkeypatch.setenv("SPW", "other")
    address = Address.parse(SENTINEL)
    client: Any = address.async_client() if asynchronous else address.client()
    pool = client.connection_pool
    assert pool.service_name == "my service"
    options = pool.connection_kwargs
    assert {name: options[name] for name in ("username", "password", "db", "protocol")} == {
        "username": "app",
        "password": "secret",
        "db": 3,
        "protocol": 3,
    }
    seen = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each["password"]) for each in seen] == [
        ("one", 1001, "other"),
        ("two", 26379, "other"),
    ]
    assert all((each.get("username"), each["protocol"]) == (None, 2) for each in seen)


def test_tls_of_a_sentinel_url_is_for_both() -> None:
    client: Any = Address.parse("rediss+sentinel://one/service?ssl_ca_certs=/ca.pem").client()
    pool = client.connection_pool
    assert issubclass(pool.connection_class, redis.SSLConnection)
    assert pool.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    [sentinel] = pool.sentinel_manager.sentinels
    assert issubclass(sentinel.connection_pool.connection_class, redis.SSLConnection)


def test_an_asyncio_cluster_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "secret")
    client: Any = Address.parse(
        "rediss+cluster://app@one:7001,[::1]:7002?password_env=PW&socket_timeout=2"
    ).async_client()
    assert sorted((node.host, node.port) for node in client.nodes_manager.startup_nodes.values()) == [
        ("::1", 7002),
        ("one", 7001),
    ]
    options = client.connection_kwargs
    assert (options["username"], options["password"], options["socket_timeout"]) == ("app", "secret", 2.0)


@pytest.mark.parametrize("url", [SENTINEL, "redis+cluster://one:1,two:2?password_env=PW", "rediss+cluster://u@one:1"])
def test_what_travels_is_the_same_place_without_its_secret(url: str) -> None:
    address = Address.parse(url)
    again = Address.parse(address.portable_url())
    assert again == address


@pytest.mark.parametrize("url", ["redis+sentinel://app:hush@one:1,two/service", "rediss+cluster://:hush@one,two"])
def test_a_password_in_a_url_shows_nowhere_and_does_not_travel(url: str) -> None:
    address = Address.parse(url)
    assert address.password == "hush"
    assert "hush" not in address.url + address.server + repr(address)
    with pytest.raises(ConfigurationError, match="password_env"):
        address.portable_url()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://one,two", "names no Sentinel service"),
        ("redis+sentinel://one/service/x", "names no Sentinel service"),
        ("redis+sentinel:///service", "list of hosts"),
        ("redis+cluster://one:70000", "list of hosts"),
        ("redis+cluster://one,,two", "list of hosts"),
        ("redis+cluster://p@ss@one/@x", "database 0"),
        ("redis+cluster://one:1/2", "database 0"),
        ("redis+sentinel://one/service?sentinel_password=hush", "sentinel_password_env"),
    ],
)
def test_a_url_that_names_no_place_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        Address.parse(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://app:12/hush@one",
        "redis+cluster://app:12#hush@one:7000",
        "redis+cluster://app:12?hush@one",
        "rediss+cluster://app:12/0#hush@one",
        "redis://app:12/hush@one",
        "unix://app:12/hush@/redis.sock",
        "unix://:12#hush@/redis.sock",
    ],
)
def test_a_password_that_would_be_read_as_something_else_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        Address.parse(url)
    assert not {"hush", "12"} & set(str(caught.value).replace("@", " ").split())


def test_a_path_may_hold_what_a_host_may_not() -> None:
    assert Address.parse("unix:///run/redis@1:2.sock").server == "unix:/run/redis@1:2.sock"


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPW", raising=False)
    monkeypatch.setenv("PW", "x")
    with pytest.raises(ConfigurationError, match="SPW"):
        Address.parse(SENTINEL).client()


@pytest.mark.parametrize(
    ("unfit", "says"),
    [
        (redis.Redis, "synchronous client"),
        (lambda: AsyncSentinel([("127.0.0.1", 1)]), "master_for"),
        (lambda: redis.asyncio.Redis().pipeline(), "pipeline"),
        (lambda: redis.asyncio.RedisCluster(host="h").pipeline(), "pipeline"),
        (lambda: redis.asyncio.Redis(single_connection_client=True), "single_connection_client"),
    ],
)
def test_an_asyncio_gateway_refuses_unfit_clients(unfit: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AsyncRedisGateway(redis_client=unfit())


@pytest.mark.parametrize("package", [redis, redis.asyncio])
def test_clients_that_fit(package: Any) -> None:
    gateway: Any = AsyncRedisGateway if package is redis.asyncio else RedisGateway
    for client in (package.Redis(host="h", port=1), package.Sentinel([("h", 1)]).master_for("svc")):
        assert gateway(redis_client=client).decodes_responses is False
    assert gateway(redis_client=package.Redis(decode_responses=True)).decodes_responses is True
    assert gateway(url="redis://h?decode_responses=true").decodes_responses is True
    assert gateway(url="redis+cluster://h?decode_responses=false").decodes_responses is False


def test_a_pool_for_waiting_keeps_what_leads_to_the_place() -> None:
    client = redis.Sentinel([("h", 1)]).master_for("svc", ssl=True, ssl_ca_certs="/ca", password="x")
    pool = derived_pool(client.connection_pool, Stage.WAITING, None)
    assert pool.connection_class is client.connection_pool.connection_class
    assert (pool.service_name, pool.is_master) == ("svc", True)
    assert pool.connection_kwargs["connection_pool"] is not client.connection_pool.connection_kwargs["connection_pool"]
    assert (pool.connection_kwargs["ssl_ca_certs"], pool.connection_kwargs["password"]) == ("/ca", "x")


def test_one_attempt_has_a_short_timeout() -> None:
    for given, expected in ((None, 5), (30, 5), (2, 2)):
        pool = derived_pool(redis.Redis(socket_timeout=given).connection_pool, Stage.SINGLE, None)
        assert pool.connection_kwargs["socket_timeout"] == expected


def test_a_node_that_fails_is_followed_by_the_next() -> None:
    routes, known = Routes(), [("a", 1), ("b", 2)]
    assert routes.get(7) is None
    routes.suspect(7, ("a", 1), known)
    assert routes.get(7) == ("b", 2)
    routes.suspect(7, ("a", 1), known)  # a late report of the first failure
    assert routes.get(7) == ("b", 2)
    routes.learn(7, ("c", 3))
    routes.suspect(7, ("c", 3), known)
    assert routes.get(7) == ("a", 1)
    assert routes.get(8) is None
