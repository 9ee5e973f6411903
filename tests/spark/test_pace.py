"""A streaming query claims no more messages per second than it may."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import QueueProgressListener, StreamProgress
from sluicegate.spark._options import StreamOptions
from sluicegate.spark.streaming import consumer as consumer_module
from sluicegate.spark.streaming.consumer import Consumer
from sluicegate.spark.streaming.microbatch import Offset, Pace
from sluicegate.tables.columns import Columns
from tests.draining.helpers import Numbers


class Clock:
    """A clock that the test moves, and that sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_the_first_trigger_gets_a_seconds_worth_and_later_ones_the_time_that_passed() -> None:
    clock = Clock()
    pace = Pace(100, clock)
    found = []
    for seconds in (0.0, 10.0, 0.5, 0.0):
        clock.now += seconds
        allowed = pace.allowance()
        assert allowed is not None
        found.append(allowed)
        pace.use(allowed)

    assert found == [100, 1000, 50, 0]
    assert pace.seconds_to_next() == pytest.approx(0.01)


def test_an_idle_query_saves_up_a_seconds_worth_and_a_long_pause_a_minutes() -> None:
    clock = Clock()
    pace = Pace(100, clock)
    for _ in range(50):
        clock.now += 1.0
        pace.allowance()
    assert pace.allowance() == 100
    clock.now += 3600
    assert pace.allowance() == 6000


def test_without_a_limit_any_number_may_be_claimed() -> None:
    pace = Pace(None)

    assert (pace.allowance(), pace.seconds_to_next()) == (None, 0.0)


def test_a_rate_below_one_message_per_second_is_kept() -> None:
    clock = Clock()
    pace = Pace(0.5, clock)
    allowed = []
    for _ in range(8):
        allowed.append(pace.allowance() or 0)
        pace.use(allowed[-1])
        clock.now += 1.0

    assert sum(allowed) in (3, 4)
    assert max(allowed) == 1


def consumer(queue: RedisMessageQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch, **more: str) -> Consumer:
    made = Consumer(StreamOptions.parse({"spec": queue.spec().to_json(), "consumer": "etl", **more}), Columns.of(None))
    made._pace = Pace(made.options.max_messages_per_second, clock)
    monkeypatch.setattr(consumer_module, "time", SimpleNamespace(sleep=clock.sleep))
    return made


def claimed(query: Consumer, start: Offset) -> tuple[int, Offset]:
    end = query.latest(start, 100_000)
    return sum(len(lease) for number, lease in query._held.items() if number > start.number), end


def test_micro_batches_hold_what_the_rate_allows(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(100)
    clock = Clock()
    query = consumer(queue, clock, monkeypatch, maxMessagesPerSecond="20", pollWaitSeconds="0.01")
    offset, sizes = query.initial(), []
    for seconds in (0.0, 0.5, 2.0):
        clock.now += seconds
        size, offset = claimed(query, offset)
        sizes.append(size)
    query.stop()

    assert sizes == [20, 10, 40]
    assert queue.depth().ready == 30


def test_a_query_of_what_is_available_waits_for_its_pace_and_ends_when_all_is_claimed(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(50)
    clock = Clock()
    query = consumer(queue, clock, monkeypatch, maxMessagesPerSecond="20")
    query.prepare_available_now()
    offset, sizes = query.initial(), []
    while True:
        size, offset = claimed(query, offset)
        if not size:
            break
        sizes.append(size)
    query.stop()

    assert (sum(sizes), queue.depth().ready) == (50, 0)
    assert clock.now - 100 == pytest.approx(30 / 20, abs=0.2)


def test_a_paced_query_without_an_allowance_asks_again_after_the_poll_wait(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(3)
    clock = Clock()
    query = consumer(queue, clock, monkeypatch, maxMessagesPerSecond="0.01", pollWaitSeconds="0.25")
    first, offset = claimed(query, query.initial())
    second, _ = claimed(query, offset)
    query.stop()

    assert (first, second, clock.slept) == (1, 0, [0.25])


def test_redelivered_messages_are_in_the_progress_of_the_source(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(5)
    with queue.claim(2) as lease:
        lease.nack()
    query = consumer(queue, Clock(), monkeypatch)
    claimed(query, query.initial())
    progress = query.progress()
    query.stop()

    assert progress is not None
    assert (progress["redelivered"], progress["ready"], progress["oldest_ready_age_ms"]) == (2, 0, 0)


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "many"])
def test_a_rate_that_cannot_be_kept_is_refused(queue: RedisMessageQueue, given: str) -> None:
    options = {"spec": queue.spec().to_json(), "consumer": "etl", "maxMessagesPerSecond": given}
    with pytest.raises(ConfigurationError, match=r"maxMessagesPerSecond must be a number from 0\.001"):
        StreamOptions.parse(options)


# ---------------------------------------------------------------------- the listener


def progress_of(consumer: str, batch: int = 3) -> dict[str, Any]:
    end = {"c": consumer, "e": 7, "n": 2}
    return {
        "id": "an-id",
        "name": None,
        "batchId": batch,
        "numInputRows": 4,
        "processedRowsPerSecond": 2.5,
        "sources": [{"endOffset": {"topic": 1}}, {"endOffset": end}],
    }


def test_the_listener_adds_backlog_age_and_redeliveries(queue: RedisMessageQueue, numbers: Numbers) -> None:
    shown: list[StreamProgress] = []
    listener = QueueProgressListener(queue, shown.append)
    numbers(6)
    listener.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    with queue.claim(2) as lease:
        lease.nack()
    queue.claim(1)

    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress_of("etl")))))  # type: ignore[arg-type]

    (found,) = shown
    assert (found.query, found.consumer, found.batch_id, found.rows, found.rows_per_second) == (
        "an-id",
        "etl",
        3,
        4,
        2.5,
    )
    assert (found.backlog, found.in_flight, found.redelivered) == (5, 1, 2)
    assert found.oldest_ready_age_seconds is not None
    assert 0 <= found.oldest_ready_age_seconds < 60


def test_the_listener_reports_only_queries_of_its_consumer_and_never_fails(
    queue: RedisMessageQueue, numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sluicegate")
    listener = QueueProgressListener(queue, consumer="etl")
    numbers(2)
    as_text = {**progress_of("x"), "sources": [{"endOffset": json.dumps({"c": "etl", "e": 1, "n": 1})}]}
    found = [listener.report(one) for one in (progress_of("other"), {**progress_of("x"), "sources": []}, as_text)]

    assert [one is not None for one in found] == [False, False, True]
    assert any(
        "batch 3: 4 rows, 2 messages ready, the oldest for 0 s, 0 redelivered" in line for line in caplog.messages
    )
    for broken in ("no json", "{}"):
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=broken)))  # type: ignore[arg-type]
    assert len(caplog.messages) == 1
