"""What a server refuses before it begins, and first contact: only where nobody answers is a call given up at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate._gateway_base import RetryNote
from sluicegate._redis.compat import CONNECTION_FOR
from sluicegate.asyncio import RedisMessageQueue as AsyncRedisMessageQueue
from sluicegate.core.call import Call
from sluicegate.core.scripts import load
from sluicegate.core.transitions.depth import depth_call
from sluicegate.errors import RedisRefusedError, RedisUnavailableError, RetryBudgetExhaustedError
from sluicegate.events import EventOutcome, QueueEvent
from sluicegate.gateway import RedisGateway
from sluicegate.lease import LeaseHeartbeat
from tests.faults.conftest import MakeGateway
from tests.faults.test_gateways import KEYS, REFUSALS, call, running
from tests.support.scripted_server import answering, masters
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import wait_until


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error[1:14].decode().strip())
def test_a_refusal_that_outlasts_the_budget_says_what_and_that_nothing_was_changed(
    make_gateway: MakeGateway, error: bytes
) -> None:
    said = error.decode().strip().removeprefix("-").removeprefix("ERR ").rstrip(".")
    with answering(forever=error) as server, pytest.raises(RedisRefusedError) as caught:
        make_gateway(server.port, retry_budget_seconds=0.02).execute(call())
    assert "nothing was changed" in str(caught.value)
    assert said in str(caught.value)
    assert not isinstance(caught.value, RetryBudgetExhaustedError)
    assert isinstance(caught.value, redis.ResponseError)


@pytest.mark.parametrize("error", [REFUSALS[0], REFUSALS[3]], ids=["READONLY", "LOADING"])
def test_a_refusal_after_a_lost_reply_leaves_open_what_the_lost_one_did(
    make_gateway: MakeGateway, error: bytes
) -> None:
    with answering(b"", forever=None) as server:
        gateway = make_gateway(server.port, retry_budget_seconds=0.4)
        server.answers += [error] * 1000
        with pytest.raises(RetryBudgetExhaustedError, match=r"after an attempt whose outcome is unknown"):
            gateway.execute(call())


def test_a_refusal_after_a_call_sent_ahead_was_lost_leaves_that_open(make_gateway: MakeGateway) -> None:
    with answering(b":1\r\n", b"", *[REFUSALS[0]] * 1000) as server:
        gateway = make_gateway(server.port, retry_budget_seconds=0.1)
        gateway.execute(call())
        run, target = running(gateway)
        receive = run(lambda: target.send(call()))
        with pytest.raises(RetryBudgetExhaustedError, match="unknown"):
            run(receive)


def test_a_refusal_of_what_follows_a_script_leaves_open_nothing_but_says_so(make_gateway: MakeGateway) -> None:
    """The script itself was executed."""
    with answering() as server:
        server.others += [b"+PONG\r\n", *[REFUSALS[0]] * 1000]
        asked = Call(load("depth"), (KEYS.pending,), (), lambda reply: reply, then=(b"WAIT", 1, 100))
        with pytest.raises(RetryBudgetExhaustedError, match="read only"):
            make_gateway(server.port, retry_budget_seconds=0.1).execute(asked)


@pytest.mark.parametrize(
    "error",
    [
        b"-ERR max request size exceeded. Limit: 1048576 bytes\r\n",
        b"-ERR max daily request limit exceeded script: f_1, on @user_script:9.\r\n",  # in its middle
    ],
)
def test_what_no_time_helps_or_may_have_begun_is_no_refusal(make_gateway: MakeGateway, error: bytes) -> None:
    with answering(forever=error) as server:
        with pytest.raises(redis.ResponseError) as caught:
            make_gateway(server.port).execute(call())
        assert len(server.scripts) == 1
    assert not isinstance(caught.value, RedisUnavailableError)


# ---------------------------------------------------------------------- first contact


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error[1:14].decode().strip())
def test_a_server_that_answers_the_first_ping_with_an_error_was_reached(
    make_gateway: MakeGateway, error: bytes
) -> None:
    with answering(error) as server:
        server.others.append(error)
        assert make_gateway(server.port).execute(call()) == 1
        assert server.scripts == ["EVALSHA"] * 2


@pytest.mark.parametrize("answer", [b"-BUSY Redis is busy running a script.\r\n", b""], ids=["busy", "cut"])
def test_a_server_that_fails_in_the_handshake_is_tried_again(make_gateway: MakeGateway, answer: bytes) -> None:
    notes: list[RetryNote] = []
    with answering() as server:
        server.others += [answer, answer, b"+OK\r\n"]
        gateway = make_gateway(server.port, database=1)
        assert gateway.execute(call(), on_retry=notes.append) == 1
    assert len(notes) == 2


def test_a_handshake_that_fails_for_the_whole_budget_names_what_was_said(make_gateway: MakeGateway) -> None:
    with answering() as server:
        server.others += [b"-BUSY Redis is busy running a script.\r\n"] * 1000
        with pytest.raises(RedisRefusedError, match="BUSY Redis is busy"):
            make_gateway(server.port, database=1, retry_budget_seconds=0.1).execute(call())
        assert server.scripts == []


def test_after_any_answer_an_outage_is_ridden_out(make_gateway: MakeGateway, own_server: RedisServer) -> None:
    """The server answers once that it is busy, and is gone the next moment."""
    gateway, port = make_gateway(own_server.port, database=1, retry_budget_seconds=30), own_server.port
    own_server.stop()
    with answering(port=port) as server:
        server.others += [b"-BUSY Redis is busy running a script.\r\n"] * 1000
        with pytest.raises(RedisRefusedError):
            gateway.execute(depth_call(KEYS), retry=False)
    met = threading.Event()
    answers: list[Any] = []
    worker = threading.Thread(
        target=lambda: answers.append(gateway.execute(depth_call(KEYS), on_retry=lambda _: met.set()))
    )
    worker.start()
    assert met.wait(60)
    own_server.start()
    worker.join(60)
    assert answers[0].depth.pending == 0


@pytest.mark.parametrize("place", ["redis+sentinel://{}/gate", "redis+cluster://{}"], ids=["Sentinel", "cluster"])
def test_where_none_of_several_servers_answers_a_call_fails_at_once(make_gateway: MakeGateway, place: str) -> None:
    notes: list[RetryNote] = []
    gateway = make_gateway(0, url=place.format(f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"))
    with pytest.raises(RedisUnavailableError, match="cannot be reached") as caught:
        gateway.execute(call(), on_retry=notes.append)
    assert type(caught.value) is RedisUnavailableError
    assert notes == []


def test_the_password_of_a_sentinel_that_cannot_be_asked_is_not_shown(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTINEL_SECRET", "s3cr3t")
    where = f"redis+sentinel://127.0.0.1:{free_port()}/gate?sentinel_password_env=SENTINEL_SECRET"
    with pytest.raises(RedisUnavailableError, match="No master found for 'gate'") as caught:
        make_gateway(0, url=where).execute(call())
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


def test_one_sentinel_that_answers_is_asked_until_it_names_a_primary(make_gateway: MakeGateway) -> None:
    notes: list[RetryNote] = []
    with answering() as sentinel, answering() as primary:
        sentinel.others += [b"*0\r\n", b"*0\r\n", *[masters(primary.port)] * 9]
        gateway = make_gateway(0, url=f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/gate")
        assert gateway.execute(call(), on_retry=notes.append) == 1
    assert len(notes) == 2


def test_a_primary_that_sentinels_name_and_nobody_reaches_is_waited_for(make_gateway: MakeGateway) -> None:
    notes: list[RetryNote] = []
    with answering() as sentinel, answering() as primary:
        sentinel.others += [masters(free_port()), *[masters(primary.port)] * 9]
        gateway = make_gateway(0, url=f"redis+sentinel://127.0.0.1:{sentinel.port}/gate")
        assert gateway.execute(call(), on_retry=notes.append) == 1
    assert len(notes) == 1


@pytest.mark.parametrize("error", [REFUSALS[3], REFUSALS[7]], ids=["LOADING", "BUSY"])
def test_a_cluster_whose_nodes_are_not_ready_is_waited_for(make_gateway: MakeGateway, error: bytes) -> None:
    notes: list[RetryNote] = []
    with answering() as node:
        node.cluster += [error, error]
        gateway = make_gateway(0, url=f"redis+cluster://127.0.0.1:{node.port}")
        assert gateway.execute(call(), on_retry=notes.append) == 1
    assert len(notes) == 2


def test_a_server_that_is_no_cluster_is_not_asked_again(make_gateway: MakeGateway, own_server: RedisServer) -> None:
    notes: list[RetryNote] = []
    with pytest.raises(RedisUnavailableError, match=r"[Cc]luster"):
        make_gateway(0, url=f"redis+cluster://127.0.0.1:{own_server.port}").execute(call(), on_retry=notes.append)
    assert notes == []


# ---------------------------------------------------------------------- no connection free


def test_threads_that_share_the_only_connection_wait_for_each_other(own_server: RedisServer) -> None:
    queue = RedisMessageQueue("orders", url=f"{own_server.url}?max_connections=1")
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(queue.publish, map(str, range(80))))
    assert queue.depth().pending == 80
    queue.close()


@pytest.mark.full  # threads on one connection stand for it in the quick lane
def test_tasks_beyond_the_connections_of_a_fresh_queue_wait_for_each_other(own_server: RedisServer) -> None:
    async def main() -> None:
        queue = AsyncRedisMessageQueue("orders", url=f"{own_server.url}?max_connections=10")
        assert all(await asyncio.gather(*(queue.publish(str(number)) for number in range(101))))
        assert (await queue.depth()).pending == 101
        await queue.aclose()

    asyncio.run(main())


def test_a_pool_that_blocks_and_gives_up_is_asked_again(own_server: RedisServer) -> None:
    pool = redis.BlockingConnectionPool(port=own_server.port, max_connections=1, timeout=0.05)
    gateway, met = RedisGateway(redis_client=redis.Redis(connection_pool=pool)), threading.Event()
    held = pool.get_connection(*CONNECTION_FOR)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(gateway.execute, depth_call(KEYS), on_retry=lambda _: met.set())
        assert met.wait(60)
        pool.release(held)
        assert running.result(60).depth.pending == 0
    pool.disconnect()


@pytest.mark.parametrize("blocking", [False, True], ids=["at once", "after a wait"])
@pytest.mark.parametrize("reached", [False, True], ids=["fresh", "reached"])
def test_a_pool_without_a_free_connection_for_the_whole_budget_is_named(
    own_server: RedisServer, blocking: bool, reached: bool
) -> None:
    options: dict[str, Any] = {"port": own_server.port, "max_connections": 1}
    pool = redis.BlockingConnectionPool(timeout=0.05, **options) if blocking else redis.ConnectionPool(**options)
    queue = RedisMessageQueue("orders", client=redis.Redis(connection_pool=pool), retry_budget_seconds=0.2)
    if reached:
        queue.depth()
    held = pool.get_connection(*CONNECTION_FOR)
    with pytest.raises(RedisUnavailableError, match=r"came free .* nothing was sent.* max_connections") as caught:
        queue.publish("x")
    assert type(caught.value) is RedisUnavailableError
    pool.release(held)
    assert queue.publish("x") is True
    pool.disconnect()


# ---------------------------------------------------------------------- a server that cannot save


@contextlib.contextmanager
def unable_to_save(server: RedisServer) -> Iterator[redis.Redis]:
    """Its snapshot cannot take its name; what it holds can only be looked at."""
    in_the_way = Path(server.folder) / "dump.rdb"
    in_the_way.mkdir()
    with server.client() as client:
        client.config_set("save", "3600 1")
        _save(client, "err")
        try:
            yield client
        finally:
            if in_the_way.is_dir():
                able_to_save(server, client)


def able_to_save(server: RedisServer, client: redis.Redis) -> None:
    (Path(server.folder) / "dump.rdb").rmdir()
    _save(client, "ok")


def _save(client: redis.Redis, ends: str) -> None:
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == ends, f"a snapshot that is {ends}")


@pytest.fixture
def snapshots(server: RedisServer) -> Iterator[RedisServer]:
    """Yield a server of its own, of each program, that keeps snapshots."""
    own = RedisServer(server.program, port=free_port())
    try:
        yield own.start()
    finally:
        own.remove()


def test_a_consumer_rides_out_a_server_that_cannot_save(snapshots: RedisServer) -> None:
    """What it finished is acked in the end and not repeated, and it continues with the rest."""
    notes: list[QueueEvent] = []
    done: list[Any] = []
    queue = RedisMessageQueue("orders", url=snapshots.url, on_event=notes.append, retry_max_delay_seconds=0.05)
    queue.publish_many("abc")

    def work() -> None:
        for _ in range(3):
            with queue.process_message() as payload:
                done.append(payload)
                working.set()
                failing.wait(60)

    working, failing = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        consumer = threads.submit(work)
        assert working.wait(60)
        with unable_to_save(snapshots) as client:
            failing.set()
            wait_until(lambda: sum(note.outcome == EventOutcome.RETRY for note in notes) >= 3, "refused verdicts")
            assert queue.depth().in_flight == 1, "what only looks is not refused"
            able_to_save(snapshots, client)
        consumer.result(60)
    assert done == [b"a", b"b", b"c"]
    assert (queue.depth().in_flight, queue.depth().ready) == (0, 0)
    queue.close()


def test_a_fresh_queue_rides_it_out_and_then_says_that_nothing_was_changed(snapshots: RedisServer) -> None:
    """Its first PING is refused as well."""
    hasty = RedisMessageQueue("orders", url=snapshots.url, retry_budget_seconds=0.1)
    with unable_to_save(snapshots) as client:
        for use in (lambda: hasty.publish("x"), hasty.claim):
            with pytest.raises(RedisRefusedError, match=r"MISCONF .* and nothing was changed; give the server room"):
                use()
        assert RedisMessageQueue("orders", url=snapshots.url).depth().ready == 0
        patient, met = RedisMessageQueue("orders", url=snapshots.url, on_event=lambda _: met.set()), threading.Event()
        with ThreadPoolExecutor(1) as threads:
            publish = threads.submit(patient.publish, "y")
            assert met.wait(60)
            able_to_save(snapshots, client)
            assert publish.result(60) is True
    assert [message.text() for message in hasty.claim(9).messages] == ["y"]
    patient.close()
    hasty.close()


def test_a_waiting_consumer_and_a_heartbeat_outlast_it(snapshots: RedisServer) -> None:
    queue = RedisMessageQueue("orders", url=snapshots.url, retry_max_delay_seconds=0.05)
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    with ThreadPoolExecutor(1) as threads, unable_to_save(snapshots) as client:
        waiting = threads.submit(queue.claim, wait_seconds=20)
        assert LeaseHeartbeat(lease._session, lease._batch, 20).beat() is not None, "it beats again"
        able_to_save(snapshots, client)
        queue.publish("b")
        assert [message.text() for message in waiting.result(60).messages] == ["b"]
    lease.ack()
    queue.close()
