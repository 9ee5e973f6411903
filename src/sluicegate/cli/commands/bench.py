"""Measures publish, claim and ack on your own server, under a throw-away name."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.text import count

if TYPE_CHECKING:
    from sluicegate.gateway import RedisGateway
    from sluicegate.queue import RedisMessageQueue

__all__ = ["bench"]

_ROUND_TRIPS = 200


def bench(
    cli: Cli,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, max=10_000_000, help="How many.")] = 50_000,
    payload_bytes: Annotated[int, typer.Option("--payload-bytes", min=2, max=1_000_000, help="Of each message.")] = 200,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages per lease.")] = 1_000,
    with_keys: Annotated[bool, typer.Option("--keys/--no-keys", help="With deduplication keys.")] = True,
) -> None:
    """Measure publish, claim and ack on this Redis, from here, with one client.

    It works on a queue with a random name and deletes all its keys afterwards. A busy server is slowed down meanwhile.
    """
    gateway = cli.gateway()
    name = f"sluicegate-bench-{secrets.token_hex(6)}"
    with _cleaned_up(gateway, name), cli.output.progress("bench", 2 * messages) as bar:
        results = _measure(_queue(gateway, name, with_keys), messages, payload_bytes, batch, bar.update)
    settings = {"messages": messages, "payload_bytes": payload_bytes, "batch": batch, "deduplication": with_keys}
    latencies = results["latency_ms"]
    keyed = "with a key" if with_keys else "without keys"
    cli.output.show(
        {"server": gateway.server, **settings, **results},
        [
            ("publish", f"{count(round(results['published_per_second']))} messages/s in calls of 1,000"),
            (
                "claim, decode, ack",
                f"{count(round(results['drained_per_second']))} messages/s in leases of {count(batch)}",
            ),
            *(
                (f"one {verb}", f"{_ms(one['p50'])} median, {_ms(one['p99'])} at p99")
                for verb, one in latencies.items()
            ),
        ],
        title=f"{gateway.server}: {count(messages)} messages of {count(payload_bytes)} bytes, {keyed}",
    )


def _queue(gateway: RedisGateway, name: str, with_keys: bool) -> RedisMessageQueue:
    from sluicegate.queue import RedisMessageQueue

    keyed: dict[str, Any] = {"get_deduplication_key": "n"} if with_keys else {}
    return RedisMessageQueue(name, gateway=gateway, deduplication_window_seconds=600, **keyed)


def _measure(
    queue: RedisMessageQueue, messages: int, payload_bytes: int, batch: int, progress: Callable[[int], object]
) -> dict[str, Any]:
    filler = "x" * max(0, payload_bytes - len('{"n":"00000000","x":""}'))

    def payloads() -> Iterator[dict[str, str]]:
        for number in range(messages):
            if number % 10_000 == 0:
                progress(number)
            yield {"n": f"{number:08}", "x": filler}

    queue.publish({"n": "first", "x": filler})  # opens the connection, and lets the server compile
    with queue.claim() as lease:
        _decode(lease)
    start = time.perf_counter()
    queue.publish_many(payloads())
    published = time.perf_counter()
    drained = 0
    while lease := queue.claim(limit=batch):
        drained += _decode(lease)
        lease.ack()
        progress(messages + drained)
    ended = time.perf_counter()
    return {
        "published_per_second": messages / (published - start),
        "drained_per_second": drained / (ended - published),
        "latency_ms": _latencies(queue, filler),
    }


def _decode(lease: Any) -> int:
    return sum(1 for message in lease if message.json())


def _latencies(queue: RedisMessageQueue, filler: str) -> dict[str, dict[str, float]]:
    """Measure single calls, one after the other."""
    taken: dict[str, list[float]] = {"publish": [], "claim": [], "ack": [], "depth": []}

    def timed(verb: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        taken[verb].append((time.perf_counter() - start) * 1000)
        return result

    for number in range(_ROUND_TRIPS):
        timed("publish", partial(queue.publish, {"n": f"single-{number}", "x": filler}))
        timed("depth", queue.depth)
        lease = timed("claim", queue.claim)
        timed("ack", lease.ack)
    return {verb: _percentiles(values) for verb, values in taken.items()}


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f}ms"


@contextmanager
def _cleaned_up(gateway: RedisGateway, name: str) -> Iterator[None]:
    """Delete every key of the queue afterwards, whatever happens."""
    try:
        yield
    finally:
        _delete_keys(gateway, name)


def _delete_keys(gateway: RedisGateway, name: str) -> None:
    """Delete the keys by their prefix, page by page; what a user without SCAN leaves behind expires."""
    pattern = f"sluicegate:{{{name}}}:*"
    for server in gateway.ask([("PING",)]):
        cursor: Any = b"0"
        while True:
            reply = gateway.ask({server: [("SCAN", cursor, "MATCH", pattern, "COUNT", 5_000)]})[server][0]
            if isinstance(reply, Exception):
                return
            cursor, keys = reply
            for first in range(0, len(keys), 500):
                gateway.ask({server: [("UNLINK", key) for key in keys[first : first + 500]]})
            if not int(cursor):
                break
