"""Messages per second of the asyncio queue beside the synchronous one, in alternating rounds on one server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import redis
import redis.asyncio

import sluicegate
import sluicegate.asyncio
from benchmarks.measure import median
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, Order, orders
from benchmarks.part import Found, Settings, Step
from tests.support.servers import RedisServer, programs

__all__ = ["run", "steps"]

_TASKS = 16
_SINGLES = 20  # one in this many messages is sent alone

Rates = dict[str, float]


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(rounds=settings["rounds"], count=settings["count"])
        return Found({"asyncio beside sync, one connection each": figures})

    yield "both flavours", measure


def run(*, rounds: int, count: int) -> dict[str, Rates]:
    """Medians over the rounds, after one to warm up."""
    server = RedisServer(programs()[0]).start()
    found: dict[str, list[Rates]] = {"sync": [], "asyncio": []}
    sides: dict[str, Callable[[str, list[Order]], Rates]] = {"sync": _sync, "asyncio": _run_asyncio}
    try:
        with server.client() as client:
            for number in range(rounds + 1):
                for name in sorted(sides, reverse=number % 2 == 0):
                    client.flushall()
                    rates = sides[name](server.url, orders(count))
                    if number > 0:
                        found[name].append(rates)
    finally:
        server.remove()
    return {
        f"messages/s, {name}": {column: median(rates[column] for rates in each) for column in each[0]}
        for name, each in found.items()
    }


def _sync(url: str, messages: list[Order]) -> Rates:
    client = redis.Redis.from_url(url)
    queue = sluicegate.RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
    singles = messages[: max(1, len(messages) // _SINGLES)]
    times = [time.perf_counter()]
    queue.publish_many(messages)
    times.append(time.perf_counter())
    while True:
        with queue.claim(BATCH) as lease:
            if not lease:
                break
            for message in lease:
                message.json()
    times.append(time.perf_counter())
    client.flushall()
    for order in singles:
        queue.publish(order)
    times.append(time.perf_counter())
    for _ in singles:
        with queue.process_message() as payload:
            assert payload is not None
    times.append(time.perf_counter())
    queue.close()
    client.close()
    return _rates(times, len(messages), len(singles))


def _run_asyncio(url: str, messages: list[Order]) -> Rates:
    return asyncio.run(_asyncio(url, messages))


async def _asyncio(url: str, messages: list[Order]) -> Rates:
    client = redis.asyncio.Redis.from_url(url)
    queue = sluicegate.asyncio.RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
    singles = messages[: max(1, len(messages) // _SINGLES)]
    times = [time.perf_counter()]
    await queue.publish_many(messages)
    times.append(time.perf_counter())
    while True:
        async with await queue.claim(BATCH) as lease:
            if not lease:
                break
            for message in lease:
                message.json()
    times.append(time.perf_counter())
    await client.flushall()
    for order in singles:
        await queue.publish(order)
    times.append(time.perf_counter())
    for _ in singles:
        async with queue.process_message() as payload:
            assert payload is not None
    times.append(time.perf_counter())
    rates = _rates(times, len(messages), len(singles))

    async def consume(left: list[Order]) -> None:
        while left:
            left.pop()
            async with queue.process_message() as payload:
                assert payload is not None

    await client.flushall()
    await queue.publish_many(singles)
    start, left = time.perf_counter(), list(singles)
    await asyncio.gather(*(consume(left) for _ in range(_TASKS)))
    rates[f"single claim+ack, {_TASKS} tasks"] = len(singles) / (time.perf_counter() - start)
    await queue.aclose()
    await client.aclose()
    return rates


def _rates(times: list[float], count: int, singles: int) -> Rates:
    names = ("publish_many", "claim+json+ack", "single publish", "single claim+ack")
    counts = (count, count, singles, singles)
    return {name: many / (end - start) for name, many, start, end in zip(names, counts, times, times[1:], strict=False)}
