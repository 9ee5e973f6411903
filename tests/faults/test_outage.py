"""Redis away, for a moment or for good, and replies that get lost on the way."""

# ruff: noqa: PT012  (the blocks that raise are what is tested)

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

from sluicegate import LeaseState, RedisMessageQueue
from sluicegate._redis import connection
from sluicegate.core import scripts
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import (
    PublishUnknownError,
    RedisAccessError,
    RedisRefusedError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
)
from tests.support import state
from tests.support.proxy import Proxy, proxied
from tests.support.servers import RedisServer, free_port

MakeQueue = Callable[..., RedisMessageQueue]
SECRET = "s3cr3t"
AFTER_CONTACT = {"retry_budget_seconds": 20, "retry_initial_delay_seconds": 0.01, "retry_max_delay_seconds": 0.1}


# ---------------------------------------------------------------------- never there


@pytest.mark.parametrize("use", ["publish", "claim", "depth", "peek", "process_message"])
def test_redis_not_running(use: str) -> None:
    port = free_port()
    queue = RedisMessageQueue("orders", url=f"redis://ann:{SECRET}@127.0.0.1:{port}/0", **AFTER_CONTACT)
    begun = time.monotonic()
    with pytest.raises(RedisUnavailableError) as caught:
        match use:
            case "publish":
                queue.publish({"secret": SECRET})
            case "process_message":
                with queue.process_message():
                    pytest.fail("there is nothing to process")
            case _:
                getattr(queue, use)()
    assert time.monotonic() - begun < 15
    assert type(caught.value) is RedisUnavailableError, "it was never reached, so nothing is unknown"
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert isinstance(caught.value, redis.ConnectionError), "loops written for redis-py go on"
    assert "check that it runs" in str(caught.value)
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_a_unix_socket_that_is_not_there_is_named(tmp_path: Any) -> None:
    queue = RedisMessageQueue("orders", url=f"unix://{tmp_path}/no.sock")
    with pytest.raises(RedisUnavailableError, match=re.escape(f"unix:{tmp_path}/no.sock")):
        queue.publish("x")


def test_a_host_that_does_not_answer_is_given_up_within_the_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, _full_backlog(deaf):
        queue = RedisMessageQueue("orders", url=f"redis://127.0.0.1:{deaf.getsockname()[1]}/0", **AFTER_CONTACT)
        begun = time.monotonic()
        with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1"):
            queue.publish("x")
        assert 0.25 < time.monotonic() - begun < 15


@contextmanager
def _full_backlog(server: socket.socket) -> Iterator[None]:
    waiting = []
    try:
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(server.getsockname())
            waiting.append(one)
        yield
    finally:
        for one in waiting:
            one.close()


def test_a_wrong_password_is_no_outage(own_server: RedisServer) -> None:
    own_server.client().config_set("requirepass", SECRET)
    queue = RedisMessageQueue("orders", url=f"redis://:wrong-{SECRET}@127.0.0.1:{own_server.port}/0", **AFTER_CONTACT)
    begun = time.monotonic()
    with pytest.raises(RedisAccessError, match=rf"127\.0\.0\.1:{own_server.port} refused access") as caught:
        queue.publish("x")
    assert time.monotonic() - begun < 15
    assert SECRET not in str(caught.value)
    right = RedisMessageQueue("orders", url=f"redis://:{SECRET}@127.0.0.1:{own_server.port}/0")
    assert right.publish("x") is True
    right.close()


# ---------------------------------------------------------------------- away for a moment


@pytest.fixture
def own_queue(own_server: RedisServer) -> Iterator[RedisMessageQueue]:
    """Yield a queue on a server of its own that has been reached."""
    queue = RedisMessageQueue("orders", url=own_server.url, get_deduplication_key="id", **AFTER_CONTACT)
    queue.publish_many({"id": number} for number in range(10))
    yield queue
    queue.close()


@contextmanager
def down(server: RedisServer, *, comes_back: bool = True) -> Iterator[None]:
    """Stop the server for the block's beginning, and start it again while the block runs."""
    server.stop()
    back = threading.Timer(0.3, server.start)
    if comes_back:
        back.start()
    try:
        yield
    finally:
        if comes_back:
            back.join()


def test_an_outage_is_ridden_out(own_server: RedisServer, own_queue: RedisMessageQueue) -> None:
    with down(own_server):
        assert own_queue.publish({"id": 10}) is True
    with down(own_server):
        lease = own_queue.claim(4)
    assert [message.json()["id"] for message in lease.messages] == [0, 1, 2, 3]
    with down(own_server):
        lease.extend()
    with down(own_server):
        lease.ack(lease.messages[:2])
    with down(own_server), lease:
        lease.nack(lease.messages[2])
    with down(own_server):
        depth = own_queue.depth()
    assert (depth.pending, depth.returned, depth.in_flight, depth.published_total) == (7, 1, 0, 11)
    state.check(own_server.client())


def test_a_sleeper_rides_out_an_outage(own_server: RedisServer, own_queue: RedisMessageQueue) -> None:
    own_queue.claim(10).ack()
    got: list[Any] = []
    sleeper = threading.Thread(target=lambda: got.append(own_queue.claim(wait_seconds=20)))
    sleeper.start()
    with down(own_server):
        pass
    own_queue.publish({"id": 11})
    sleeper.join(60)
    assert [message.json() for message in got[0].messages] == [{"id": 11}]


def test_a_server_that_only_reads_is_an_outage(request: pytest.FixtureRequest, server: RedisServer) -> None:
    """A failover leaves clients connected to what has become a replica."""
    replica = RedisServer(server.program, port=free_port()).start()
    request.addfinalizer(replica.remove)
    queue = RedisMessageQueue("orders", url=replica.url, **{**AFTER_CONTACT, "retry_budget_seconds": 0.1})
    queue.publish("a")
    replica.client().execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    for use in (lambda: queue.publish("b"), queue.claim):
        with pytest.raises(RedisRefusedError, match=r"READONLY .* and nothing was changed; it is a replica"):
            use()
    patient = RedisMessageQueue("orders", url=replica.url, **AFTER_CONTACT)
    assert patient.depth().ready == 1
    threading.Timer(0.2, lambda: replica.client().execute_command("REPLICAOF", "NO", "ONE")).start()
    assert patient.publish("c") is True
    assert [message.text() for message in queue.claim(9).messages] == ["a", "c"]
    patient.close()
    queue.close()


def test_a_primary_without_enough_replicas_is_an_outage(server: RedisServer, client: redis.Redis) -> None:
    queue = RedisMessageQueue("orders", url=server.url, **AFTER_CONTACT)
    queue.publish("a")
    client.config_set("min-replicas-to-write", 1)
    threading.Timer(0.2, lambda: client.config_set("min-replicas-to-write", 0)).start()
    assert queue.publish("b") is True
    assert [message.text() for message in queue.claim(9).messages] == ["a", "b"]
    queue.close()


# ---------------------------------------------------------------------- away for longer than the budget


@pytest.fixture
def impatient(own_server: RedisServer) -> Iterator[RedisMessageQueue]:
    queue = RedisMessageQueue(
        "orders",
        url=own_server.url,
        get_deduplication_key="id",
        retry_budget_seconds=0.1,
        deduplication_window_seconds=3600,
    )
    queue.publish({"id": 0})
    yield queue
    queue.close()


def test_an_unknown_publish_can_be_asked_for_again(own_server: RedisServer, impatient: RedisMessageQueue) -> None:
    with down(own_server, comes_back=False), pytest.raises(PublishUnknownError) as caught:
        impatient.publish_many([{"id": 1}, {"id": 0}, {"id": 2}])
    unknown = caught.value
    assert len(unknown.ids) == len(set(unknown.ids)) == 3
    assert len(unknown.calls) == 1
    assert f"127.0.0.1:{own_server.port}" in str(unknown)
    with pytest.raises(PublishUnknownError) as still:
        impatient.publish_again(unknown)
    assert still.value.ids == unknown.ids
    own_server.start()
    for _ in range(3):
        report = impatient.publish_again(still.value)
        assert (report.accepted, report.duplicates, tuple(report.ids)) == (2, 1, unknown.ids)
        assert report.duplicate_of[0] is report.duplicate_of[2] is None
    assert impatient.depth().pending == 3


def test_an_unknown_publish_that_is_too_old_is_refused(
    own_server: RedisServer, impatient: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluicegate import publisher as module

    with down(own_server, comes_back=False), pytest.raises(PublishUnknownError) as caught:
        impatient.publish({"id": 1})
    own_server.start()
    now = module.elapsed_clock
    monkeypatch.setattr(module, "elapsed_clock", lambda: now() + 3241)
    with pytest.raises(PublishUnknownError, match="could publish them twice") as late:
        impatient.publish_again(caught.value)
    assert late.value.calls == ()
    with pytest.raises(PublishUnknownError):
        impatient.publish_again(late.value)
    assert impatient.depth().pending == 1


def test_a_settle_that_could_not_be_sent_is_sent_again(own_server: RedisServer, impatient: RedisMessageQueue) -> None:
    lease = impatient.claim()
    with down(own_server, comes_back=False), pytest.raises(RetryBudgetExhaustedError):
        lease.ack()
    assert lease.counts.acked == 0
    own_server.start()
    lease.ack()
    assert lease.counts.acked == 1
    assert impatient.depth().in_flight == 0


def test_a_block_that_raises_keeps_its_error_when_redis_is_away(
    own_server: RedisServer, impatient: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), impatient.claim() as lease:
        own_server.stop()
        _ = 1 / 0
    assert lease
    assert "could not be settled after its block failed" in caplog.text


def test_a_budget_of_zero_does_not_retry(own_server: RedisServer) -> None:
    queue = RedisMessageQueue("orders", url=own_server.url, retry_budget_seconds=0)
    queue.publish("a")
    own_server.stop()
    begun = time.monotonic()
    with pytest.raises(PublishUnknownError):
        queue.publish("b")
    assert time.monotonic() - begun < 60
    queue.close()


# ---------------------------------------------------------------------- lost replies


@pytest.fixture
def proxy(own_server: RedisServer) -> Iterator[Proxy]:
    for (
        script
    ) in scripts.load_all().values():  # the reply that gets lost shall not be the one that a script is not known
        own_server.client().script_load(script.text)
    with proxied(own_server.port) as made:
        yield made


@pytest.fixture(params=["ours", "redis-py's"])
def lossy(
    request: pytest.FixtureRequest, proxy: Proxy, own_server: RedisServer
) -> Iterator[Callable[..., RedisMessageQueue]]:
    """Queues behind the proxy, retried by our gateway alone or by redis-py below it too."""
    retry = Retry(NoBackoff(), 0) if request.param == "ours" else Retry(ConstantBackoff(0.01), 3)
    client = redis.Redis(port=proxy.port, retry=retry, socket_timeout=20)
    yield lambda **options: RedisMessageQueue("orders", client=client, **{**AFTER_CONTACT, **options})
    client.close()
    state.check(own_server.client())


@pytest.mark.parametrize("losses", [1, 2, 5])
@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
@pytest.mark.parametrize("window", [3600, 0.05], ids=["long window", "short window"])
def test_a_lost_reply_never_doubles_a_publish(
    lossy: MakeQueue, proxy: Proxy, losses: int, key: str | None, window: float
) -> None:
    queue = lossy(get_deduplication_key=key, deduplication_window_seconds=window)
    queue.depth()
    proxy.lose(losses)
    report = queue.publish_many({"id": number} for number in range(3))
    assert proxy.lost == losses
    assert (report.accepted, report.duplicates) == (3, 0)
    assert [message.id for message in queue.peek()] == report.ids
    assert queue.depth().published_total == 3


def test_a_lost_reply_does_not_lose_a_claim(lossy: MakeQueue, proxy: Proxy) -> None:
    queue = lossy()
    queue.publish_many("abc")
    proxy.lose(2)
    lease = queue.claim(2)
    assert proxy.lost == 2
    assert [message.text() for message in lease.messages] == ["a", "b"]
    assert [message.delivery_count for message in lease.messages] == [1, 1]
    depth = queue.depth()
    assert (depth.pending, depth.in_flight, depth.leases, depth.claimed_total) == (1, 2, 1, 2)


def test_a_lost_reply_does_not_take_over_twice(lossy: MakeQueue, proxy: Proxy) -> None:
    queue = lossy()
    queue.publish("a")
    queue.claim(lease_id="run-1")
    proxy.lose(3)
    heir = queue.claim(lease_id="run-1", take_over_after_seconds=0)
    assert (heir.state, heir.takeovers) == (LeaseState.OPEN, 1)


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_lost_reply_does_not_settle_twice(lossy: MakeQueue, proxy: Proxy, verb: str, limit: int) -> None:
    queue = lossy()
    queue.publish_many("abc")
    lease = queue.claim(limit)
    proxy.lose(2)
    getattr(lease, verb)()
    assert proxy.lost == 2
    assert lease.counts.acked + lease.counts.returned + lease.counts.buried == limit
    assert not lease.lost
    depth = queue.depth()
    assert (depth.in_flight, depth.leases) == (0, 0)
    assert depth.pending + depth.returned + depth.dead == (3 - limit if verb == "ack" else 3)
    if verb == "nack":
        assert queue.peek(state="returned")[0].delivery_count == 1


def test_a_lost_reply_to_a_reap_or_promote_moves_nothing_twice(
    lossy: MakeQueue, proxy: Proxy, own_server: RedisServer
) -> None:
    queue = lossy()
    queue.publish_many("abcd")
    queue.claim(1).nack(delay_seconds=1000)
    queue.claim(2)
    state.expire(own_server.client(), "orders")
    state.fall_due(own_server.client(), "orders")
    proxy.lose(4)
    first = queue.claim(1)
    assert [message.text() for message in first.messages] == ["a"]
    depth = queue.depth()
    assert (depth.pending, depth.returned, depth.in_flight) == (1, 2, 1)


def test_a_publish_whose_reply_is_lost_for_good_is_unknown_and_then_found_done(
    proxy: Proxy, own_server: RedisServer
) -> None:
    queue = RedisMessageQueue("orders", url=f"redis://127.0.0.1:{proxy.port}/0", retry_budget_seconds=0.1)
    queue.depth()
    proxy.lose(1, then_refuse=True)
    with pytest.raises(PublishUnknownError) as caught:
        queue.publish("a")
    assert own_server.client().llen(QueueKeys("orders").pending) == 1, "it was executed all the same"
    proxy.lose(0)
    report = queue.publish_again(caught.value)
    assert (report.accepted, tuple(report.ids)) == (1, caught.value.ids)
    assert queue.depth().published_total == 1
    queue.close()


# ---------------------------------------------------------------------- processes


def test_a_forked_child_uses_its_own_connections(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_many("ab")
    lease = queue.claim(1, lease_seconds=60)
    lease.start_heartbeat()

    def child() -> None:
        with queue.claim(1, lease_seconds=60) as mine:
            assert [message.text() for message in mine.messages] == ["b"]
        queue.publish("c")
        os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 7
    lease.extend()
    lease.stop_heartbeat()
    lease.ack()
    assert [message.text() for message in queue.claim(5).messages] == ["c"]
    assert client.ping()
