"""Redis away in the middle of a drain: the calls that follow one another spend one retry budget."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sluicegate import Message, RedisMessageQueue, drain
from sluicegate.draining.engine import DrainEngine
from sluicegate.errors import RetryBudgetExhaustedError
from sluicegate.outage import Outage
from tests.draining.helpers import Process, plan_for
from tests.support.servers import PROGRAMS, RedisServer
from tests.support.waiting import wait_until

BUDGET_SECONDS = 1.0
CHUNKS = 6


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """Yield a server that a test may stop or freeze."""
    running = RedisServer(PROGRAMS[0]).start()
    yield running
    running.remove()


@pytest.fixture
def own_queue(own_server: RedisServer) -> RedisMessageQueue:
    """Return a queue that waits for a second in all when its server is away; a hanging server costs it 0.5 s a call."""
    queue = RedisMessageQueue(
        "orders",
        url=f"{own_server.url}?socket_timeout=0.5&socket_connect_timeout=0.5",
        retry_budget_seconds=BUDGET_SECONDS,
        retry_max_delay_seconds=0.1,
    )
    queue.publish_many({"n": n} for n in range(2 * CHUNKS))
    return queue


def hold_and_settle(queue: RedisMessageQueue, process: Process) -> None:
    """Drain chunk after chunk, hold all of them and settle them together, as a Dagster step does."""
    plan = plan_for(process, batch_size=2, holds=True, on_failure="raise", keeps_results=True)
    with DrainEngine(plan, queue) as engine:
        engine.run()
        engine.extend_held()
        engine.settle_held()


def test_all_calls_of_a_drain_that_holds_its_chunks_wait_once(
    own_server: RedisServer, own_queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []

    def process(batch: list[Message]) -> None:
        handled.extend(message.json()["n"] for message in batch)
        if len(handled) == 2 * CHUNKS:
            own_server.stop()

    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "sluicegate"), pytest.raises(RetryBudgetExhaustedError):
        hold_and_settle(own_queue, process)
    own_queue.close()
    seconds = time.monotonic() - begun
    # The claim that finds Redis away, the release of each chunk and that of each lease at the close: a second each.
    assert BUDGET_SECONDS <= seconds < 3 * BUDGET_SECONDS < (1 + 2 * CHUNKS) * BUDGET_SECONDS
    assert sum("will expire: Redis is away" in line for line in caplog.messages) == CHUNKS + 1


def test_a_server_that_hangs_is_waited_for_once(own_server: RedisServer, own_queue: RedisMessageQueue) -> None:
    with ExitStack() as until_the_end:

        def process(batch: list[Message]) -> None:
            if batch[0].json()["n"] == 2 * (CHUNKS - 1):
                until_the_end.enter_context(own_server.frozen())

        begun = time.monotonic()
        with pytest.raises(RetryBudgetExhaustedError):
            hold_and_settle(own_queue, process)
        own_queue.close()
        assert time.monotonic() - begun < 3 * BUDGET_SECONDS


def test_threads_that_share_a_queue_share_its_budget(own_server: RedisServer, own_queue: RedisMessageQueue) -> None:
    """The second thread meets the outage after the first has waited for it, and makes one attempt."""
    both, outage = threading.Barrier(2, timeout=20), own_queue.session.runner.outage
    began_to_settle: list[float] = []

    def process(batch: list[Message]) -> None:
        if both.wait() == 0:
            own_server.stop()
            return
        wait_until(lambda: outage.since is not None, "the other thread gave up")
        began_to_settle.append(time.monotonic())

    with pytest.raises(RetryBudgetExhaustedError):
        drain(own_queue, process, workers=2, worker_kind="thread", batch_size=CHUNKS, progress=False)
    assert time.monotonic() - began_to_settle[0] < BUDGET_SECONDS / 2


def test_a_drain_after_the_outage_has_the_whole_budget_again(
    own_server: RedisServer, own_queue: RedisMessageQueue
) -> None:
    outage = own_queue.session.runner.outage

    def process(batch: list[Message]) -> None:
        own_server.stop()

    with pytest.raises(RetryBudgetExhaustedError):
        hold_and_settle(own_queue, process)
    assert outage.is_recent
    own_server.start()
    assert own_queue.depth().ready == 0  # the server kept nothing on disk
    assert not outage.is_recent
    with outage.shared():
        assert outage.left_of(BUDGET_SECONDS) is None


def test_what_is_left_of_a_budget_shrinks_from_the_first_call_that_failed() -> None:
    now = 100.0
    outage = Outage(lambda: now)
    outage.note(95.0)
    assert outage.left_of(20) is None, "outside of a block every call has its own budget"
    with outage.shared():
        assert outage.left_of(20) == 15
        now = 107.0
        outage.note(106.0)
        assert outage.left_of(20) == 8
        assert outage.left_of(10) == 0
        assert outage.is_recent
        now = 113.0
        assert not outage.is_recent
        outage.end()
        assert outage.left_of(20) is None
