"""What the materialization of a drain says about its messages: ages, waits, a plot; in a memory that does not grow."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource
from dagster_sluicegate.drains.statistics import DrainStatistics, Waits
from sluicegate import Message, RedisMessageQueue
from sluicegate.core.leased import LeasedEntries
from sluicegate.leased_messages import LeasedMessages
from tests.dagster.drains import drain_asset, fill, metadata_of, run, waits_for

pytestmark = pytest.mark.dagster

NOW = 1_800_000_000.0


def message(age_seconds: float, *, finished: int = 0, begun: int = 1) -> Message:
    enqueued = int((NOW - age_seconds) * 1000)
    return Message(b"1%012x%012x%03x0id\x1f\x1f\x1f{}" % (1, enqueued, finished), 1, begun)


def test_quantiles_are_off_by_less_than_a_tenth() -> None:
    generator, waits = random.Random(7), Waits()
    seconds = sorted(generator.lognormvariate(0, 2) for _ in range(20_000))
    for one in seconds:
        waits.add(one)
    for part in (0.05, 0.5, 0.95, 0.99):
        assert waits.quantile(part) == pytest.approx(seconds[int(part * len(seconds))], rel=0.1)


def test_waits_without_messages_or_from_a_clock_that_is_behind_are_zero() -> None:
    waits = Waits()
    assert (waits.quantile(0.5), waits.to_markdown().count("\n")) == (0.0, 1)
    waits.add(-5)
    assert waits.quantile(0.95) == 0


def test_the_plot_has_a_bar_per_range_from_the_shortest_wait_to_the_longest() -> None:
    waits = Waits()
    for seconds, count in ((0.05, 30), (20, 60), (1e9, 1)):
        waits.add(seconds, count)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in waits.to_markdown().splitlines()]
    assert rows[0] == ["Wait", "Messages", ""]
    assert [(label, count, len(bar)) for label, count, bar in rows[2:]] == [
        ("up to 0.1 s", "30", 12),
        ("up to 1 s", "0", 0),
        ("up to 10 s", "0", 0),
        ("up to 1 min", "60", 24),
        ("up to 10 min", "0", 0),
        ("up to 1 h", "0", 0),
        ("up to 1 day", "0", 0),
        ("more than 1 day", "1", 1),
    ]


def test_a_batch_is_sampled_from_its_first_to_its_last_message() -> None:
    statistics = DrainStatistics(lambda: NOW)
    statistics.note([message(age) for age in range(1000, 0, -1)])
    assert (statistics.oldest, statistics.newest) == (
        datetime.fromtimestamp(NOW - 1000, UTC),
        datetime.fromtimestamp(NOW - 1, UTC),
    )
    assert statistics.waits.quantile(0.5) == pytest.approx(500, rel=0.1)
    assert "| up to 10 min |" in statistics.waits.to_markdown()


def test_messages_that_were_delivered_before_are_counted_one_by_one() -> None:
    statistics = DrainStatistics(lambda: NOW)
    statistics.note([message(1), message(1, finished=1), message(1, begun=2)])
    assert statistics.redelivered == 2
    assert statistics.bytes == 3 * len(message(1).entry)


def test_the_memory_of_the_statistics_does_not_grow_with_the_messages() -> None:
    statistics = DrainStatistics(lambda: NOW)

    def size() -> int:
        return sys.getsizeof(statistics.waits._buckets) + sum(map(sys.getsizeof, statistics.waits._buckets))

    statistics.note([message(1)])
    before = size()
    for age in range(200):
        statistics.note([message(age * 1000 + n) for n in range(100)])
    assert size() == before


def test_a_materialization_has_ages_waits_and_redeliveries(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    fill(queue, 3)
    with queue.claim(1) as lease:
        lease.release()
    waits_for(queue, 3)
    result = run(drain_asset(lambda messages: None), resource)
    (materialization,) = result.asset_materializations_for_node("drained")
    found: dict[str, Any] = dict(materialization.metadata)
    metadata = metadata_of(result)

    assert isinstance(found["sluicegate/oldest_message"], dg.TimestampMetadataValue)
    assert isinstance(found["sluicegate/waits"], dg.MarkdownMetadataValue)
    assert metadata["sluicegate/oldest_message"] <= metadata["sluicegate/newest_message"]
    assert 0 <= metadata["sluicegate/wait_p50_seconds"] <= metadata["sluicegate/wait_p95_seconds"] < 60
    assert metadata["sluicegate/waits"].startswith("| Wait | Messages | |")
    assert metadata["sluicegate/redelivered"] == 1
    assert metadata["sluicegate/bytes"] > 3 * 29
    assert metadata["sluicegate/duplicates_total"] == 0


def test_a_claimed_batch_is_counted_without_an_object_per_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Message:
        raise AssertionError("an object was made for each message")

    monkeypatch.setattr("sluicegate.leased_messages.Message", refuse)
    listed = [message(age, finished=age % 3 == 0) for age in range(200, 0, -1)]
    for begun in (1, 2):
        plain, lazy = DrainStatistics(lambda: NOW), DrainStatistics(lambda: NOW)
        plain.note([Message(one.entry, 1, begun) for one in listed])
        lazy.note(LeasedMessages(LeasedEntries([one.entry for one in listed], None, begun)))
        for name in ("bytes", "redelivered", "oldest", "newest"):
            assert getattr(plain, name) == getattr(lazy, name), name
        assert plain.waits.to_markdown() == lazy.waits.to_markdown()
