"""A health check says what is wrong: Redis, a place beyond a limit, or a worker whose loop stands still."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import redis
from fastapi import FastAPI
from fastapi.testclient import TestClient

import sluicegate.asyncio
from sluicegate.asyncio.worker import Worker as AsyncWorker
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import RedisGateway
from sluicegate.health import HealthLimits, HealthReport, check_health, health_router
from sluicegate.place import Place
from sluicegate.survey import PlaceDirectory
from sluicegate.worker import Worker
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer, free_port
from tests.support.snippets import snippet
from tests.support.waiting import wait_until


@pytest.fixture
def gateway(client: redis.Redis, server: RedisServer) -> Iterator[RedisGateway]:
    """Yield a gateway to the test's server."""
    made = RedisGateway(url=server.url)
    yield made
    made.close()


def failed(report: HealthReport) -> list[tuple[str, str]]:
    return [(check.name, check.place) for check in report.failed]


def test_a_queue_within_its_limits_is_ready(make_queue: MakeQueue, gateway: RedisGateway) -> None:
    make_queue("orders").publish("a")
    limits = HealthLimits(max_ready=1, max_oldest_ready_seconds=60, max_in_flight=0, max_dead=0)

    report = check_health(gateway, [Place("orders")], limits=limits)

    assert report.is_ready
    assert [check.name for check in report.checks] == ["redis", "place", "ready", "oldest_ready", "in_flight", "dead"]
    assert report.as_json()["status"] == "ready"


def test_each_limit_that_is_exceeded_is_named_with_its_queue(make_queue: MakeQueue, gateway: RedisGateway) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a", "b", "c"])
    with queue.claim() as lease:
        lease.bury(list(lease), reason="hopeless")
    queue.claim(heartbeat=False)
    wait_until(lambda: (queue.depth().oldest_ready_age_seconds or 0) > 0.001, "the oldest message is too old")
    limits = HealthLimits(max_ready=0, max_oldest_ready_seconds=0.001, max_in_flight=0, max_dead=0)

    report = check_health(gateway, [Place("orders")], limits=limits)

    place = "queue 'orders'"
    assert failed(report) == [("ready", place), ("oldest_ready", place), ("in_flight", place), ("dead", place)]
    assert report.failed[0].detail == "messages that are ready: 1, at most 0"
    single = check_health(gateway, [Place("orders")], limits=limits, limits_of={Place("orders"): HealthLimits()})
    assert single.is_ready


def test_the_lag_of_a_group_and_of_the_slowest_group_are_limited(
    make_stream: MakeStream, gateway: RedisGateway
) -> None:
    stream = make_stream("events")
    stream.group("slow").create("beginning")
    stream.publish_many(["a", "b"])
    stream.group("new").create("end")
    group, other = Place("events", stream=True, group="slow"), Place("events", stream=True, group="new")

    report = check_health(gateway, [group, other, Place("events", stream=True)], limits=HealthLimits(max_lag=1))

    assert ("lag", str(group)) in failed(report)
    assert ("lag", str(other)) not in failed(report)
    missing = check_health(gateway, [Place("events", stream=True, group="none")])
    assert failed(missing) == [("place", "group 'none' of stream 'events'")]


def test_redis_that_is_away_is_the_only_check_of_it() -> None:
    gateway = RedisGateway(url=f"redis://:secret-word@127.0.0.1:{free_port()}/0")

    report = check_health(gateway, [Place("orders")])

    assert failed(report) == [("redis", "")]
    assert "secret-word" not in str(report.as_json())


def test_a_worker_that_does_not_run_and_one_whose_loop_is_blocked_are_not_ready(
    make_queue: MakeQueue, server: RedisServer, gateway: RedisGateway
) -> None:
    with make_queue("orders") as queue:
        worker = Worker(queue, name="threads")
        worker.register("any", lambda payload: None)
        assert failed(check_health(gateway, workers=[worker])) == [("worker", "threads")]
        with worker:
            assert check_health(gateway, workers=[worker]).is_ready
        assert worker.silent_seconds is None

    begun, blocked = threading.Event(), threading.Event()

    async def work() -> None:
        async with sluicegate.asyncio.RedisMessageQueue("blocked", url=server.url) as queue:
            await queue.publish("a")
            worker = AsyncWorker(queue, name="asyncio")
            workers.append(worker)

            @worker.handler("any")
            async def handle(payload: bytes) -> None:
                begun.set()
                blocked.wait(30)  # as a handler does that forgets to await

            worker.set_default_handler(handle)
            await worker.run_once()

    workers: list[AsyncWorker] = []
    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        assert begun.wait(30)
        limits = HealthLimits(max_worker_silence_seconds=0.3)
        wait_until(
            lambda: (
                [
                    check.place
                    for check in check_health(gateway, limits=limits, workers=workers).failed
                    if check.detail.startswith("its loop last ran")
                ]
                == ["asyncio"]
            ),
            "the blocked loop is noticed",
            seconds=20,
        )
    finally:
        blocked.set()
        thread.join(30)


def test_the_router_answers_probes(make_queue: MakeQueue, gateway: RedisGateway) -> None:
    make_queue("orders").publish_many(["a", "b"])
    app = FastAPI()
    app.include_router(health_router(gateway, PlaceDirectory(gateway), limits=HealthLimits(max_ready=1)))
    probe = TestClient(app)

    assert probe.get("/healthz").json() == {"status": "ok"}
    unready = probe.get("/readyz")
    assert unready.status_code == 503
    assert unready.json()["status"] == "unready"
    assert unready.json()["checks"][0] == {
        "name": "ready",
        "ok": False,
        "detail": "messages that are ready: 2, at most 1",
        "place": "queue 'orders'",
        "value": 2,
        "limit": 1,
    }
    quiet = FastAPI()
    quiet.include_router(health_router(gateway, [Place("orders")], shows_details=False))
    assert TestClient(quiet).get("/readyz").json() == {"status": "ready"}


def test_probes_of_a_server_that_is_away_are_answered_at_once() -> None:
    gateway = RedisGateway(url=f"redis://127.0.0.1:{free_port()}/0")
    app = FastAPI()
    app.include_router(health_router(gateway, PlaceDirectory(gateway)))
    probe = TestClient(app)

    assert probe.get("/healthz").status_code == 200
    assert probe.get("/readyz").status_code == 503


def test_limits_come_from_a_configuration_file() -> None:
    assert HealthLimits.of({"max_ready": 5}) == HealthLimits(max_ready=5)
    with pytest.raises(ConfigurationError, match="no limit 'max_redy'"):
        HealthLimits.of({"max_redy": 5})
    with pytest.raises(ConfigurationError, match="max_dead"):
        HealthLimits(max_dead=-1)


def test_a_check_loads_no_fastapi() -> None:
    script = "import sys, sluicegate.health; sys.exit('fastapi' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_documented_programs_work(
    client: redis.Redis, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, code in {"health-check": snippet("health-check"), "health-router": snippet("health-router")}.items():
        program: dict[str, object] = {}
        exec(code.replace("redis://localhost:6379/0", server.url), program)  # noqa: S102
        if name == "health-check":
            assert capsys.readouterr().out.splitlines()[0] == "False"  # the group does not exist here
        else:
            app = program["app"]
            assert isinstance(app, FastAPI)
            assert TestClient(app).get("/readyz").json() == {"status": "unready"}  # the worker does not run
