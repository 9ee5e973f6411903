"""TLS by URL: a certificate must be trusted and must name the host, whatever redis-py checks by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluicegate.asyncio.gateway import RedisGateway as AsyncRedisGateway
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from sluicegate.gateway import RedisGateway
from tests.support.flavours import Blocking, Loop
from tests.support.scripted_server import answering
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.topologies import TlsServer, make_certificates

PLACES = {
    "one": "rediss://127.0.0.1:{}/0",
    "Sentinel": "rediss+sentinel://127.0.0.1:{}/gate",
    "cluster": "rediss+cluster://127.0.0.1:{}",
}
CALL: Call[Any] = Call(scripts.load("depth"), (b"{q}:k",), (), int)
MakeGateway = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates that a trusted authority signed for this host."""
    return _certificates(tmp_path_factory, "IP:127.0.0.1")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for another host."""
    return _certificates(tmp_path_factory, "DNS:elsewhere.example")


def _certificates(factory: pytest.TempPathFactory, names: str) -> Path:
    made = factory.mktemp("tls")
    make_certificates(made, names)
    return made


@pytest.fixture(params=[False, True], ids=["sync", "asyncio"])
def make_gateway(request: pytest.FixtureRequest, loop: Loop) -> Iterator[MakeGateway]:
    """Makes gateways for a place, a port, the folder of an authority and more of a URL."""
    made: list[Any] = []

    def make(place: str, port: int, trusted: Path, more: str = "") -> Any:
        url = f"{PLACES[place].format(port)}?ssl_ca_certs={trusted}/ca.crt{more}"
        if request.param:
            made.append(Blocking(loop.run(lambda: AsyncRedisGateway(url=url)), loop))
        else:
            made.append(RedisGateway(url=url))
        return made[-1]

    yield make
    for gateway in made:
        (gateway.aclose if request.param else gateway.close)()


@pytest.mark.parametrize("place", PLACES)
def test_a_certificate_that_names_another_host_is_refused_at_once(
    make_gateway: MakeGateway, foreign: Path, place: str
) -> None:
    notes: list[Any] = []
    with answering(certificate=foreign) as server:
        with pytest.raises(RedisUnavailableError) as caught:
            make_gateway(place, server.port, foreign).execute(CALL, on_retry=notes.append)
        assert server.asked == [], "nothing is said to a stranger, no password either"
    assert notes == [], "no time helps"
    if place != "Sentinel":  # whose error leaves out what each Sentinel's client met
        assert "cannot be trusted" in str(caught.value)
        assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_a_certificate_that_names_the_host_is_taken(make_gateway: MakeGateway, folder: Path, place: str) -> None:
    with answering(certificate=folder) as server:
        assert make_gateway(place, server.port, folder).execute(CALL) == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("more", ["&ssl_check_hostname=false", "&ssl_cert_reqs=none"], ids=["any name", "anyone"])
def test_a_url_may_say_otherwise(make_gateway: MakeGateway, foreign: Path, place: str, more: str) -> None:
    with answering(certificate=foreign) as server:
        assert make_gateway(place, server.port, foreign, more).execute(CALL) == 1


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "asyncio"])
def test_a_url_with_tls_and_a_server_without_are_told_apart(asynchronous: bool, loop: Loop) -> None:
    server = RedisServer(PROGRAMS[0], port=free_port()).start()
    try:
        message = _refusal(
            f"rediss://127.0.0.1:{server.port}?socket_connect_timeout=1&socket_timeout=1", asynchronous, loop
        )
    finally:
        server.remove()

    assert f"Redis at 127.0.0.1:{server.port} does not speak TLS, which the url asks for" in message


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "asyncio"])
def test_a_url_without_tls_and_a_server_with_it_are_told_apart(asynchronous: bool, loop: Loop) -> None:
    with TlsServer(PROGRAMS[0]) as server:
        message = _refusal(f"redis://localhost:{urlsplit(server.url).port}", asynchronous, loop)

    assert "speaks TLS, which the url does not ask for; write rediss instead of redis" in message


def _refusal(url: str, asynchronous: bool, loop: Loop) -> str:
    """Return the error of a first call, which comes long before the retry budget of 120 s ends."""
    gateway: Any = RedisGateway(url=url)
    if asynchronous:
        gateway = Blocking(loop.run(lambda: AsyncRedisGateway(url=url)), loop)
    started = time.monotonic()
    with pytest.raises(ConfigurationError) as refused:
        gateway.execute(CALL)
    assert time.monotonic() - started < 10
    return str(refused.value)
