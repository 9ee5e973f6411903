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
        seconds = []
        for _ in range(requests):
            start = time.perf_counter()
            sampler.run_once().overview_json  # noqa: B018  (it is made when it is read)
            seconds.append(time.perf_counter() - start)
        found["sample"] = _row(seconds)
    finally:
        app.state.close()
        gateway.close()
        server.remove()
    return found


def bars(figures: Figures) -> list[Bar]:
    """Hold every answer, the slowest one included, against the promise."""
    answers = [row["p50 ms"] for name, row in figures.items() if name != "sample"]
    return [
        Bar("answer of the page", "fast", max(answers), 100, False, "ms", "the slowest kind, with 200 queues"),
        Bar(
            "sample of the page",
            "fast",
            figures["sample"]["p50 ms"],
            250,
            False,
            "ms",
            "of 200 queues, once per second",
        ),
    ]


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
