"""Options of a URL: an unknown one is refused when the queue is made, and what may be a secret is never shown."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate import QueueSpec, RedisGateway, RedisMessageQueue, embedded
from sluicegate._redis.connection import Address
from sluicegate._redis.url_options import known_options
from sluicegate.asyncio import RedisGateway as AsyncGateway
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.errors import ConfigurationError

SECRET = "S3CR3Tpw"
PLACES = {
    "redis": "redis://db:7/0",
    "rediss": "rediss://db:7/0",
    "unix": "unix:///run/redis.sock",
    "redis+sentinel": "redis+sentinel://one,two/service",
    "rediss+sentinel": "rediss+sentinel://one,two/service",
    "redis+cluster": "redis+cluster://one,two",
    "rediss+cluster": "rediss+cluster://one,two",
    "embedded": "embedded:///srv/queues",
}
ENTRANCES: list[Callable[[str], Any]] = [
    Address.parse,
    lambda url: RedisMessageQueue("orders", url=url),
    lambda url: AsyncQueue("orders", url=url),
    lambda url: RedisGateway(url=url),
    lambda url: AsyncGateway(url=url),
    lambda url: RedisMessageQueue.from_spec(QueueSpec("orders", url, {})),
]


@pytest.mark.parametrize("entrance", range(len(ENTRANCES)))
@pytest.mark.parametrize("scheme", PLACES)
def test_an_unknown_option_is_refused_when_the_queue_is_made(scheme: str, entrance: int) -> None:
    with pytest.raises(ConfigurationError, match="unknown option, 'frobnicate'; there are ") as caught:
        ENTRANCES[entrance](f"{PLACES[scheme]}?frobnicate={SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("auth", "password_env"),
        ("passwd", "password_env"),
        ("PASSWORD", "password_env"),
        ("Pwd", "password_env"),
        ("user", "username"),
        ("database", "db"),
        ("password_evn", "password_env"),
        ("socket_timout", "socket_timeout"),
        ("Socket_Timeout", "socket_timeout"),
        ("decode_response", "decode_responses"),
    ],
)
def test_the_nearest_option_is_named(option: str, near: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(f"redis://db:7/0?{option}={SECRET}")
    assert str(caught.value) == f"url has an unknown option, '{option}'; did you mean {near}?"


@pytest.mark.parametrize(
    "query",
    [
        f"?{SECRET}",
        f"?{SECRET}=x",
        f"?password=abc&hunter={SECRET}",
        "?password=abc&hunter=two",
        f"?password_env=PW&{SECRET.lower()}",
        "?hunter",
        "?hunter=two@db",
    ],
)
def test_what_may_be_the_rest_of_a_password_is_not_even_named(query: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(f"redis://db:7/0{query}")
    for part in (SECRET, SECRET.lower(), "hunter", "two", "abc"):
        assert part not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("redis://db?ssl=true", "write rediss:// for TLS"),
        ("redis://db?ssl_ca_certs=/ca.pem", "write rediss:// for TLS"),
        ("redis+cluster://db?ssl_cert_reqs=none", r"write rediss\+cluster:// for TLS"),
        ("redis+sentinel://db/service?db=3", "unknown option, 'db'"),
        ("redis+cluster://db?db=0", "unknown option, 'db'"),
        ("embedded:///srv/q?password_env=PW", "there are fsync, idle_seconds"),
        ("redis://db?sentinel_username=u", "unknown option, 'sentinel_username'"),
        ("redis://db?timeout=3", "did you mean socket_timeout"),
    ],
)
def test_an_option_of_another_scheme_is_unknown(url: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        Address.parse(url)


@pytest.mark.parametrize("url", ["unix://run/redis.sock", "embedded://srv/queues"])
def test_a_path_that_lacks_a_slash_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        RedisMessageQueue("orders", url=url)


@pytest.mark.parametrize("url", [f"embedded://u:{SECRET}@/q?auth={SECRET}", f"embedded:q?auth={SECRET}"])
def test_an_embedded_server_that_is_asked_for_directly_shows_no_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        embedded.connect(url)
    assert SECRET not in str(caught.value)


VALUES = {
    "db": "1", "protocol": "3", "socket_timeout": "2", "socket_connect_timeout": "2", "socket_keepalive": "true",
    "health_check_interval": "5", "max_connections": "9", "decode_responses": "true", "client_name": "gate",
    "ssl_cert_reqs": "none", "ssl_ca_certs": "/ca.pem", "username": "ann", "retry_on_timeout": "no",
}  # fmt: skip


@pytest.mark.parametrize("scheme", [scheme for scheme in PLACES if "cluster" not in scheme and scheme != "embedded"])
def test_what_is_known_makes_a_client_that_can_connect(scheme: str) -> None:
    given = {name: value for name, value in VALUES.items() if name in known_options(scheme)}
    assert len(given) >= 10
    client: Any = Address.parse(f"{PLACES[scheme]}?" + "&".join("=".join(pair) for pair in given.items())).client()
    pool = client.connection_pool
    pool.connection_class(**pool.connection_kwargs)


HOSTS = ["h", "h:6379", "h:1", "h:99999", "h:abc", "", "[::1]:6379", "h1:1,h2:2", "h 1"]
PATHS = ["", "/0", "/svc", "/svc/0", "/x/y", "/tmp/x.sock"]
AROUND = ["", "/", "?", "#", "@", ":", "%", "%2", "&", "=", "[", "]", " ", "\\", "%40", "//", ";", ",", "|", "é"]
SCHEMES = [*PLACES, "http", "REDIS", "redis:", ""]


def any_url(rng: random.Random) -> str:
    """Return a URL, usually invalid, with a secret somewhere in it."""
    secret = rng.choice(AROUND) + SECRET + rng.choice(AROUND) + rng.choice(["", "x"])
    query = rng.choice(
        ["", "?a=b", "?socket_timeout=x", "?ssl_cert_reqs=bogus", "?password_env=NOPE_X", "?db=x", "?protocol=9"]
        + [
            f"?{name}={secret}"
            for name in ("password", "ssl_password", "sentinel_password", "PASSWORD", "passwd", "auth")
        ]
        + [f"?{secret}", f"?username=u&{secret}", f"?password={secret}&x={secret}"]
    )
    user = f"{rng.choice(['', 'u', 'u%40'])}:{secret}@" if rng.random() < 0.8 else ""
    return f"{rng.choice(SCHEMES)}://{user}{rng.choice(HOSTS)}{rng.choice(PATHS)}{query}"


def shown_by(url: str) -> list[str]:
    """Everything that is shown of a URL while a queue is made of it and its client."""
    shown = []
    try:
        address = Address.parse(url)
        shown += [repr(address), address.server, address.url]
        queue = RedisMessageQueue("q", url=url)
        shown += [repr(queue), repr(queue.session.runner.gateway), queue.session.runner.gateway.server]
        shown += [repr(queue.spec())]
        address.client()
    except Exception as error:
        found: BaseException | None = error
        while found is not None:
            shown += [repr(found), str(found), *getattr(found, "__notes__", [])]
            found = found.__cause__ or found.__context__
    return shown


def test_a_secret_is_never_shown_wherever_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(9)
    with caplog.at_level(logging.DEBUG):
        for _ in range(3000):
            url = any_url(rng)
            assert not [text for text in shown_by(url) if SECRET in text], url
    assert SECRET not in caplog.text
