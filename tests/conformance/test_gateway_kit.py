"""The test kit for gateways: ours pass it, and one that breaks a promise does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
import redis.asyncio

from sluicegate._redis.compat import CONNECTION_FOR
from sluicegate.asyncio.gateway import RedisGateway as AsyncRedisGateway
from sluicegate.core.call import Call, Wait
from sluicegate.gateway import RedisGateway
from sluicegate.testing import gateways
from sluicegate.testing.gateways import check_async_gateway, check_gateway
from tests.support.servers import RedisServer
from tests.support.settings import UNIX_SPEAKS_RESP3

SILENCE_SECONDS = 1  # of a client, so that the check of a silent server is short


@pytest.fixture
def of_little_patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Gives the check of a silent server a gateway of its own: on a busy machine, any call may take that long."""
    check = gateways.check_one_attempt_is_short

    def use(quick: Callable[[Any], Any]) -> None:
        def check_it(gateway: Any, redis_client: redis.Redis) -> None:
            impatient = quick(gateway)
            try:
                check(impatient, redis_client)
            finally:
                impatient.close()

        monkeypatch.setattr(gateways, "check_one_attempt_is_short", check_it)

    return use


@pytest.mark.parametrize(("decodes", "protocol"), [(False, 2), (True, 3 if UNIX_SPEAKS_RESP3 else 2)])
def test_the_synchronous_gateway_keeps_its_contract(
    server: RedisServer, bare_client: redis.Redis, decodes: bool, protocol: int, of_little_patience: Any
) -> None:
    options: dict[str, Any] = {"decode_responses": decodes, "protocol": protocol}
    with server.client(**options) as client, server.client(**options, socket_timeout=SILENCE_SECONDS) as quick:
        of_little_patience(lambda _: RedisGateway(redis_client=quick))
        check_gateway(lambda: RedisGateway(redis_client=client), bare_client)


@pytest.mark.parametrize(("decodes", "protocol"), [(False, 2), (True, 3)])
def test_the_asyncio_gateway_keeps_its_contract(
    server: RedisServer, bare_client: redis.Redis, decodes: bool, protocol: int, of_little_patience: Any
) -> None:
    url = f"{server.url}?protocol={protocol}&decode_responses={str(decodes).lower()}"
    quick = f"{url}&socket_timeout={SILENCE_SECONDS}"
    of_little_patience(lambda usual: gateways._Blocking(lambda: AsyncRedisGateway(url=quick), usual._loop))
    check_async_gateway(lambda: AsyncRedisGateway(url=url), bare_client)


class Ageless(RedisGateway):
    def _once(self, call: Call[Any], stage: str, held: Any = None) -> Any:
        return super()._once(replace(call, args=call.args and (0, *call.args[1:])), stage, held)


class Deaf(RedisGateway):
    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        return super().wait(replace(wait, seconds=min(2, wait.seconds)))


class Separate(RedisGateway):
    def execute(self, call: Call[Any], **options: Any) -> Any:
        reply = super().execute(replace(call, then=()), **options)
        return (reply, self.client.execute_command(*call.then)) if call.then else reply


class Hasty(RedisGateway):
    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        return False


class Stubborn(RedisGateway):
    def execute(self, call: Call[Any], **options: Any) -> Any:
        try:
            return super().execute(call, **options)
        except redis.ResponseError:
            return super().execute(call, **options)


class Careless(RedisGateway):
    def send(self, call: Call[Any], **options: Any) -> Any:
        receive = super().send(call, **options)
        return lambda: (receive(), self.execute(call))[1]


class Trusting(RedisGateway):
    def send(self, call: Call[Any], **options: Any) -> Any:
        connection = self.client.connection_pool.get_connection(*CONNECTION_FOR)
        connection.send_command("EVAL", call.script.text, len(call.keys), *call.keys, *call.args)
        return lambda: call.decode(connection.read_response(disable_decoding=True))


@pytest.mark.parametrize(
    ("broken", "check", "says"),
    [
        (Ageless, gateways.check_a_lost_connection_is_survived, "age of 0 ms"),
        (Deaf, gateways.check_a_stop_ends_a_wait, "ended before its time"),
        (Separate, gateways.check_what_stands_behind_a_script, "not an integer"),
        (Hasty, gateways.check_a_wait_ends, r"of 0.3 s took 0\."),
        (Careless, gateways.check_a_call_sent_ahead, "one effect"),
        (Trusting, gateways.check_a_call_sent_ahead, "expected a pair"),
        (Stubborn, gateways.check_a_refusal_is_not_repeated, "number of attempts"),
    ],
)
def test_a_broken_promise_is_found(
    broken: type[RedisGateway], check: Any, says: str, server: RedisServer, bare_client: redis.Redis
) -> None:
    with server.client() as client:
        gateway = broken(redis_client=client)
        with pytest.raises((AssertionError, redis.ResponseError), match=says):
            check(gateway, bare_client)
        gateway.close()


def test_a_wait_that_loses_its_connection_does_not_spin(server: RedisServer, bare_client: redis.Redis) -> None:
    gateway = RedisGateway(url="redis://127.0.0.1:1/0")
    begun = time.monotonic()
    assert gateway.wait(Wait(b"bell", 5)) is False
    assert time.monotonic() - begun >= 0.2
