"""Messages per second of a stream and a group, beside bare pipelines of XADD and of XREADGROUP with XACK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import redis

from benchmarks.measure import Sample, measured, median
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, Order, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support.servers import RedisServer, programs

__all__ = ["run", "steps"]

_BARE = "bare"
_GROUP = "billing"
_PUBLISHED, _CLAIMED, _ADDED, _READ = "publish_many", "claim+json+ack", "bare XADD", "bare XREADGROUP+XACK"
Samples = dict[str, list[Sample]]


def steps(settings: Settings) -> Iterator[Step]:
    """Yield one step, which measures all four sides in turn, round by round."""
    yield "streams", lambda: _found(run(rounds=settings["rounds"], count=settings["count"]), settings)


def run(*, rounds: int, count: int) -> Samples:
    """Measure `rounds` times, after one round to warm up; even rounds go the other way about."""
    server = RedisServer(programs()[0]).start()
    samples: Samples = {}
    sides: list[Callable[[redis.Redis, list[Order]], dict[str, Sample]]] = [_ours, _bare]
    try:
        with server.client() as client:
            for number in range(rounds + 1):
                for side in sides if number % 2 else sides[::-1]:
                    client.flushall()
                    found = side(client, orders(count))
                    for name, sample in found.items() if number else ():
                        samples.setdefault(name, []).append(sample)
    finally:
        server.remove()
    return samples


def _ours(client: redis.Redis, messages: list[Order]) -> dict[str, Sample]:
    with RedisStreamQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD) as stream:
        group = stream.group(_GROUP)
        group.create("beginning")
        with measured(client) as published:
            report = stream.publish_many(messages)
        assert report.accepted == len(messages)
        with measured(client) as claimed:
            drained = _drain(group)
        assert drained == len(messages)
    return {_PUBLISHED: published, _CLAIMED: claimed}


def _drain(group: ConsumerGroup) -> int:
    drained = 0
    while True:
        lease = group.claim(BATCH, heartbeat=False)
        if not lease:
            return drained
        for message in lease.messages:
            message.json()
        lease.ack()
        drained += len(lease)


def _bare(client: redis.Redis, messages: list[Order]) -> dict[str, Sample]:
    with measured(client) as added:
        for first in range(0, len(messages), BATCH):
            pipeline = client.pipeline(transaction=False)
            for message in messages[first : first + BATCH]:
                pipeline.xadd(_BARE, {"data": json.dumps(message)})
            pipeline.execute()
    client.xgroup_create(_BARE, _GROUP, "0")
    with measured(client) as read:
        drained = _read(client)
    assert drained == len(messages)
    return {_ADDED: added, _READ: read}


def _read(client: redis.Redis) -> int:
    drained = 0
    while True:
        found: Any = client.xreadgroup(_GROUP, "c", {_BARE: ">"}, count=BATCH)
        if not found:
            return drained
        ((_, entries),) = found
        for _, fields in entries:
            json.loads(fields[b"data"])
        client.xack(_BARE, _GROUP, *[name for name, _ in entries])
        drained += len(entries)


def _found(samples: Samples, settings: Settings) -> Found:
    count = settings["count"]
    figures = {
        name: {
            "messages/s": count / median(sample.wall for sample in each),
            "client CPU µs": 1e6 * median(sample.client_cpu for sample in each) / count,
            "Redis CPU µs": 1e6 * median(sample.redis_cpu for sample in each) / count,
        }
        for name, each in samples.items()
    }
    how = f"median of {settings['rounds']} rounds of {count:,}, unix socket"
    bars = [
        Bar(f"streams: {name}", "fast", figures[name]["messages/s"], least, True, "messages/s", how)
        for name, least in ((_PUBLISHED, 80_000), (_CLAIMED, 100_000))
    ]
    bars += [
        Bar(f"streams: {ours} / {bare}", "fast", _ratio(samples, ours, bare), 0.6, True, "x", how)
        for ours, bare in ((_PUBLISHED, _ADDED), (_CLAIMED, _READ))
    ]
    return Found({"Streams": figures}, bars)


def _ratio(samples: Samples, ours: str, bare: str) -> float:
    """Return how many times as fast as the bare side: the median over the rounds."""
    pairs = zip(samples[ours], samples[bare], strict=True)
    return median(bare_sample.wall / our_sample.wall for our_sample, bare_sample in pairs)
