"""One read serves all viewers, rarely while nobody looks, and events reach a browser as they happen."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import redis
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from sluicegate.gateway import RedisGateway
from sluicegate.place import Place
from sluicegate.web.history import History, Point
from sluicegate.web.page import FixedPlaces
from sluicegate.web.sampling import Sampler
from sluicegate.web.streaming import Viewers
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer, free_port
from tests.support.snippets import snippet
from tests.support.waiting import wait_until
from tests.web.conftest import BEARER, TOKEN, MakeApp, Visitor


@pytest.fixture
def sampler(client: redis.Redis, server: RedisServer) -> Iterator[Sampler]:
    """Yield a sampler of one queue, whose thread would sample once per hour."""
    gateway = RedisGateway(url=server.url)
    made = Sampler(gateway, FixedPlaces([Place("orders")]), {}, interval_seconds=3600, idle_seconds=3600)
    yield made
    made.close()
    gateway.close()


def test_viewers_share_one_sample_and_many_places_cost_one_command_each(
    make_queue: MakeQueue, make_app: MakeApp, bare_client: redis.Redis
) -> None:
    for number in range(20):
        make_queue(f"q{number}").publish("a")
    app = make_app(places=[Place(f"q{number}") for number in range(20)])
    app.state.page.sampler._interval_seconds = 3600
    visitor = Visitor(app)
    visitor.get("/api/overview")
    bare_client.config_resetstat()

    assert len({visitor.get("/api/overview").text for _ in range(10)}) == 1
    app.state.page.sampler.run_once()

    commands = bare_client.info("commandstats")
    assert sum(commands[name]["calls"] for name in commands if name.startswith("cmdstat_evalsha")) == 20


def test_a_sample_is_made_by_the_first_viewer_and_wakes_those_who_wait(sampler: Sampler, make_queue: MakeQueue) -> None:
    make_queue("orders").publish("a")
    assert sampler.latest is None
    woken = threading.Event()
    unsubscribe = sampler.subscribe(woken.set)

    assert sampler.look().number == 1
    assert woken.wait(20)
    woken.clear()
    unsubscribe()
    assert sampler.run_once() is not None
    assert not woken.is_set()


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    history = History()
    for second in range(60):
        history.add(Point(1000.0 + second, second, 0, 0, None, published=second * 5, acked=second**2))

    assert history.rates() == {"published_per_second": 5.0, "acked_per_second": 108.0}
    assert history.ready(2) == [(1058.0, 58), (1059.0, 59)]
    history.add(Point(1060.0, 0, 0, 0, None, published=0, acked=0))  # the queue was deleted
    assert history.rates() == {"published_per_second": 0.0, "acked_per_second": 0.0}
    assert len(History(places=3000).chart()) == 0


def test_histories_share_their_memory() -> None:
    few, many = History(places=10), History(places=3000)
    for second in range(1000):
        for history in (few, many):
            history.add(Point(float(second), 0, 0, 0, None, 0, 0))

    assert (len(few.chart()), len(many.chart())) == (600, 100)


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve a page with uvicorn in a thread, and yield its address."""
    port = free_port()
    running = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1, access_log=False)
    )
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait_until(lambda: running.started, "the server listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def test_events_reach_viewers_until_they_leave(make_queue: MakeQueue, make_app: MakeApp) -> None:
    queue = make_queue("orders")
    queue.publish("a")
    app = make_app()
    app.state.page.sampler._interval_seconds = 0.05
    names: list[str] = []
    with served(app) as url, httpx.Client(base_url=url, headers=BEARER, timeout=30, trust_env=False) as viewer:
        with viewer.stream("GET", "/api/events?queue=orders") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.headers["content-encoding"] == "identity"
            wait_until(lambda: app.state.viewers.count == 1, "the viewer is counted")
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    names.append(line.removeprefix("event: "))
                elif line.startswith("data: ") and names[-1] == "place":
                    if json.loads(line.removeprefix("data: "))["row"]["depth"]["ready"] == 2:
                        break
                    if len(names) == 2:
                        queue.publish("b")
        assert names[:2] == ["overview", "place"]
        assert viewer.get("/api/events", headers={"Authorization": "wrong"}).status_code == 401
        wait_until(lambda: app.state.viewers.count == 0, "the server notices that the viewer left")


def test_a_silence_is_broken_by_heartbeats_and_a_stream_ends(sampler: Sampler, make_queue: MakeQueue) -> None:
    make_queue("orders").publish("a")
    sampler.look()
    viewers = Viewers(heartbeat_seconds=0.01, most_seconds=0.3)

    async def events() -> list[bytes]:
        return [event async for event in viewers.follow(sampler, None)]

    found = asyncio.run(events())

    assert found[0].startswith(b"retry: ")
    assert found[1].startswith(b"event: overview\ndata: {")
    assert found[2] == b"event: heartbeat\ndata: {}\n\n"
    assert viewers.count == 0


def test_too_many_viewers_are_refused(make_app: MakeApp) -> None:
    app = make_app()
    app.state.viewers.count = 200

    refused = Visitor(app).get("/api/events")

    assert refused.status_code == 503
    assert "use api/overview instead" in refused.json()["error"]["message"]


def test_the_documented_calls_of_a_script_redrive_dead_letters(make_queue: MakeQueue, make_app: MakeApp) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a", "b"])
    with queue.claim(limit=2) as lease:
        first, second = list(lease)
        lease.bury([first], reason="max_delivery_count")
        lease.bury([second], reason="hopeless")
    with served(make_app()) as url:
        code = snippet("web-curl").replace("http://localhost:8080", url)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env={**os.environ, "SLUICEGATE_UI_TOKEN": TOKEN, "no_proxy": "*"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    assert json.loads(ran.stdout) == {"redriven": 1, "blocked": 0, "scanned": 2}
    assert [dead.reason for dead in queue.peek(state="dead")] == ["hopeless"]


def test_the_documented_pages_work(client: redis.Redis, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_UI_TOKEN", "a-token-that-nobody-guesses")
    for name, code in {"web-page": snippet("web-page"), "web-mounted": snippet("web-mounted")}.items():
        program: dict[str, object] = {"__name__": name}
        exec(code.replace("redis://localhost:6379/0", server.url), program)  # noqa: S102
        app = program["app"]
        assert isinstance(app, FastAPI)
        if name == "web-page":
            assert Visitor(app).get("/api/overview").json()["places"] == []
            app.state.close()
        else:
            from starlette.middleware.sessions import SessionMiddleware

            app.add_middleware(SessionMiddleware, secret_key="of the sessions")
            assert TestClient(app).get("/queues/api/overview").status_code == 401
