"""What both gateways make of a server's errors, silence and absence."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from sluicegate._gateway_base import RetryNote
from sluicegate._redis.connection import Address
from sluicegate.core.call import Call, Wait
from sluicegate.core.keys import QueueKeys
from sluicegate.core.scripts import load
from sluicegate.core.transitions.depth import depth_call
from sluicegate.errors import (
    ConfigurationError,
    RedisAccessError,
    RedisMemoryError,
    RedisRefusedError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
)
from sluicegate.gateway import RedisGateway
from tests.faults.conftest import MakeGateway
from tests.support.flavours import Blocking
from tests.support.scripted_server import answering
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

KEYS = QueueKeys("orders")


def call() -> Call[Any]:
    return Call(load("depth"), (KEYS.pending,), (), lambda reply: reply)


PASSING = [
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a replica.\r\n",
    b"-ERR Error running script (call to f_1): @user_script:1: -NOREPLICAS Not enough good replicas to write.\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    b"-CLUSTERDOWN The cluster is down\r\n",
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    b"-NOREPLICAS Not enough good replicas to write.\r\n",
    b"-MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.\r\n",
    b"-MISCONF Errors writing to the AOF file: No space left on device script: f_1, on @user_script:3.\r\n",
    b"-ERR Error running script (call to f_1): @user_script:1: -MISCONF Redis is unable to persist to disk.\r\n",
    b"-DENIED Redis is running in protected mode.\r\n",
    b"-ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.\r\n",
    b"-ERR DB capacity quota exceeded\r\n",
    b"",
]
REFUSALS = PASSING[:-1]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error[1:14].decode().strip() or "cut")
def test_what_passes_is_tried_again(make_gateway: MakeGateway, error: bytes) -> None:
    notes: list[RetryNote] = []
    with answering(error, error) as server:
        assert make_gateway(server.port).execute(call(), on_retry=notes.append) == 1
        assert server.scripts == ["EVALSHA"] * 3
    assert [(note.verb, note.attempt) for note in notes] == [("depth", 1), ("depth", 2)]
    assert all(isinstance(note.error, Exception) and note.seconds >= 0 for note in notes)


@pytest.mark.parametrize("error", PASSING[:2], ids=["plain", "in-script"])
def test_after_readonly_the_primary_is_looked_up_again(make_gateway: MakeGateway, error: bytes) -> None:
    with answering(error) as server:
        make_gateway(server.port).execute(call())
        first, second = server.connections
    assert first != second


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error[1:12].decode().strip() or "cut")
def test_one_attempt_is_one_attempt(make_gateway: MakeGateway, error: bytes) -> None:
    with answering(forever=error) as server:
        gateway = make_gateway(server.port)
        with pytest.raises(RedisUnavailableError):
            gateway.execute(call(), retry=False)
        assert server.scripts == ["EVALSHA"]


def test_noscript_is_healed_and_nothing_else_is_sent_again(make_gateway: MakeGateway) -> None:
    notes: list[RetryNote] = []
    with answering(b"-NOSCRIPT No matching script.\r\n", b":7\r\n") as server:
        assert make_gateway(server.port).execute(call(), on_retry=notes.append) == 7
        assert server.scripts == ["EVALSHA", "EVAL"]
        assert server.asked[-1][1][1] == load("depth").text
    assert notes == []


def test_noscript_is_healed_in_front_of_what_follows(make_gateway: MakeGateway) -> None:
    with answering(b"-NOSCRIPT No matching script.\r\n", b":7\r\n") as server:
        asked = Call(load("depth"), (KEYS.pending,), (), lambda reply: reply, then=(b"WAIT", 1, 100))
        assert make_gateway(server.port).execute(asked) == (7, b"PONG")
        words = [(number, command[0]) for number, command in server.asked if command[0] != b"PING"]
    assert [word for _, word in words] == [b"EVALSHA", b"WAIT", b"EVAL", b"WAIT"]
    assert words[2][0] == words[3][0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-ERR no such luck\r\n", redis.ResponseError),
        (b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n", RedisAccessError),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", RedisMemoryError),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", ConfigurationError),
    ],
)
@pytest.mark.parametrize("retry", [True, False])
def test_what_does_not_pass_is_raised_at_once(
    make_gateway: MakeGateway, answer: bytes, error: type[Exception], retry: bool
) -> None:
    with answering(forever=answer) as server:
        gateway = make_gateway(server.port)
        with pytest.raises(error):
            gateway.execute(call(), retry=retry)
        assert server.scripts == ["EVALSHA"]


def test_the_budget_bounds_the_retries(make_gateway: MakeGateway) -> None:
    with answering(forever=PASSING[0]) as server:
        gateway = make_gateway(server.port, retry_budget_seconds=0.4, retry_max_delay_seconds=5)
        begun = time.monotonic()
        with pytest.raises(RedisRefusedError, match=r"retried for 0\.4 s") as caught:
            gateway.execute(call())
        assert 0.4 <= time.monotonic() - begun < AT_ONCE_SECONDS
        assert len(server.scripts) >= 2
    assert isinstance(caught.value, redis.RedisError)


def test_no_budget_means_no_retry(make_gateway: MakeGateway) -> None:
    with answering(forever=PASSING[0]) as server:
        with pytest.raises(RedisRefusedError, match="retried for 0 s"):
            make_gateway(server.port, retry_budget_seconds=0).execute(call())
        assert len(server.scripts) == 1


def test_a_server_never_reached_is_reported_at_once(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(free_port())
    begun = time.monotonic()
    with pytest.raises(RedisUnavailableError) as caught:
        gateway.execute(call())
    assert time.monotonic() - begun < AT_ONCE_SECONDS
    assert not isinstance(caught.value, RetryBudgetExhaustedError)


def test_the_clients_own_retries_do_not_repeat_a_call(make_gateway: MakeGateway) -> None:
    """Else a repetition would tell the age of the first attempt."""
    with answering(*[b""] * 3) as server:
        gateway, notes = make_gateway(server.port, client_retries=7), []
        assert gateway.execute(call(), on_retry=notes.append) == 1
        assert (len(server.scripts), len(notes)) == (4, 3)


def test_a_call_sent_ahead_is_repeated_when_its_reply_is_lost(make_gateway: MakeGateway) -> None:
    with answering(b":1\r\n", b"", b":3\r\n") as server:
        gateway = make_gateway(server.port)
        gateway.execute(call())
        asked = Call(load("depth"), (KEYS.pending,), (5,), lambda reply: reply, elapsed_arg=0)
        run, target = running(gateway)
        receive = run(lambda: target.send(asked))
        wait_until(lambda: len(server.scripts) == 2, "sent")
        time.sleep(0.02)  # the age of the call, which the repetition sends
        assert run(receive) == 3
        assert int(server.asked[-1][1][-1]) >= 5 + 20


def test_retries_of_a_call_sent_ahead_are_reported(make_gateway: MakeGateway) -> None:
    notes: list[RetryNote] = []
    with answering(b":1\r\n", b"", b"", b":4\r\n") as server:
        gateway = make_gateway(server.port)
        gateway.execute(call())
        run, target = running(gateway)
        receive = run(lambda: target.send(call(), on_retry=notes.append))
        assert run(receive) == 4
    assert [(note.verb, note.attempt) for note in notes] == [("depth", 1)]


def running(gateway: Any) -> tuple[Callable[[Callable[[], Any]], Any], Any]:
    """Return a runner for the gateway's own thread or loop, and the gateway."""
    if isinstance(gateway, Blocking):
        return gateway._loop_of.run, gateway._target
    return lambda start: start(), gateway


def test_an_old_server_is_not_asked_for_what_it_does_not_know(
    make_gateway: MakeGateway, own_server: RedisServer
) -> None:
    body = depth_call(KEYS)
    behind = Call(body.script, body.keys, body.args, body.decode, then=(b"WAITAOF", 1, 0, 100))
    with own_server.client() as client:
        client.config_resetstat()
        with pytest.raises(ConfigurationError, match=r"7\.2"):
            make_gateway(_port(own_server)).execute(behind)
        assert not {"cmdstat_eval", "cmdstat_evalsha"} & client.info("commandstats").keys()


@pytest.mark.parametrize("away_seconds", [0.0, 1.5])
def test_an_outage_shorter_than_the_budget_is_survived(
    make_gateway: MakeGateway, own_server: RedisServer, away_seconds: float
) -> None:
    gateway = make_gateway(_port(own_server), retry_budget_seconds=100)
    before = gateway.execute(depth_call(KEYS))
    own_server.stop()
    answers: list[Any] = []
    met = threading.Event()
    worker = threading.Thread(
        target=lambda: answers.append(gateway.execute(depth_call(KEYS), on_retry=lambda _: met.set()))
    )
    worker.start()
    assert met.wait(60)
    time.sleep(away_seconds)  # the outage
    assert worker.is_alive()
    own_server.start()
    worker.join(60)
    assert answers == [before]


def test_a_hung_server_holds_one_attempt_a_few_seconds(make_gateway: MakeGateway, own_server: RedisServer) -> None:
    gateway = make_gateway(_port(own_server))
    gateway.execute(depth_call(KEYS), retry=False)
    with own_server.frozen():
        begun = time.monotonic()
        with pytest.raises(RedisUnavailableError):
            gateway.execute(depth_call(KEYS), retry=False)
        assert 4 < time.monotonic() - begun < 14, "15 s are the limit of other calls"


def test_a_wait_survives_the_end_of_its_server(make_gateway: MakeGateway, own_server: RedisServer) -> None:
    gateway, answers = make_gateway(_port(own_server)), []
    waiter = threading.Thread(target=lambda: answers.append(gateway.wait(Wait(KEYS.wakeup, 60), lambda: False)))
    with own_server.client() as client:
        waiter.start()
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "asleep")
    own_server.stop()
    waiter.join(AT_ONCE_SECONDS)
    assert answers == [False]
    own_server.start()
    with own_server.client() as client:
        client.lpush(KEYS.wakeup, "1")
        assert gateway.wait(Wait(KEYS.wakeup, 10)) is True


def _port(server: RedisServer) -> int:
    return int(server.url.rsplit(":", 1)[1].split("/")[0])


def test_a_call_sent_ahead_keeps_no_other_waiting_for_the_only_connection(
    make_gateway: MakeGateway, own_server: RedisServer
) -> None:
    gateway = make_gateway(_port(own_server), query="?max_connections=1", retry_budget_seconds=1)
    gateway.execute(depth_call(KEYS))
    run, target = running(gateway)
    receive = run(lambda: target.send(depth_call(KEYS)))
    assert gateway.execute(depth_call(KEYS)).depth.pending == 0
    assert run(receive).depth.pending == 0


def test_a_signal_handler_may_use_a_gateway_whose_client_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, client, before = RedisGateway(url="redis://127.0.0.1:1/0"), redis.Redis(), []

    def make(_: Address) -> redis.Redis:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        return client

    def use(*_: object) -> None:
        free = threading.Timer(5, os._exit, (1,))  # a lock that it waits for is never given back
        free.start()
        before.append(gateway.client)
        free.cancel()

    monkeypatch.setattr(Address, "client", make)
    handler = signal.signal(signal.SIGUSR1, use)
    try:
        assert gateway.client is client
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert len(before) == 1
