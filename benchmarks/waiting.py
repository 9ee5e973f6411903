"""A consumer that waits: how fast it wakes up, and what it costs while nothing comes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import redis

from benchmarks.measure import median
from benchmarks.messages import QUEUE
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

_IDLE_SECONDS = 10.0
_QUIET_SECONDS = 0.3


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(wakes=settings["wakes"], windows=settings["windows"])
        return Found({"Waiting": figures}, bars(figures))

    yield "one consumer", measure


def run(*, wakes: int, windows: int) -> Figures:
    """Wake a waiting consumer so many times, then count what it sends in windows of ten seconds."""
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client, server.client() as waiting:
            consumer, publisher = (RedisMessageQueue(QUEUE, client=each) for each in (waiting, client))
            publisher.publish(str(time.perf_counter()))
            found: list[float] = []
            handled, stop = threading.Event(), threading.Event()

            def consume() -> None:
                while not stop.is_set():
                    with consumer.process_message() as payload:
                        if payload is not None:
                            found.append(1000 * (time.perf_counter() - float(payload)))
                            handled.set()

            thread = threading.Thread(target=consume)
            thread.start()
            randomly = random.Random(wakes)
            for _ in range(wakes + 1):
                assert handled.wait(30)
                handled.clear()
                time.sleep(_QUIET_SECONDS * (0.5 + randomly.random()))
                publisher.publish(str(time.perf_counter()))
            assert handled.wait(30)
            commands = [_commands(server, client) for _ in range(windows)]
            stop.set()
            thread.join()
            publisher.close()
            consumer.close()
    finally:
        server.remove()
    ordered = sorted(found[1:])  # the first loads scripts
    return {
        "one consumer": {
            "wake-up p50 ms": median(ordered),
            "wake-up p95 ms": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
            "idle commands per 5 s": max(commands) * 5 / _IDLE_SECONDS,
        }
    }


def bars(figures: Figures) -> list[Bar]:
    (row,) = figures.values()
    return [
        Bar("idle wake-up p95", "fast", row["wake-up p95 ms"], 10, False, "ms", "from the publish to the payload"),
        Bar("idle consumer", "fast", row["idle commands per 5 s"], 2, False, "commands", "sent to Redis per 5 s"),
    ]  # fmt: skip


def _commands(server: RedisServer, client: redis.Redis) -> int:
    """Return what others send in ten seconds, as MONITOR sees it; what scripts call is marked there."""
    sent = 0
    with server.client() as watching, watching.monitor() as monitor:
        end = threading.Timer(_IDLE_SECONDS, client.echo, ["the end"])
        end.start()
        while not (command := monitor.next_command())["command"].startswith("ECHO"):
            sent += command["client_type"] != "lua"
        end.join()
    return sent
