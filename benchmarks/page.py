"""The web page with many queues and many messages: how long each of its answers takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi.testclient import TestClient

from benchmarks.measure import median
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.web import TokenAccess, create_app
from sluicegate.web.sampling import Sampler
from tests.support.servers import RedisServer, programs

__all__ = ["bars", "run", "steps"]

_QUEUES = 200
_TOKEN = "the token of the benchmark"  # noqa: S105
_HEADERS = {"Authorization": f"Bearer {_TOKEN}"}
_PATHS = {
    "overview": "/api/overview",
    "place": "/api/place?queue=queue-0",
    "leases": "/api/leases?queue=queue-0",
    "messages": "/api/messages?queue=queue-0&count=50",
    "dead letters": "/api/messages?queue=queue-0&state=dead&count=50",
    "last page": "/api/messages?queue=queue-0&count=50&offset=4000",
}


def steps(settings: Settings) -> Iterator[Step]:
    """Measure all answers on one server."""

    def measure() -> Found:
        figures = run(messages=settings["page_messages"], requests=settings["page_requests"])
        return Found({"The web page": figures}, bars(figures))

    yield f"{_QUEUES} queues", measure


def run(*, messages: int, requests: int) -> Figures:
    """Fill 200 queues, and ask for each of the page's answers several times; one more sample is made each time."""
    server = RedisServer(programs()[0]).start()
    gateway = RedisGateway(url=server.url)
    app = create_app(gateway=gateway, access=TokenAccess(_TOKEN))
    try:
        for number in range(_QUEUES):
            queue = RedisMessageQueue(f"queue-{number}", gateway=gateway)
            queue.publish_many({"order": each, "note": "x" * 150} for each in range(messages // _QUEUES))
            with queue.claim(50) as lease:
                lease.bury(list(lease), reason="benchmark")
            queue.claim(50, lease_seconds=600, heartbeat=False)
        browser = TestClient(app, headers=_HEADERS)
        sampler = app.state.page.sampler
        browser.get("/api/overview")
        while len(sampler.latest.histories[sampler.latest.found[0].place].chart()) < 60:
            sampler.run_once()
        found: Figures = {name: _asked(browser, path, requests) for name, path in _PATHS.items()}
        found |= _sampled(sampler, gateway, requests)
    finally:
        app.state.close()
        gateway.close()
        server.remove()
    return found


def bars(figures: Figures) -> list[Bar]:
    """Hold every answer, the slowest one included, against the promise."""
    answers = [figures[name]["p50 ms"] for name in _PATHS]
    return [
        Bar("answer of the page", "fast", max(answers), 100, False, "ms", "the slowest kind, with 200 queues"),
        Bar(
            "sample of the page",
            "fast",
            figures["busy second"]["p50 ms"],
            250,
            False,
            "ms",
            "of 200 queues, once per second",
        ),
        Bar(
            "events of the page",
            "fast",
            figures["busy second"]["KB per viewer"],
            150,
            False,
            "KB/s",
            "to a viewer of 200 queues that all change",
        ),
    ]


def _sampled(sampler: Sampler, gateway: RedisGateway, times: int) -> Figures:
    """Measure what each second costs: while nothing happens, and while something does in every queue."""
    queues = [RedisMessageQueue(f"queue-{number}", gateway=gateway) for number in range(_QUEUES)]
    found: Figures = {"first event": {"KB per viewer": len(sampler.look().overview_json) / 1000}}
    for name, busy in (("quiet second", ()), ("busy second", queues)):
        seconds, processor, sizes = [], [], []
        for _ in range(times):
            for queue in busy:
                queue.publish("another")
            start, used = time.perf_counter(), time.thread_time()
            sample = sampler.run_once()
            assert sample is not None
            news = sample.news_json(sample.number - 1)
            seconds.append(time.perf_counter() - start)
            processor.append(time.thread_time() - used)
            sizes.append(len(news))
        found[name] = {
            **_row(seconds),
            "CPU p50 ms": 1000 * median(processor),
            "KB per viewer": median(sizes) / 1000,
        }
    return found


def _asked(browser: TestClient, path: str, requests: int) -> dict[str, float]:
    seconds = []
    for _ in range(requests):
        start = time.perf_counter()
        answer = browser.get(path)
        seconds.append(time.perf_counter() - start)
        assert answer.status_code == 200, answer.text
    return _row(seconds)


def _row(seconds: list[float]) -> dict[str, float]:
    return {"p50 ms": 1000 * median(seconds), "worst ms": 1000 * max(seconds)}
