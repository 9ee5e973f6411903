"""Drains that are cancelled, whose Redis goes away, or whose lease goes to another while they are at work."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.spark import DrainContext, DrainSummary, drain
from tests.spark.faults.blocking import WORKER_SECONDS, arrived, blocking
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish
from tests.support import state
from tests.support.servers import free_port, programs
from tests.support.topologies import Server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

CHUNK = 20


def in_background(pool: ThreadPoolExecutor, *args: Any, **options: Any) -> Future[DrainSummary]:
    return pool.submit(drain, *args, **options)


@pytest.mark.full  # a killed worker stands for it in the quick lane
def test_a_cancelled_job_leaves_its_leases_to_the_next_run_of_the_same_id(
    spark: SparkSession, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 10 * CHUNK)
    options: dict[str, Any] = {"partitions": 2, "batch_size": CHUNK, "lease_seconds": 600, "run_id": "cancelled"}
    context = spark.sparkContext

    def first() -> DrainSummary:
        context.setJobGroup("to be cancelled", "a drain", interruptOnCancel=True)
        return drain(spark, queue, sink.writer(blocking(tmp_path)), **options)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first)
        wait_until(lambda: arrived(tmp_path, 2), "both partitions are at work", WORKER_SECONDS)
        context.cancelJobGroup("to be cancelled")
        error = running.exception(timeout=60)
    assert "cancelled" in str(error)
    assert queue.depth().leases == 2, "nobody gave them back"

    summary = drain(spark, queue, sink.writer(), **options)

    (tmp_path / "go on").touch()  # whoever still stands there: his lease is another's
    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert summary.acked == len(truth), "what the first run did is counted"
    assert sum(part.taken_over for part in summary.partitions) == 2
    assert sum(part.replayed for part in summary.partitions) == 2


@pytest.mark.full  # the core's own outages stand for it in the quick lane
def test_redis_that_is_killed_and_comes_back_is_waited_for(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    server = Server(programs()[0], "--appendonly", "yes", "--appendfsync", "always", port=free_port())
    queue = RedisMessageQueue(
        "orders", url=server.url, enable_completed_queue=True, retry_budget_seconds=60, retry_max_delay_seconds=0.2
    )
    try:
        server.start()
        truth = publish(queue, 10 * CHUNK)
        with ThreadPoolExecutor(1) as pool:
            running = in_background(
                pool, spark, queue, sink.writer(blocking(tmp_path)), partitions=2, batch_size=CHUNK, lease_seconds=600
            )
            wait_until(lambda: arrived(tmp_path, 2), "both partitions are at work", WORKER_SECONDS)
            server.kill()
            (tmp_path / "go on").touch()
            wait_until(lambda: len(list(sink.folder.glob("*.json"))) >= 4, "both are done and cannot ack")
            server.start()
            summary = running.result(timeout=120)
        check_nothing_lost(sink, truth)
        with server.client() as client:
            check_acked_once(queue, client, truth)
            assert state.counters(client, "orders").get("taken_over", 0) == 0
            state.check(client)
        assert sink.duplicates() == {}
        assert summary.acked == len(truth)
    finally:
        queue.close()
        server.remove()


@pytest.mark.full
def test_a_worker_that_was_frozen_for_longer_than_its_lease_acks_nothing_of_what_others_did(
    spark: SparkSession, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 5 * CHUNK)
    frozen = tmp_path / "frozen"

    def freeze_once(batch: list[Message], ctx: DrainContext) -> None:
        if ctx.chunk == 1 and not frozen.exists():
            unfinished = frozen.with_suffix(".unfinished")
            unfinished.write_text(json.dumps({"pid": os.getpid(), "ids": [message.id for message in batch]}))
            unfinished.rename(frozen)
            os.kill(os.getpid(), signal.SIGSTOP)

    with ThreadPoolExecutor(1) as pool:
        running = in_background(
            pool, spark, queue, sink.writer(freeze_once), partitions=1, batch_size=CHUNK, lease_seconds=0.5
        )
        wait_until(frozen.exists, "the worker freezes", WORKER_SECONDS)
        reported = json.loads(frozen.read_text())
        try:
            wait_until(lambda: queue.depth().expired == CHUNK, "its lease runs out")
            others: list[str] = []
            with queue.claim(CHUNK, lease_seconds=60) as lease:
                sink.add((message.id, message.json()["n"]) for message in lease)
                others += [message.id for message in lease.messages]
        finally:
            os.kill(reported["pid"], signal.SIGCONT)
        summary = running.result(timeout=120)

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert set(others) <= set(reported["ids"]), "what came back goes first"
    assert others
    assert set(sink.duplicates()) == set(reported["ids"]), "what it had in hand when it froze, and nothing else"
    assert summary.acked == len(truth) - len(others)
