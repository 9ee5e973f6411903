"""`drain` and `close`: a queue object stops publishing and claiming, and releases what it holds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.core import scripts
from sluicegate.errors import ConfigurationError, LeaseLostError, QueueBackpressureError, QueueDrainedError
from sluicegate.events import QueueEvent
from tests.support import state
from tests.support.holding import Holding, holding
from tests.support.servers import RedisServer
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

MakeQueue = Callable[..., RedisMessageQueue]
T = TypeVar("T")
ENDS = ("drain", "shutdown", "close")


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def elsewhere(use: Callable[[], T]) -> T:
    """Do something in a thread of its own that ends."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(use).result(60)


def blocked(client: redis.Redis) -> bool:
    return bool(client.info("clients")["blocked_clients"])


def places(client: redis.Redis) -> dict[str, int]:
    found = state.contents(client, "orders").ids()
    return {where: len(messages) for where, messages in found.items() if messages}


# ---------------------------------------------------------------------- what stops


@pytest.mark.parametrize("end", ENDS)
def test_it_publishes_and_claims_no_more(make_queue: MakeQueue, client: redis.Redis, end: str) -> None:
    queue, other = make_queue(), make_queue()
    queue.publish("a")
    getattr(queue, end)()
    for use in (lambda: queue.publish("b"), lambda: queue.publish_many("bc"), lambda: list(queue.publish_chunks("b"))):
        with pytest.raises(QueueDrainedError, match="'orders' was drained"):
            use()
    client.config_resetstat()
    assert not queue.claim(wait_seconds=60)
    with queue.process_message() as payload:
        assert payload is None
    assert queue.process_message_callback(pytest.fail) is False
    assert "cmdstat_evalsha" not in client.info("commandstats"), "it does not even ask"
    assert queue.depth().pending == 1, "looking is allowed"
    assert other.publish("b"), "other objects are not touched"
    assert len(other.claim(5)) == 2


@pytest.mark.parametrize("end", ENDS)
def test_a_claim_that_waits_ends_at_once(
    make_queue: MakeQueue, client: redis.Redis, others: ThreadPoolExecutor, end: str
) -> None:
    queue = make_queue()
    waiting = others.submit(queue.claim, wait_seconds=60)
    wait_until(lambda: blocked(client), "it waits")
    begun = time.monotonic()
    getattr(queue, end)()
    assert not waiting.result(60)
    assert time.monotonic() - begun < AT_ONCE_SECONDS


@pytest.mark.parametrize("end", ENDS)
def test_a_publish_that_waits_for_room_ends_at_once(
    make_queue: MakeQueue, others: ThreadPoolExecutor, client: redis.Redis, end: str
) -> None:
    queue = make_queue(max_pending_length=1, pending_overload_policy="block", pending_overload_block_timeout_seconds=60)
    queue.publish("a")
    client.config_resetstat()
    waiting = others.submit(queue.publish, "b")
    wait_until(lambda: client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] > 2, "it waits")
    begun = time.monotonic()
    getattr(queue, end)()
    with pytest.raises(QueueBackpressureError, match="is stopping"):
        waiting.result(60)
    assert time.monotonic() - begun < AT_ONCE_SECONDS
    assert places(client) == {"pending": 1}


@pytest.fixture
def proxy(server: RedisServer, client: redis.Redis) -> Iterator[Holding]:
    for name in scripts.NAMES:
        client.script_load(scripts.load(name).text.decode())
    with holding(server.socket) as made:
        yield made


@pytest.mark.parametrize("end", ENDS)
def test_a_claim_that_was_under_way_gives_back_what_it_took(
    make_queue: MakeQueue, client: redis.Redis, proxy: Holding, others: ThreadPoolExecutor, end: str
) -> None:
    queue = make_queue(url=proxy.url)
    queue.publish_many("ab")
    held = proxy.hold("claim", "reply")
    claim = others.submit(queue.claim, 2)
    assert held.reached.wait(60)
    getattr(queue, end)()
    held.go()
    assert not claim.result(60)
    assert places(client) == {"returned": 2}
    assert [message.delivery_count for message in make_queue().claim(2).messages] == [1, 1]


@pytest.mark.parametrize("end", ["drain", "shutdown"])
def test_a_publish_that_was_under_way_is_waited_for(
    make_queue: MakeQueue, client: redis.Redis, proxy: Holding, others: ThreadPoolExecutor, end: str
) -> None:
    queue = make_queue(url=proxy.url)
    queue.depth()
    held = proxy.hold("publish_to_stream" if queue.session.keys.group else "publish", "reply")
    publish = others.submit(queue.publish, "a")
    assert held.reached.wait(60)
    assert queue.drain(0) is False
    threading.Timer(0.2, held.go).start()
    assert getattr(queue, end)(20) is True
    assert publish.result(60) is True


# ---------------------------------------------------------------------- a block


def test_a_block_closes_its_queue_at_the_end(make_queue: MakeQueue, client: redis.Redis) -> None:
    with make_queue() as queue:
        assert queue.publish("a") is True
        lease = queue.claim()
        assert places(client) == {"in_flight": 1}
    assert places(client) == {"returned": 1}, "given back"
    assert not lease._batch.is_held
    with pytest.raises(QueueDrainedError):
        queue.publish("b")


def test_a_block_that_raises_closes_its_queue_too(make_queue: MakeQueue, client: redis.Redis) -> None:
    def work() -> None:
        with make_queue() as queue:
            queue.publish("a")
            lease = queue.claim()
            raise KeyError(lease.id)

    with pytest.raises(KeyError):
        work()
    assert places(client) == {"returned": 1}


# ---------------------------------------------------------------------- what is held


def test_nothing_held_is_told_at_once(queue: RedisMessageQueue) -> None:
    begun = time.monotonic()
    assert queue.drain(60) is True
    assert queue.drain(0) is True, "again is harmless"
    assert time.monotonic() - begun < AT_ONCE_SECONDS


def test_what_others_hold_is_waited_for(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab")
    lease = elsewhere(lambda: queue.claim(2))
    settler = threading.Timer(0.3, lease.ack)
    begun = time.monotonic()
    settler.start()
    assert queue.drain(60) is True
    assert 0.2 < time.monotonic() - begun < AT_ONCE_SECONDS
    assert places(client) == {}


def test_what_others_hold_for_too_long_is_released_uncounted(
    queue: RedisMessageQueue, make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue.publish_many("abc")
    lease = elsewhere(lambda: queue.claim(3))
    lease.ack(lease.messages[0])
    begun = time.monotonic()
    assert queue.drain(0.3) is True, "nothing is held any more"
    assert 0.3 <= time.monotonic() - begun < AT_ONCE_SECONDS
    assert places(client) == {"returned": 2}
    assert [message.delivery_count for message in make_queue().claim(3).messages] == [1, 1]
    lease.ack(lease.messages[0])  # its verdict stands
    with pytest.raises(Exception, match="verdict 'release'"):
        lease.ack(lease.messages[1])


def test_a_timeout_of_nothing_only_stops_and_reports(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    lease = elsewhere(queue.claim)
    assert queue.drain(0) is False
    assert places(client) == {"in_flight": 1}
    with pytest.raises(QueueDrainedError):
        queue.publish("b")
    lease.ack()
    assert queue.drain(0) is True


def test_without_a_timeout_it_waits_until_the_others_have_ended(
    queue: RedisMessageQueue, client: redis.Redis, others: ThreadPoolExecutor
) -> None:
    queue.publish_many("ab")
    leases = [elsewhere(queue.claim), elsewhere(queue.claim)]
    drained = others.submit(queue.drain, timeout=None)
    for lease in leases:
        with pytest.raises(TimeoutError):
            drained.result(0.2)
        lease.ack()
    assert drained.result(20) is True
    assert places(client) == {}
    assert queue.drain(None) is True, "nothing is left to wait for"


def test_what_ran_out_is_not_waited_for(queue: RedisMessageQueue, make_queue: MakeQueue, client: redis.Redis) -> None:
    queue.publish("a")
    lease = elsewhere(queue.claim)
    state.expire(client, "orders")
    make_queue().claim()
    with pytest.raises(LeaseLostError):
        lease.ack()
    assert queue.drain(0) is True


def test_a_lease_that_nobody_refers_to_is_not_waited_for(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.depth()  # creates the group, if it is one; the error that says so refers to its callers
    elsewhere(lambda: bool(queue.claim()))
    assert queue.drain(0) is True


def test_drain_is_told_with_what_is_left(make_queue: MakeQueue) -> None:
    reported: list[QueueEvent] = []
    queue = make_queue(on_event=reported.append)
    queue.publish_many("abc")
    lease = elsewhere(lambda: queue.claim(3))
    reported.clear()
    queue.drain(0)
    assert [(event.operation, event.outcome, event.count, event.seconds) for event in reported] == [
        ("drain", "start", 0, 0),
        ("drain", "failure", 3, None),
    ]
    reported.clear()
    lease.ack()
    queue.drain(0)
    assert [(event.operation, event.outcome, event.count) for event in reported] == [
        ("ack", "success", 3),
        ("drain", "start", 0),
        ("drain", "success", 0),
    ]


def test_close_releases_everything_and_can_be_repeated(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abc")
    mine, others_ = queue.claim(), elsewhere(queue.claim)
    queue.close()
    queue.close()
    assert places(client) == {"returned": 2, "pending": 1}
    assert not mine._batch.is_held
    assert not others_._batch.is_held


def test_a_thread_does_not_wait_for_itself(client: redis.Redis) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("ab")
    other = elsewhere(queue.claim)
    with queue.claim() as mine:
        begun = time.monotonic()
        assert queue.drain(0.2) is False, "what the caller holds is held"
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        assert mine._batch.is_held
        assert not other._batch.is_held
    assert queue.drain(0) is True
    assert state.counters(client, "orders")["acked"] == 1
    assert places(client) == {"returned": 1}


def test_a_later_thread_is_not_taken_for_one_that_ended(client: redis.Redis) -> None:
    """Systems give the number of a thread that ended to the next."""
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    lease = elsewhere(queue.claim)
    assert elsewhere(lambda: queue.drain(0.05)) is True
    assert not lease._batch.is_held


def test_a_task_does_not_wait_for_itself(server: RedisServer, client: redis.Redis) -> None:
    async def main() -> None:
        queue = AsyncQueue("orders", url=server.url)
        await queue.publish_many("ab")
        other = await asyncio.ensure_future(queue.claim())
        async with await queue.claim() as mine:
            assert await queue.drain(0.2) is False
            assert mine._batch.is_held
            assert not other._batch.is_held
        assert await queue.drain(0) is True
        await queue.aclose()

    asyncio.run(main())
    assert places(client) == {"returned": 1}


# ---------------------------------------------------------------------- from signal handlers

SYNC = """
import signal, sys, threading
from sluicegate import RedisMessageQueue
queue = RedisMessageQueue("orders", url=sys.argv[1], message_wait_interval_seconds=60)
def stop(*_):
    print("drained", queue.drain(60), flush=True)
signal.signal(signal.SIGTERM, stop)
def work():
    with queue.process_message() as payload:
        if sys.argv[2] == "handler":
            print("ready", flush=True)
            signal.sigtimedwait([signal.SIGUSR1], 60)   # the handler of SIGTERM runs meanwhile
        print("handled", payload, flush=True)
if sys.argv[2] == "wait":
    threading.Timer(0, lambda: None).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
work()
print("again", queue.drain(0), flush=True)
"""

ASYNCIO = """
import asyncio, signal, sys
from sluicegate.asyncio import RedisMessageQueue
async def main():
    queue = RedisMessageQueue("orders", url=sys.argv[1], message_wait_interval_seconds=60)
    go, tasks = asyncio.Event(), []
    async def stop():
        print("drained", await queue.drain(60), flush=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: tasks.append(loop.create_task(stop())))
    loop.add_signal_handler(signal.SIGUSR1, go.set)
    async with queue.process_message() as payload:
        if sys.argv[2] == "handler":
            print("ready", flush=True)
            await go.wait()
        print("handled", payload, flush=True)
    await asyncio.gather(*tasks)
    print("again", await queue.drain(0), flush=True)
    await queue.aclose()
asyncio.run(main())
"""


class Worker:
    """A process that runs one of the programs above."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self) -> list[str]:
        """Wait until the process has ended well, and return the rest of its output."""
        output, _ = self._process.communicate(timeout=100)
        assert self._process.returncode == 0, output
        return output.splitlines()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def test_a_signal_handler_drains_while_its_own_thread_works(server: RedisServer, client: redis.Redis) -> None:
    RedisMessageQueue("orders", client=client).publish_many("ab")
    with Worker(SYNC, server.url, "handler") as worker:
        assert worker.line() == "ready"
        begun = time.monotonic()
        worker.send(signal.SIGTERM)
        assert worker.line() == "drained False", "what its own thread holds is held"
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        worker.send(signal.SIGUSR1)
        assert worker.end() == ["handled b'a'", "again True"]
    assert places(client) == {"pending": 1}
    assert state.counters(client, "orders")["acked"] == 1


def test_a_signal_drains_a_loop_once_its_tasks_have_done_their_work(server: RedisServer, client: redis.Redis) -> None:
    RedisMessageQueue("orders", client=client).publish_many("ab")
    with Worker(ASYNCIO, server.url, "handler") as worker:
        assert worker.line() == "ready"
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGUSR1)
        assert worker.end() == ["handled b'a'", "drained True", "again True"]
    assert places(client) == {"pending": 1}
    assert state.counters(client, "orders")["acked"] == 1


@pytest.mark.parametrize("program", [SYNC, ASYNCIO], ids=["sync", "asyncio"])
def test_a_signal_ends_a_wait(server: RedisServer, client: redis.Redis, program: str) -> None:
    with Worker(program, server.url, "wait") as worker:
        wait_until(lambda: blocked(client), "it waits for a message")
        begun = time.monotonic()
        worker.send(signal.SIGTERM)
        said: list[Any] = worker.end()
        assert time.monotonic() - begun < AT_ONCE_SECONDS
    assert sorted(said) == ["again True", "drained True", "handled None"]


@pytest.mark.parametrize("timeout", ["1", True, -1, float("nan")])
def test_what_is_no_timeout_stops_nothing(queue: RedisMessageQueue, timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        queue.drain(timeout)
    assert queue.publish("a")
