"""What only the asyncio gateway can meet: cancellation, and several event loops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import redis

from sluicegate.asyncio.gateway import RedisGateway
from sluicegate.core.call import Call, Wait
from sluicegate.core.scripts import Script, load
from tests.support.scripted_server import Answering, answering
from tests.support.servers import RedisServer

ROUNDS = 300


def echo(server: RedisServer, number: int) -> Call[Any]:
    """Return a call that answers its own number."""
    text = b"return ARGV[1]"
    with server.client() as client:
        sha = client.script_load(text.decode())
    return Call(Script("echo", "echo", text, str(sha).encode(), load("depth").header), (b"{q}:k",), (number,), int)


def test_cancelled_calls_leave_no_reply_to_others(server: RedisServer, bare_client: redis.Redis) -> None:
    rolls = random.Random(5)
    first = echo(server, 0)

    async def main() -> None:
        gateway = RedisGateway(url=server.url)
        await gateway.execute(first)
        cancelled = 0
        for number in range(ROUNDS):
            call = Call(first.script, first.keys, (number,), int)
            task = asyncio.ensure_future(gateway.execute(call))
            for _ in range(rolls.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                assert await task == number
                cancelled -= 1
            cancelled += 1
            check = Call(first.script, first.keys, (-number,), int)
            assert await gateway.execute(check) == -number
        assert cancelled > 10
        await gateway.aclose()

    asyncio.run(main())


def test_a_cancelled_wait_lets_go_of_its_connection(server: RedisServer, bare_client: redis.Redis) -> None:
    async def main() -> None:
        gateway = RedisGateway(url=server.url)
        waiting = asyncio.ensure_future(gateway.wait(Wait(b"{q}:bell", 60), lambda: False))
        while bare_client.info("clients")["blocked_clients"] != 1:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        while bare_client.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.01)
        await gateway.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_handshake_whose_caller_was_cancelled_spoils_no_other_call() -> None:
    """Its reply, which is still to come, must not be taken for that of the next call."""

    async def main(server: Answering) -> None:
        gateway = RedisGateway(url=f"redis://127.0.0.1:{server.port}/0?protocol=3")
        call = Call(load("depth"), (b"{q}:k",), (), int)
        assert await gateway.execute(call, retry=False) == 1  # reached; connections for other calls are yet to be made
        server.greets.clear()
        given_up = asyncio.ensure_future(gateway.execute(call))
        while server.greeted < 2:
            await asyncio.sleep(0.001)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert given_up.cancelled()
        next_one = asyncio.ensure_future(gateway.execute(call))
        await asyncio.sleep(0.05)  # long enough to send, were a connection there
        server.greets.set()
        assert await next_one == 1
        assert server.scripts == ["EVALSHA"] * 2
        await gateway.aclose()

    with answering() as server:
        asyncio.run(asyncio.wait_for(main(server), 20))


def test_one_gateway_serves_one_event_loop_after_the_other(server: RedisServer, bare_client: redis.Redis) -> None:
    gateway, call = RedisGateway(url=server.url), echo(server, 3)

    async def main() -> tuple[int, int, bool]:
        result = (
            await gateway.execute(call),
            await gateway.execute(call, retry=False),
            await gateway.wait(Wait(b"{q}:bell", 0.01)),
        )
        await gateway.aclose()
        return result

    assert [asyncio.run(main()) for _ in range(2)] == [(3, 3, False)] * 2
