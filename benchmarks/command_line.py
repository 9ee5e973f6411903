"""How long the command line takes to start, and how fast it publishes beside `publish_many`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import median
from benchmarks.messages import KEY_FIELD, QUEUE, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["publish_bars", "publish_rates", "start_bars", "start_times", "steps"]

_PROGRAM = (sys.executable, "-c", "import sys; from sluicegate.cli.main import main; sys.exit(main())")
_HELP, _DEPTH, _IMPORT = "sluicegate --help", "sluicegate depth", "import redis"


def steps(settings: Settings) -> Iterator[Step]:
    """Measure what people wait for, and the rate of a publish."""

    def starts() -> Found:
        figures = start_times(rounds=max(3, settings["rounds"]))
        return Found({"Command line, seconds": figures}, start_bars(figures, settings["rounds"]))

    def publishes() -> Found:
        figures = publish_rates(rounds=settings["rounds"], count=settings["count"])
        return Found({"Publish from JSON lines": figures}, publish_bars(figures, settings["rounds"], settings["count"]))

    yield "start of the command line", starts
    yield "publish from JSON lines", publishes


def start_times(*, rounds: int) -> Figures:
    """Return the median seconds of each program, run in turn after one round to warm up."""
    server = RedisServer(programs()[0]).start()
    try:
        commands: dict[str, Sequence[str]] = {
            _IMPORT: (sys.executable, "-c", "import redis"),
            _HELP: (*_PROGRAM, "--help"),
            _DEPTH: (*_PROGRAM, "depth", QUEUE, "--url", server.url),
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                began = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                if number:
                    found[name].append(time.perf_counter() - began)
    finally:
        server.remove()
    return {name: {"seconds": median(times)} for name, times in found.items()}


def start_bars(figures: Figures, rounds: int) -> list[Bar]:
    """Hold the help against its bar, and a depth against what the import of redis-py alone takes."""
    how = f"median of {rounds} runs"
    beyond = figures[_DEPTH]["seconds"] - figures[_IMPORT]["seconds"]
    return [
        Bar(_HELP, "fast", figures[_HELP]["seconds"], 0.3, False, "s", how),
        Bar(f"{_DEPTH} beyond {_IMPORT}", "fast", beyond, 0.25, False, "s", how),
    ]


def publish_rates(*, rounds: int, count: int) -> Figures:
    """Return messages per second of a file of JSON lines, and of a list by `publish_many`, in turn."""
    server = RedisServer(programs()[0]).start()
    messages = orders(count)
    found: dict[str, list[float]] = {"publish_many": [], "sluicegate publish": []}
    try:
        with tempfile.TemporaryDirectory() as folder, server.client() as client:
            path = Path(folder, "orders.jsonl")
            path.write_text("".join(f"{json.dumps(message)}\n" for message in messages))
            for number in range(rounds + 1):
                for name in sorted(found, reverse=number % 2 == 0):
                    client.flushall()
                    rate = _publish_many(server, messages) if name == "publish_many" else _publish(server, path)
                    if number:
                        found[name].append(rate)
    finally:
        server.remove()
    return {name: {"messages/s": median(rates)} for name, rates in found.items()}


def publish_bars(figures: Figures, rounds: int, count: int) -> list[Bar]:
    """Hold the command line against `publish_many`."""
    ratio = figures["sluicegate publish"]["messages/s"] / figures["publish_many"]["messages/s"]
    how = f"median of {rounds} rounds of {count:,}, its own seconds"
    return [Bar("publish from JSON lines / publish_many", "fast", ratio, 0.6, True, "x", how)]


def _publish_many(server: RedisServer, messages: list[dict[str, object]]) -> float:
    with server.client() as client, RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD) as queue:
        began = time.perf_counter()
        assert queue.publish_many(messages).accepted == len(messages)  # type: ignore[arg-type]  # plain JSON
        return len(messages) / (time.perf_counter() - began)


def _publish(server: RedisServer, path: Path) -> float:
    """Return the rate that the command line reports, without the start of the interpreter."""
    command = (*_PROGRAM, "publish", QUEUE, str(path), "--key", KEY_FIELD, "--url", server.url, "--json")
    done = json.loads(subprocess.check_output(command, env={**os.environ, "SLUICEGATE_CONFIG": ""}))
    return float(done["published"] / done["seconds"])
