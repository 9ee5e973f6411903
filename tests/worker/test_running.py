"""How a worker runs and ends: concurrency, stops, interruptions, outages and errors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
import tenacity

from sluicegate import (
    ConfigurationError,
    EventDrivenInterruptHandler,
    OptionTypeError,
    QueueEvent,
    RedisMessageQueue,
    WrongKeyTypeError,
)
from sluicegate.worker import Delivery
from tests.support.flavours import Flavour, Loop, MakeQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until
from tests.worker.conftest import MakeWorker

FIELDS = ("handled", "failed", "rejected", "invalid", "unhandled", "released", "lost")


def publish(queue: Any, count: int) -> None:
    queue.publish_many([{"type": "created", "n": number} for number in range(count)])


class Gate:
    """A handler that notes its messages and holds them until it is opened."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.most = 0
        self._open = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, order: dict[str, Any]) -> None:
        with self._lock:
            self.begun.append(order["n"])
            self.most = max(self.most, len(self.begun) - len(self.done))
        assert self._open.wait(60)
        with self._lock:
            self.done.append(order["n"])

    def open(self) -> None:
        self._open.set()


def in_background(worker: Any) -> threading.Thread:
    """Start `worker.run()` in a thread of the test."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: worker.is_running, "the worker runs")
    return thread


def test_a_worker_claims_no_more_than_it_can_handle_at_once(queue: Any, make_worker: MakeWorker) -> None:
    gate = Gate()
    worker = make_worker(queue, concurrency=3)
    worker.register("created", gate)
    publish(queue, 8)

    with worker:
        wait_until(lambda: len(gate.begun) == 3, "three handlers run")
        depth = queue.depth()
        assert (depth.in_flight, depth.leases, depth.ready) == (3, 3, 5)
        gate.open()
        wait_until(lambda: len(gate.done) == 8, "all are handled")
    assert gate.most == 3
    assert sorted(gate.done) == list(range(8))
    assert queue.depth().in_flight == 0


def test_one_slow_handler_delays_no_other_and_keeps_its_lease(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    queue = make_queue(visibility_timeout_seconds=0.3)
    slow, got = Gate(), []
    worker = make_worker(queue, concurrency=2)
    worker.register("created", lambda order: slow(order) if order["n"] == 0 else got.append(order["n"]))
    publish(queue, 20)

    begun = time.monotonic()
    with worker:
        wait_until(lambda: len(got) == 19, "the others are handled")
        wait_until(lambda: time.monotonic() - begun > 0.9, "three lives of a lease are over")
        slow.open()
        wait_until(lambda: slow.done == [0], "the slow one is handled")
    assert got == list(range(1, 20))
    assert slow.begun == [0]
    assert queue.stats().acked == 20


def test_two_workers_share_the_messages(queue: Any, make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    got: dict[str, list[int]] = {"a": [], "b": []}
    gates = {"a": threading.Event(), "b": threading.Event()}
    workers = [make_worker(each, name=name, concurrency=2) for name, each in (("a", queue), ("b", make_queue()))]

    def handle(order: dict[str, Any], delivery: Delivery) -> None:
        got[delivery.worker].append(order["n"])
        gates[delivery.worker].set()
        assert all(gate.wait(20) for gate in gates.values())  # until each of the two has a message

    for worker in workers:
        worker.register("created", handle)
    with workers[0], workers[1]:
        publish(queue, 50)
        wait_until(lambda: queue.stats().acked == 50, "all are acked")
    assert sorted(got["a"] + got["b"]) == list(range(50))
    assert all(got.values())


def test_a_stop_lets_handlers_end_and_claims_no_more(queue: Any, make_worker: MakeWorker) -> None:
    gate = Gate()
    worker = make_worker(queue, concurrency=2)
    worker.register("created", gate)
    publish(queue, 5)
    worker.start(background=True)
    wait_until(lambda: len(gate.begun) == 2, "two handlers run")
    threading.Timer(0.2, gate.open).start()

    assert worker.stop() is True
    assert not worker.is_running
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, len(gate.done)) == (3, 0, 2)
    assert worker.stop() is True


def test_a_handler_that_never_ends_is_given_up_and_its_message_is_released_uncounted(
    queue: Any, make_worker: MakeWorker
) -> None:
    gate = Gate()
    worker = make_worker(queue, concurrency=2)
    worker.register("created", gate)
    publish(queue, 2)
    worker.start(background=True)
    wait_until(lambda: len(gate.begun) == 2, "two handlers run")

    begun = time.monotonic()
    assert worker.stop(0.2) is False
    assert time.monotonic() - begun < 10
    assert not worker.is_running
    with queue.claim(10) as lease:
        assert [message.delivery_count for message in lease] == [1, 1]
    gate.open()
    wait_until(lambda: len(gate.done) == 2, "the handlers end after all")
    stats = queue.stats()
    assert (stats.acked, stats.released) == (2, 2)


def test_run_reports_what_it_did_and_what_it_released(queue: Any, make_worker: MakeWorker) -> None:
    gate, reports = Gate(), []
    worker = make_worker(queue, concurrency=3, stop_timeout_seconds=0.1)
    worker.register("created", lambda order: gate(order) if order["n"] < 2 else None)
    publish(queue, 4)
    thread = threading.Thread(target=lambda: reports.append(worker.run()))
    thread.start()
    wait_until(lambda: len(gate.begun) == 2 and queue.stats().acked == 2, "two are handled and two held")
    assert worker.stop() is False
    thread.join(20)

    (report,) = reports
    assert {name: getattr(report, name) for name in FIELDS if getattr(report, name)} == {"handled": 2, "released": 2}
    gate.open()


def test_a_handler_may_stop_its_own_worker(queue: Any, make_worker: MakeWorker, flavour: Flavour) -> None:
    stopped: list[bool] = []
    worker = make_worker(queue)
    if flavour.asyncio:

        async def handle(_: Any) -> None:
            stopped.append(await target_of(worker).stop())
    else:

        def handle(_: Any) -> None:  # type: ignore[misc]
            stopped.append(worker.stop())

    worker.register("created", handle)
    publish(queue, 3)

    assert worker.run().handled == 1
    assert stopped == [False]
    assert queue.depth().ready == 2


def test_an_interruption_of_the_queue_ends_the_worker(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    interrupt = threading.Event()
    queue = make_queue(interrupt=EventDrivenInterruptHandler(interrupt))
    worker, got = make_worker(queue), []

    def handle(order: dict[str, Any]) -> None:
        got.append(order["n"])
        if order["n"] == 1:
            interrupt.set()

    worker.register("created", handle)
    publish(queue, 5)

    assert worker.run().handled == 2
    assert got == [0, 1]
    assert make_queue().depth().ready == 3


def test_an_idle_worker_ends_at_once(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue, concurrency=3)
    worker.register("created", print)
    worker.start(background=True)
    wait_until(lambda: queue.stats().claimed == 0 and worker.is_running, "it waits")
    begun = time.monotonic()
    assert worker.stop() is True
    assert time.monotonic() - begun < 5


def test_closing_the_queue_ends_its_worker_and_waits_for_its_handlers(
    make_queue: MakeQueue, make_worker: MakeWorker
) -> None:
    queue, gate = make_queue(), Gate()
    worker = make_worker(queue)
    worker.register("created", gate)
    publish(queue, 2)
    thread = in_background(worker)
    wait_until(lambda: gate.begun == [0], "a handler runs")
    threading.Timer(0.2, gate.open).start()

    assert queue.shutdown(20) is True
    thread.join(20)
    assert (gate.done, worker.is_running) == ([0], False)
    assert make_queue().depth().ready == 1


def test_a_worker_runs_once_at_a_time(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)
    worker.register("created", print)
    with worker:
        for again in (worker.run, worker.run_once, worker.start):
            with pytest.raises(ConfigurationError, match="runs already"):
                again()
    worker.start(background=True)
    assert worker.stop() is True


def test_run_once_handles_what_is_there_and_waits_only_for_the_first(queue: Any, make_worker: MakeWorker) -> None:
    worker, got = make_worker(queue, concurrency=3), []
    worker.register("created", lambda order: got.append(order["n"]))
    assert worker.run_once().claimed == 0
    publish(queue, 7)

    assert [worker.run_once().handled, worker.run_once(limit=10).handled] == [3, 4]
    assert sorted(got) == list(range(7))
    threading.Timer(0.1, publish, (queue, 1)).start()
    begun = time.monotonic()
    assert worker.run_once(wait_seconds=20).handled == 1
    assert time.monotonic() - begun < 10
    with pytest.raises(ConfigurationError, match="limit must be an int from 1"):
        worker.run_once(0)


def test_an_error_that_no_retry_heals_ends_a_worker(queue: Any, make_worker: MakeWorker, client: redis.Redis) -> None:
    worker = make_worker(queue)
    worker.register("created", print)
    client.set("sluicegate:{orders}:pending", "another program's")
    with pytest.raises(WrongKeyTypeError):
        worker.run()
    worker.start(background=True)
    wait_until(lambda: not worker.is_running, "the worker ends")
    with pytest.raises(WrongKeyTypeError):
        worker.stop()
    assert worker.stop() is True
    client.delete("sluicegate:{orders}:pending")
    publish(queue, 1)
    assert worker.run_once().handled == 1


def test_a_block_that_raised_is_not_hidden_by_the_workers_own_error(
    queue: Any, make_worker: MakeWorker, client: redis.Redis
) -> None:
    worker = make_worker(queue)
    worker.register("created", print)
    client.set("sluicegate:{orders}:pending", "another program's")

    def use() -> None:
        with worker:
            wait_until(lambda: not worker.is_running, "the worker ends")
            raise LookupError("the block's own")

    with pytest.raises(LookupError, match="the block's own"):
        use()
    client.delete("sluicegate:{orders}:pending")


def test_a_worker_survives_an_outage_longer_than_the_retry_budget(
    own_server: RedisServer, flavour: Flavour, loop: Loop, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.support.flavours import Maker

    with own_server.client() as client:
        make = Maker(flavour, client, loop)
        queue = make(url=own_server.url, retry_budget_seconds=0.1, retry_initial_delay_seconds=0.01)
        worker, got = make_worker(queue, concurrency=2, restart_backoff=tenacity.wait_fixed(0.1)), []
        worker.register("created", lambda order: got.append(order["n"]))
        with worker:
            publish(queue, 2)
            wait_until(lambda: len(got) == 2, "two are handled")
            own_server.stop()
            wait_until(
                lambda: sum("it claims again in 0.1 s" in text for text in caplog.messages) > 2, "it tries again"
            )
            assert worker.is_running
            own_server.start()
            with RedisMessageQueue("orders", url=own_server.url) as publisher:
                publisher.publish_many([{"type": "created", "n": number} for number in (7, 8)])
            wait_until(lambda: sorted(got[2:]) == [7, 8], "the rest is handled")
        make.close()


def test_run_once_raises_when_redis_is_away(
    make_worker: MakeWorker, flavour: Flavour, loop: Loop, client: redis.Redis
) -> None:
    from sluicegate import RedisUnavailableError
    from tests.support.flavours import Maker

    make = Maker(flavour, client, loop)
    queue = make(url="redis://127.0.0.1:1/0", retry_budget_seconds=0)
    worker = make_worker(queue)
    worker.register("created", print)
    with pytest.raises(RedisUnavailableError):
        worker.run_once()
    make.close()


def test_a_handler_that_ends_the_process_releases_its_message(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)

    def leave(_: Any) -> None:
        raise SystemExit(3)

    worker.register("created", leave)
    publish(queue, 1)

    with pytest.raises(SystemExit, match="3"):
        worker.run()
    worker.start(background=True)
    wait_until(lambda: not worker.is_running, "the worker ends")
    with pytest.raises(SystemExit, match="3"):
        worker.stop()
    with queue.claim() as lease:
        assert lease.messages[0].delivery_count == 1


def test_a_worker_of_one_flavour_refuses_the_other(client: redis.Redis, loop: Loop) -> None:
    import sluicegate.asyncio
    from sluicegate.asyncio.worker import Worker as AsyncWorker
    from sluicegate.worker import Worker

    sync = RedisMessageQueue("orders", client=client)
    asynchronous = sluicegate.asyncio.RedisMessageQueue("orders", url="redis://h")
    with pytest.raises(OptionTypeError, match="a worker of threads needs a queue of its own flavour"):
        Worker(asynchronous)  # type: ignore[arg-type]
    with pytest.raises(OptionTypeError, match="a worker of asyncio needs a queue of its own flavour"):
        AsyncWorker(sync)  # type: ignore[arg-type]
    with pytest.raises(OptionTypeError, match="queue must be a queue, a group of a stream or a queue of jobs, not a"):
        Worker("orders")  # type: ignore[arg-type]
    with pytest.raises(OptionTypeError, match=r"is async, and a worker of threads awaits nothing.*sluicegate\.asyncio"):
        Worker(sync).register("created", asynchronous.publish)


def test_events_say_how_long_handlers_took(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    worker = make_worker(queue)
    worker.register("created", lambda _: time.sleep(0.05))
    publish(queue, 1)
    worker.run_once()

    (event,) = [event for event in events if event.operation == "handle"]
    assert (str(event.outcome), event.count, event.delivery_count) == ("success", 1, 1)
    assert (event.message_type, event.queue) == ("created", "orders")
    assert event.message_id is not None
    assert event.lease_id is not None
    assert event.duration_seconds is not None
    assert 0.05 <= event.duration_seconds < 20


@pytest.fixture
def forked(queue: Any) -> Callable[[Callable[[], bool]], int]:
    """Run a function in a forked child and return its exit code: 0 when it returned True."""

    def run(function: Callable[[], bool]) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                code = 0 if function() else 2
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return run


def test_a_forked_child_touches_nothing_of_its_parents_worker_and_can_run_its_own(
    queue: Any, make_worker: MakeWorker, flavour: Flavour, forked: Callable[[Callable[[], bool]], int]
) -> None:
    if flavour.asyncio:  # an event loop does not survive a fork
        return
    gate = Gate()
    worker = make_worker(queue)
    worker.register("created", lambda order: gate(order) if order["n"] == 0 else None)
    publish(queue, 1)
    worker.start(background=True)
    wait_until(lambda: gate.begun == [0], "a handler runs")

    def in_child() -> bool:
        if worker.is_running or not worker.stop(0):
            return False
        queue.publish({"type": "created", "n": 1})
        return worker.run_once(wait_seconds=20).handled == 1

    assert forked(in_child) == 0
    assert queue.depth().in_flight == 1
    gate.open()
    assert worker.stop() is True
    assert queue.stats().acked == 2


def target_of(worker: Any) -> Any:
    """Return the asyncio worker behind its synchronous interface."""
    return object.__getattribute__(worker, "__dict__")["_target"]
