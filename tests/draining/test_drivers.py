"""Two drivers under one run id: the second reports it, and a retry of a driver that died does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Message, RedisMessageQueue, drain
from sluicegate.draining.drivers import DriverWatch, driver_heartbeat
from tests.draining.helpers import Numbers
from tests.support import state
from tests.support.waiting import wait_until

LEASE = 0.4  # a driver is dead once it was silent for 0.35 s
WARNING = "another driver works under this run id"


class Holding:
    """A handler that holds its first batch until it is let go."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, batch: list[Message]) -> None:
        self.has_begun.set()
        assert self.may_end.wait(30)


@contextmanager
def a_driver_at_work(queue: RedisMessageQueue, **options: Any) -> Iterator[list[Any]]:
    """Drain in another thread, which holds its batch while the block runs; yields where its summary will be."""
    holding, summaries = Holding(), []
    other = RedisMessageQueue.from_spec(queue.spec())
    thread = threading.Thread(target=lambda: summaries.append(drain(other, holding, run_id="nightly", **options)))
    thread.start()
    assert holding.has_begun.wait(30)
    try:
        yield summaries
    finally:
        holding.may_end.set()
        thread.join(30)
        other.close()


def test_the_second_driver_of_a_run_reports_the_first_and_drains_all_the_same(
    queue: RedisMessageQueue, numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    numbers(4)
    with a_driver_at_work(queue, until=1, batch_size=1) as first:
        # With three workers, the partitions 1 and 2 are the second driver's alone.
        options: dict[str, Any] = {"workers": 3, "worker_kind": "thread", "until": 6}
        second = drain(queue, lambda batch: None, run_id="nightly", **options)

    assert second.acked >= 3
    assert second.other_driver is not None
    assert second.other_driver.startswith(f"{first_word()} (pid ")
    assert second.to_dict()["other_driver"] == second.other_driver
    assert [record.levelname for record in caplog.records if WARNING in record.message] == ["WARNING"]
    assert [summary.other_driver for summary in first] == [None]


def first_word() -> str:
    return socket.gethostname()


def test_a_run_id_that_is_used_again_after_its_driver_has_ended_reports_nothing(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(4)
    first = drain(queue, lambda batch: None, run_id="nightly", until=2)
    second = drain(queue, lambda batch: None, run_id="nightly", until=4)

    assert (first.other_driver, second.other_driver) == (None, None)
    assert not [key for key in state.dumps(client) if b":drivers" in key]


def test_a_drain_without_a_run_id_gives_no_sign(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(1)
    with driver_heartbeat(queue, None, 60) as watch:
        assert queue.session.runner is not None
        assert threading.active_count() == len([t for t in threading.enumerate() if t.name != "sluicegate-driver"])
    assert watch.other is None


def test_the_retry_of_a_driver_that_died_reports_nothing(
    queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    dead = DriverWatch(queue, "nightly", LEASE)
    dead.run_once()
    retry = DriverWatch(queue, "nightly", LEASE)

    retry.run_once()
    assert retry.other is None, "it may have died a moment ago"
    wait_until(lambda: (retry.run_once(), not retry.others)[1], "the dead driver is forgotten")
    retry.stop()
    retry.run_once()

    assert (retry.other, caplog.messages) == (None, [])


def test_a_driver_that_gives_another_sign_is_reported_by_the_one_that_came_later_only(
    queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = DriverWatch(queue, "nightly", 60), DriverWatch(queue, "nightly", 60)
    first.run_once()
    wait_until(
        lambda: (second.run_once(), first.run_once(), second.other)[2], "the second sees two heartbeats of the first"
    )
    second.run_once()

    assert first.other is None
    assert second.other is not None
    assert len([message for message in caplog.messages if WARNING in message]) == 1
    other_run = DriverWatch(queue, "hourly", 60)
    other_run.run_once()
    other_run.stop()
    other_run.run_once()
    assert other_run.other is None


def test_a_driver_that_is_alive_at_the_end_is_reported_before_its_next_sign(queue: RedisMessageQueue) -> None:
    first, second = DriverWatch(queue, "nightly", 60), DriverWatch(queue, "nightly", 60)
    first.run_once()
    second.run_once()
    second.stop()
    second.run_once()

    assert second.other is not None


def test_what_was_written_from_outside_disturbs_no_drain(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(2)
    key = queue.session.keys.drivers("nightly")
    client.hset(key, mapping={"x": "nonsense", "y": "1 2"})
    assert drain(queue, lambda batch: None, run_id="nightly", until=1, batch_size=1).other_driver is None
    client.set(key, "no hash")

    summary = drain(queue, lambda batch: None, run_id="nightly", until=2, batch_size=1)

    assert (summary.acked, summary.other_driver) == (2, None)
    client.delete(key)
