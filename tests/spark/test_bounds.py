"""Durations that cannot work are refused where they are given, and none of them keeps a chunk from being settled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import redis
import tenacity

from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import DrainContext, drain, lease_batch
from sluicegate.spark._options import StreamOptions, WriteOptions, options
from tests.draining.helpers import drain_here
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

NO_SESSION = cast("Any", None)
NO_DURATIONS = [float("nan"), float("inf"), 1e300, 100 * 365 * 86_400 + 1, -1]


def stream(queue: RedisMessageQueue, **given: object) -> object:
    return StreamOptions.parse(
        {**options(queue), "consumer": "c", **{name: str(value) for name, value in given.items()}}
    )


def write(queue: RedisMessageQueue, **given: object) -> object:
    return WriteOptions.parse({**options(queue), **{name: str(value) for name, value in given.items()}})


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("lease_seconds", lambda queue, value: drain(NO_SESSION, queue, print, lease_seconds=value)),
        ("deadline_seconds", lambda queue, value: drain(NO_SESSION, queue, print, deadline_seconds=value)),
        ("lease_seconds", lambda queue, value: lease_batch(NO_SESSION, queue, 5, lease_seconds=value)),
        ("leaseSeconds", lambda queue, value: stream(queue, leaseSeconds=value)),
        ("pollWaitSeconds", lambda queue, value: stream(queue, pollWaitSeconds=value)),
        ("deduplicationWindowSeconds", lambda queue, value: write(queue, deduplicationWindowSeconds=value)),
        ("blockTimeoutSeconds", lambda queue, value: write(queue, blockTimeoutSeconds=value)),
    ],
    ids=[
        "drain(lease_seconds)",
        "drain(deadline_seconds)",
        "lease_batch",
        "leaseSeconds",
        "pollWaitSeconds",
        "window",
        "block",
    ],
)
def test_a_duration_that_cannot_work_is_refused(
    queue: RedisMessageQueue, name: str, ask: Callable[[RedisMessageQueue, float], object]
) -> None:
    for value in NO_DURATIONS:
        with pytest.raises(ConfigurationError, match=name):
            ask(queue, value)


def test_a_delay_that_no_settle_takes_is_a_failure_of_the_handler(queue: RedisMessageQueue) -> None:
    queue.publish_many({"n": n} for n in range(4))

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.nack([message for message in batch if message.json()["n"] == 2], delay_seconds=1e300)

    summary = drain_here(queue, process)

    assert {failure.error_type for failure in summary.failures} == {"ValueError"}
    assert all("at most 100 years" in failure.error for failure in summary.failures)
    assert (queue.depth().in_flight, queue.depth().delayed) == (0, 4)


@pytest.mark.parametrize("raises", [False, True])
def test_a_backoff_beyond_all_bounds_keeps_no_chunk_from_being_settled(
    raises: bool, server: RedisServer, make_queue: MakeQueue, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(url=server.url, retry_backoff=tenacity.wait_fixed(1e12))
    queue.publish_many({"n": n} for n in range(4))

    def process(batch: list[Message], ctx: DrainContext) -> None:
        bad = [message for message in batch if message.json()["n"] == 3]
        if bad and raises:
            raise OSError("cannot work on 3")
        ctx.nack(bad)

    with caplog.at_level(logging.WARNING, "sluicegate"):
        summary = drain_here(queue, process)

    assert (summary.acked, summary.returned) == (3, 1)
    assert "the default is used" in caplog.text
    seconds, _ = client.time()
    ((_, due),) = client.zrange(queue.key.delayed, 0, -1, withscores=True)
    assert 0 < due / 1000 - seconds < 5
