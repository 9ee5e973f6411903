"""A queue object keeps working in a forked child, with its own connections and heartbeats."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Lease, RedisMessageQueue, heartbeat
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]
DEADLINE_SECONDS = 60.0


class Child:
    """A forked process that runs a function and reports what it returned."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            reported = {"error": "nothing was told"}
            try:
                reported = {"result": function()}
            except BaseException:
                reported = {"error": traceback.format_exc()}
            finally:
                os.write(writer, json.dumps(reported).encode())
                os._exit(0)  # neither pytest nor its fixtures continue in the child
        os.close(writer)

    def result(self) -> Any:
        """Wait for the child to end and return what its function returned."""
        killer = threading.Timer(DEADLINE_SECONDS, os.kill, (self.pid, signal.SIGKILL))
        killer.start()
        with os.fdopen(self._reader) as pipe:
            reported = json.loads(pipe.read() or '{"error": "the child hung, or died"}')
        os.waitpid(self.pid, 0)
        killer.cancel()
        assert "error" not in reported, reported["error"]
        return reported["result"]


def work(queue: RedisMessageQueue, name: str, rounds: int = 50) -> list[str]:
    """Publish, claim and ack, one message after the other; the texts that were acked."""
    acked = []
    for number in range(rounds):
        assert queue.publish(f"{name}-{number}")
        with queue.claim(wait_seconds=5) as lease:
            acked += [message.text() for message in lease]
    return acked


def beat(lease: Lease) -> None:
    """Send one heartbeat now."""
    assert lease._heartbeat is not None
    lease._heartbeat.beat()


def connections(client: redis.Redis) -> dict[str, str]:
    """Connections of a server: id to what names their socket."""
    return {each["id"]: each["addr"] + each["fd"] for each in client.client_list()}


@pytest.fixture(params=["url", "client"])
def queue(request: pytest.FixtureRequest, own_server: RedisServer) -> Iterator[RedisMessageQueue]:
    """Yield a queue that was used, so that it has connections: for calls, for waits and for heartbeats."""
    options: dict[str, Any] = {"url": own_server.url} if request.param == "url" else {"client": own_server.client()}
    made = RedisMessageQueue("orders", **options)
    work(made, "before", 2)
    assert not made.claim(wait_seconds=0.01)
    made.publish("beaten for")
    with made.claim() as lease:
        beat(lease)
    yield made
    made.close()


@pytest.fixture
def client(own_server: RedisServer) -> Iterator[redis.Redis]:
    with own_server.client() as made:
        yield made


def test_parent_and_child_work_at_the_same_time(queue: RedisMessageQueue) -> None:
    child = Child(lambda: work(queue, "child"))
    acked = work(queue, "parent")
    acked += child.result()
    assert sorted(acked) == sorted(f"{name}-{number}" for name in ("parent", "child") for number in range(50))
    assert queue.depth().ready == 0


def test_the_connections_of_the_parent_stay_untouched(
    queue: RedisMessageQueue, own_server: RedisServer, client: redis.Redis
) -> None:
    before = connections(client)
    sent = {each["id"]: each["tot-cmds"] for each in client.client_list() if "tot-cmds" in each}

    def in_child() -> list[str]:
        work(queue, "child", 3)
        assert not queue.claim(wait_seconds=0.01)
        queue.publish("beaten for")
        with queue.claim() as lease:
            beat(lease)
        with own_server.client() as looking:
            during = connections(looking)
        queue.close()
        return sorted(during.keys() - before.keys())

    fresh = Child(in_child).result()
    assert len(fresh) >= 2, "the child connected anew"
    after = connections(client)
    assert after == before, "each lives, and is used by whom it was"
    own = client.client_id()
    now = {each["id"]: each["tot-cmds"] for each in client.client_list() if "tot-cmds" in each}
    assert [name for name in before if int(name) != own and now.get(name) != sent.get(name)] == []
    assert work(queue, "parent", 3) == ["parent-0", "parent-1", "parent-2"]
    assert connections(client).keys() <= before.keys(), "and is used again"


def test_a_child_has_no_heartbeat_until_it_needs_one(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    with queue.claim(lease_seconds=60) as lease:
        assert lease._heartbeat in heartbeat.scheduler()._due

        def in_child() -> list[Any]:
            mine = heartbeat.scheduler()
            names = [thread.name for thread in threading.enumerate()]
            return [
                len(mine._due),
                mine._workers._thread is None,
                [name for name in names if name.startswith("sluicegate")],
            ]

        assert Child(in_child).result() == [0, True, []]


def deadlines(queue: RedisMessageQueue, client: redis.Redis) -> dict[bytes, float]:
    return dict(client.zrange(queue.key.leases, 0, -1, withscores=True))


def test_a_lease_of_the_parent_is_not_extended_by_the_child(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    lease.start_heartbeat(0.05)
    (parents,) = deadlines(queue, client)
    reader, writer = os.pipe()

    def in_child() -> None:
        queue.publish("b")
        with queue.claim(lease_seconds=60) as mine:
            mine.start_heartbeat(0.05)
            assert mine.messages[0].text() == "b"
            os.read(reader, 1)

    child = Child(in_child)
    wait_until(lambda: queue.depth().in_flight == 2, "both hold a message")
    lease.stop_heartbeat()
    before = deadlines(queue, client)
    (childs,) = before.keys() - {parents}
    wait_until(lambda: deadlines(queue, client)[childs] > before[childs] + 300, "the child's heartbeat runs")
    assert deadlines(queue, client)[parents] == before[parents]
    client.zadd(queue.key.leases, {parents: 1})
    back = RedisMessageQueue("orders", gateway=queue.session.runner.gateway).claim()
    assert back.messages[0].text() == "a"
    assert queue.depth().in_flight == 2, "the child keeps its own"
    os.write(writer, b"x")
    child.result()
    back.ack()
    assert queue.depth().in_flight == 0


def test_the_heartbeat_of_a_child_keeps_its_lease(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    reader, writer = os.pipe()

    def in_child() -> int:
        with queue.claim(lease_seconds=60) as lease:
            lease.start_heartbeat(0.05)
            os.read(reader, 1)
        return lease.counts.acked

    child = Child(in_child)
    wait_until(lambda: queue.depth().in_flight == 1, "the child holds it")
    (name,) = deadlines(queue, client)

    def extended_after(deadline: float) -> None:
        wait_until(lambda: deadlines(queue, client)[name] > deadline, "a beat extends the lease")

    for _ in range(6):  # two leases' time passes at the server
        extended_after(client.zincrby(queue.key.leases, -20_000, name))
        assert not queue.claim()
    os.write(writer, b"x")
    assert child.result() == 1


def test_a_child_that_leaves_the_block_of_its_parent_does_not_hang(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    lease.start_heartbeat(0.01)

    def in_child() -> int:
        lease.stop_heartbeat()
        lease.ack()
        return lease.counts.acked

    assert Child(in_child).result() == 1
    assert queue.depth().in_flight == 0
    lease.stop_heartbeat()


def test_a_fork_in_the_midst_of_what_other_threads_do(queue: RedisMessageQueue) -> None:
    stop = threading.Event()
    failures = list[BaseException]()

    def busy(name: str) -> None:
        try:
            while not stop.is_set():
                queue.publish(name)
                with queue.claim(lease_seconds=30) as lease:
                    lease.start_heartbeat(0.001)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy, args=(f"thread-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert Child(lambda: len(work(queue, "child", 5)) <= 5).result() is True
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


@contextmanager
def started(process: Any) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.join(DEADLINE_SECONDS)
        process.kill()


def test_a_forked_worker_of_multiprocessing(queue: RedisMessageQueue) -> None:
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    workers = [
        context.Process(target=lambda name=name: answers.put(work(queue, name, 20))) for name in ("first", "second")
    ]
    with started(workers[0]), started(workers[1]):
        acked = work(queue, "parent", 20) + answers.get() + answers.get()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert sorted(acked) == sorted(f"{name}-{at}" for name in ("parent", "first", "second") for at in range(20))
