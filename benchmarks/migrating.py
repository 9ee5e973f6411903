"""Messages per second that a move of another library's queue carries, on one server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import redis

from benchmarks.measure import median
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisGateway
from sluicegate.migrating import JobQueueSource, MessageQueueSource, Migration, Source, StreamSource
from tests.migrating.old_queues import OldJobQueue, OldMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

_LEAST = 20_000
_PAYLOAD_BYTES = 200


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(rounds=settings["rounds"], count=settings["count"])
        return Found({"Moves of other libraries' queues, one client": figures}, bars(figures, settings["rounds"]))

    yield "moves", measure


def run(*, rounds: int, count: int) -> Figures:
    """Medians over the rounds, after one to warm up."""
    cases: dict[str, tuple[Callable[[redis.Redis, list[str]], None], Source, dict[str, str]]] = {
        "redis-message-queue into a queue": (_messages, MessageQueueSource("orders"), {}),
        "job queue into a queue of jobs": (_jobs, JobQueueSource(), {}),
        "stream into a stream": (_entries, StreamSource("events"), {}),
        "stream into a queue": (_entries, StreamSource("events"), {"into": "queue"}),
    }
    payloads = [json.dumps({"id": number, "text": "x" * _PAYLOAD_BYTES}) for number in range(count)]
    found: dict[str, list[float]] = {name: [] for name in cases}
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client:
            gateway = RedisGateway(redis_client=client)
            for number in range(rounds + 1):
                for name, (fill, source, options) in cases.items():
                    client.flushall()
                    fill(client, payloads)
                    report = Migration(source, "moved", source_gateway=gateway, **options).run()  # type: ignore[arg-type]
                    assert report.moved == count
                    if number:
                        found[name].append(count / report.seconds)
    finally:
        server.remove()
    return {name: {"messages/s": median(rates)} for name, rates in found.items()}


def bars(figures: Figures, rounds: int) -> list[Bar]:
    """Hold every kind of source against the promised rate."""
    return [
        Bar(
            f"move {name}",
            "fast",
            figures[name]["messages/s"],
            _LEAST,
            at_least=True,
            unit="messages/s",
            detail=f"median of {rounds} rounds, dry look included",
        )
        for name in figures
    ]


def _messages(client: redis.Redis, payloads: list[str]) -> None:
    OldMessageQueue(client).publish(*payloads)


def _jobs(client: redis.Redis, payloads: list[str]) -> None:
    OldJobQueue(client).enqueue(map(json.loads, payloads))


def _entries(client: redis.Redis, payloads: list[str]) -> None:
    pipe = client.pipeline(transaction=False)
    for payload in payloads:
        pipe.xadd("events", {"data": payload})
    pipe.execute()
