"""Jobs per second beside the design of the Redis documentation, in interleaved rounds on one server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import redis

from benchmarks.document_jobs import DocumentJobs
from benchmarks.measure import median
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, Order, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate.jobs import RedisJobQueue
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

Rates = dict[str, float]
_SINGLES = 10  # one in this many jobs goes alone
_SENT_AT = "2026-05-11T15:00:00Z"
_ALONE, _TENS, _BATCHES = "one at a time", "in batches of 10", f"in batches of {BATCH:,}"
_DOCUMENT = "the document's design"
# One at a time, three calls that keep counts and records meet five calls that keep none: they may take twice the time.
_LIMITS = {_ALONE: 0.5, _TENS: 2.0, _BATCHES: 2.0}


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(rounds=settings["rounds"], count=settings["count"])
        return Found({"Jobs, one client": figures}, bars(figures, settings["rounds"]))

    yield "jobs beside the document's design", measure


def run(*, rounds: int, count: int) -> Figures:
    """Medians over the rounds, after one to warm up."""
    server = RedisServer(programs()[0]).start()
    sides: dict[str, Callable[[str, list[Order]], Rates]] = {
        _DOCUMENT: _document,
        _ALONE: _alone,
        _TENS: partial(_batches, size=10),
        _BATCHES: partial(_batches, size=BATCH),
    }
    found: dict[str, list[Rates]] = {name: [] for name in sides}
    try:
        with server.client() as client:
            for number in range(rounds + 1):
                for name in sorted(sides, reverse=number % 2 == 0):
                    client.flushall()
                    jobs = orders(count if name == _BATCHES else max(1, count // _SINGLES))
                    rates = sides[name](server.url, jobs)
                    if number > 0:
                        found[name].append(rates)
    finally:
        server.remove()
    return {
        name: {column: median(rates[column] for rates in each) for column in each[0]} for name, each in found.items()
    }


def bars(figures: Figures, rounds: int) -> list[Bar]:
    """Hold every way against the rate of the document's design, from the enqueue to the stored result."""
    document = figures[_DOCUMENT]["whole jobs/s"]
    return [
        Bar(
            f"jobs {name} / {_DOCUMENT}",
            "fast",
            figures[name]["whole jobs/s"] / document,
            limit,
            True,
            "x",
            f"median of {rounds} rounds, enqueue to stored result",
        )
        for name, limit in _LIMITS.items()
    ]


def _document(url: str, jobs: list[Order]) -> Rates:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        queue = DocumentJobs(client, QUEUE)
        times = [time.perf_counter()]
        for job in jobs:
            queue.enqueue(job)
        times.append(time.perf_counter())
        for _ in jobs:
            claimed = queue.claim()
            assert claimed is not None
            assert queue.complete(claimed, _result_of(claimed.payload))
        times.append(time.perf_counter())
    return _rates(len(jobs), times)


def _alone(url: str, jobs: list[Order]) -> Rates:
    with redis.Redis.from_url(url) as client, RedisJobQueue(QUEUE, client=client) as queue:
        times = [time.perf_counter()]
        for job in jobs:
            queue.enqueue(job, kind="order")
        times.append(time.perf_counter())
        for _ in jobs:
            (claimed,) = queue.claim_jobs().jobs
            claimed.complete(_result_of(claimed.payload))
        times.append(time.perf_counter())
    return _rates(len(jobs), times)


def _batches(url: str, jobs: list[Order], *, size: int) -> Rates:
    with redis.Redis.from_url(url) as client, RedisJobQueue(QUEUE, client=client) as queue:
        times = [time.perf_counter()]
        for first in range(0, len(jobs), size):
            queue.enqueue_many(jobs[first : first + size], kind="order")
        times.append(time.perf_counter())
        done = 0
        while done < len(jobs):
            lease = queue.claim_jobs(size)
            lease.complete_many({job: _result_of(job.payload) for job in lease.jobs})
            done += len(lease)
        times.append(time.perf_counter())
    return _rates(len(jobs), times)


def _result_of(payload: Order) -> Order:
    """Return a result of its own for each job, so that no two of them can be stored as one."""
    return {"order": payload[KEY_FIELD], "sent_at": _SENT_AT}


def _rates(count: int, times: list[float]) -> Rates:
    begun, enqueued, completed = times
    return {
        "enqueued/s": count / (enqueued - begun),
        "claimed and completed/s": count / (completed - enqueued),
        "whole jobs/s": count / (completed - begun),
    }
