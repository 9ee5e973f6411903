"""A scrape of many queues: how long it takes, and how many commands it sends."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import median
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.metrics import QueueCollector, render
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

_QUEUES = 200


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        figures = run(scrapes=settings["scrapes"])
        return Found({"Scraping": figures}, bars(figures))

    yield f"{_QUEUES} queues", measure


def run(*, scrapes: int) -> Figures:
    """Scrape that many queues, which the collector has found, several times."""
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client:
            gateway = RedisGateway(url=server.url)
            for number in range(_QUEUES):
                queue = RedisMessageQueue(f"queue-{number}", gateway=gateway)
                queue.publish_many(str(each) for each in range(100))
                queue.claim(10)
            collector = QueueCollector(gateway=gateway)
            render(collector)  # finds the queues, and loads the script
            seconds, client_info = [], client.info
            before = _sent(client_info("commandstats"))
            for _ in range(scrapes):
                start = time.perf_counter()
                render(collector)
                seconds.append(time.perf_counter() - start)
            sent = _sent(client_info("commandstats")) - before
            gateway.close()
    finally:
        server.remove()
    return {
        f"{_QUEUES} queues": {
            "scrape p50 ms": 1000 * median(seconds),
            "scrape worst ms": 1000 * max(seconds),
            "commands per scrape": sent / scrapes,
        }
    }


def bars(figures: Figures) -> list[Bar]:
    (row,) = figures.values()
    return [
        Bar("scrape of 200 queues", "fast", row["scrape p50 ms"], 200, False, "ms", "with the text that is served"),
        Bar("scrape's commands", "fast", row["commands per scrape"], 250, False, "commands", "for 200 queues"),
    ]


def _sent(stats: dict[str, dict[str, float]]) -> float:
    """Return how many commands clients sent, but for those that load and look; scripts' own are not among these."""
    names = ("evalsha", "eval", "ping", "scan", "hello")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)
