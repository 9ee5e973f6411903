"""Triggers on an event loop of their own, without a triggerer: what they yield, how often they ask Redis, outages."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from airflow_provider_sluicegate.triggers import _poller
from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger
from airflow_provider_sluicegate.triggers.room import RedisQueueRoomTrigger
from sluicegate import RedisMessageQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.servers import PasswordServer
from tests.support.servers import free_port

pytestmark = pytest.mark.airflow

T = TypeVar("T")
SECONDS = 60.0


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own; no task and no poller may be left behind."""

    async def bounded() -> T:
        async with asyncio.timeout(SECONDS):
            result = await work()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []
        assert not _poller._pollers.get(asyncio.get_running_loop())
        return result

    return asyncio.run(bounded())


async def event_of(trigger: Any) -> dict[str, Any]:
    """Return the payload of a trigger's first event, and end the trigger as a triggerer does."""
    events = trigger.run()
    try:
        payload: dict[str, Any] = json.loads(json.dumps((await anext(events)).payload))
        return payload
    finally:
        await events.aclose()
        await trigger.cleanup()


@asynccontextmanager
async def started(*triggers: Any) -> AsyncIterator[list[asyncio.Task[dict[str, Any]]]]:
    """Run triggers at the same time; those that still wait at the end are cancelled."""
    tasks = [asyncio.create_task(event_of(trigger)) for trigger in triggers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Coroutine[Any, Any, None]]:
    """Return a coroutine function that waits until pollers have read the depths so many times more."""
    done = 0
    changed: asyncio.Event | None = None
    original = _poller.DepthPoller.run_once

    async def counted(poller: Any) -> float:
        nonlocal done
        pause = await original(poller)
        done += 1
        if changed is not None:
            changed.set()
        return pause

    async def wait(count: int) -> None:
        nonlocal changed
        target, changed = done + count, asyncio.Event()
        while done < target:
            await changed.wait()
            changed.clear()

    monkeypatch.setattr(_poller.DepthPoller, "run_once", counted)
    return wait


# ---------------------------------------------------------------------- what a trigger yields


@pytest.mark.parametrize(
    "trigger",
    [
        RedisQueueTrigger(queue_name=["a", "b"], min_ready="3", match="all", poll_interval_seconds=2.5),
        RedisQueueTrigger(queue_name="{x}", max_age_seconds=1.5, min_dead=2, initial_delay_seconds=3),
        RedisQueueRoomTrigger(queue_name="a", max_waiting=5, redis_conn_id="other"),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_a_trigger_is_rebuilt_from_plain_values(trigger: Any) -> None:
    from airflow.sdk.module_loading import import_string

    path, arguments = trigger.serialize()
    plain = json.loads(json.dumps(arguments))

    assert plain == arguments
    assert import_string(path)(**plain).serialize() == (path, arguments)
    assert "queue_name" in arguments
    assert "queue" not in arguments


def test_an_open_gate_fires_at_once_with_the_counts(queue: RedisMessageQueue) -> None:
    queue.publish_many([{"note": "CANARY"}] * 3)

    event = run(lambda: event_of(RedisQueueTrigger(queue_name=queue.name, min_ready="3")))

    assert event["status"] == "open"
    assert event["value"].pop("oldest_ready_age_seconds") >= 0
    assert event["value"] == {
        "queue": queue.name, "ready": 3, "pending": 3, "in_flight": 0, "delayed": 0, "dead": 0, "paused": False,
        "fired_by": "depth",
    }  # fmt: skip


def test_a_closed_gate_fires_when_it_opens(queue: RedisMessageQueue, readings: Any) -> None:
    queue.publish("a")

    async def work() -> dict[str, Any]:
        trigger = RedisQueueTrigger(queue_name=queue.name, min_ready=2, poll_interval_seconds=0.02)
        async with started(trigger) as (waiting,):
            await readings(3)
            assert not waiting.done()
            queue.publish("b")
            return await waiting

    assert run(work)["value"]["ready"] == 2


def test_a_paused_queue_opens_no_gate(queue: RedisMessageQueue, readings: Any) -> None:
    queue.publish("a")
    queue.pause()

    async def work() -> dict[str, Any]:
        async with started(RedisQueueTrigger(queue_name=queue.name, min_ready=1, poll_interval_seconds=0.02)) as (
            waiting,
        ):
            await readings(3)
            assert not waiting.done()
            queue.resume()
            return await waiting

    assert run(work)["value"]["paused"] is False


@pytest.mark.parametrize(("match", "opens"), [("any", ["b"]), ("all", ["a", "b"])])
def test_several_queues(
    queue: RedisMessageQueue, embedded_url: str, match: Any, opens: list[str], readings: Any
) -> None:
    names = {"a": f"{queue.name}-a", "b": f"{queue.name}-b"}
    with RedisMessageQueue(names["b"], url=embedded_url) as b, RedisMessageQueue(names["a"], url=embedded_url) as a:
        b.publish("x")

        async def work() -> dict[str, Any]:
            trigger = RedisQueueTrigger(
                queue_name=list(names.values()), min_ready=1, match=match, poll_interval_seconds=0.02
            )
            async with started(trigger) as (waiting,):
                if match == "all":
                    await readings(3)
                    assert not waiting.done()
                    a.publish("x")
                return await waiting

        value = run(work)["value"]
    assert value["open"] == [names[name] for name in opens]
    assert [one["queue"] for one in value["queues"]] == list(names.values())


def test_room_is_what_waits_and_not_what_is_in_flight(queue: RedisMessageQueue, readings: Any) -> None:
    queue.publish_many("abc")
    queue.publish_many("de", delay_seconds=1000)

    async def work() -> dict[str, Any]:
        trigger = RedisQueueRoomTrigger(queue_name=queue.name, max_waiting=3, poll_interval_seconds=0.02)
        async with started(trigger) as (waiting,):
            await readings(3)
            assert not waiting.done()
            queue.claim(2)
            return await waiting

    assert run(work) == {"status": "room", "waiting": 3}


# ---------------------------------------------------------------------- one poller per connection


def test_200_triggers_of_a_connection_cost_one_write_per_interval_and_two_connections(
    password_server: PasswordServer, connect: Connect, readings: Any
) -> None:
    connect(host="127.0.0.1", port=password_server.port, password=PASSWORD)
    triggers = [RedisQueueTrigger(queue_name=f"q{n}", min_ready=1, poll_interval_seconds=0.2) for n in range(200)]

    async def work() -> None:
        with password_server.client() as client:
            others = {one["id"] for one in client.client_list()}
            async with started(*triggers) as tasks:
                await readings(2)
                client.config_resetstat()
                await readings(3)
                stats = client.info("commandstats")
                assert stats["cmdstat_evalsha"]["calls"] == 600
                assert client.info("stats")["total_reads_processed"] <= 3 * 4 + 10  # a write of 200 is read in chunks
                assert len({one["id"] for one in client.client_list()} - others) <= 2
                assert not any(task.done() for task in tasks)
            assert {one["id"] for one in client.client_list()} <= others, "the poller closed its connections"

    run(work)


def test_an_interval_of_zero_does_not_ask_redis_all_the_time(queue: RedisMessageQueue, readings: Any) -> None:
    async def work() -> float:
        async with started(RedisQueueTrigger(queue_name=queue.name, min_ready=1, poll_interval_seconds=0)):
            await readings(1)
            began = asyncio.get_running_loop().time()
            await readings(5)
            return asyncio.get_running_loop().time() - began

    assert run(work) >= 0.2


def test_triggers_of_one_queue_share_its_reading(queue: RedisMessageQueue, readings: Any) -> None:
    queue.publish("a")

    async def work() -> list[dict[str, Any]]:
        triggers = [RedisQueueTrigger(queue_name=queue.name, min_ready=1) for _ in range(20)]
        async with started(*triggers) as tasks:
            await readings(1)
            return list(await asyncio.gather(*tasks))

    assert [event["status"] for event in run(work)] == ["open"] * 20


def test_a_trigger_that_starts_later_is_answered_at_once(queue: RedisMessageQueue, readings: Any) -> None:
    queue.publish("a")

    async def work() -> dict[str, Any]:
        async with started(
            RedisQueueTrigger(queue_name=f"{queue.name}-other", min_ready=1, poll_interval_seconds=1000)
        ):
            await readings(1)
            trigger = RedisQueueTrigger(queue_name=queue.name, min_ready=1, poll_interval_seconds=1000)
            return await event_of(trigger)

    assert run(work)["status"] == "open"


_LOADED_IN = """
import asyncio, sys, threading
from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger

threads = {}

class Finder:
    def find_spec(self, name, path=None, target=None):
        threads.setdefault(name, threading.current_thread() is threading.main_thread())

async def main():
    assert "redis" not in sys.modules
    sys.meta_path.insert(0, Finder())
    return await anext(RedisQueueTrigger(queue_name="orders", min_ready=1).run())

event = asyncio.run(main())
print(event.payload["status"], threads["redis"])
"""


def test_the_client_is_loaded_in_a_thread_so_that_other_triggers_continue(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    code = _LOADED_IN.replace('"orders"', repr(queue.name))

    shown = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert shown.splitlines()[-1] == "open False"


# ---------------------------------------------------------------------- what goes wrong


def test_an_outage_kills_no_trigger_and_logs_one_warning_a_minute(
    connect: Connect, readings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = PasswordServer(PASSWORD)
    server.start()
    connect(host="127.0.0.1", port=server.port, password=PASSWORD)
    monkeypatch.setattr(_poller, "_MAX_PAUSE_SECONDS", 0.02)
    lines: list[str] = []

    class Log:
        def info(self, event: str, *args: Any) -> None:
            lines.append(event % args)

        warning = info

    monkeypatch.setattr(RedisQueueTrigger, "log", Log())

    async def work() -> list[dict[str, Any]]:
        triggers = [RedisQueueTrigger(queue_name=f"q{n}", min_ready=1, poll_interval_seconds=0.02) for n in range(3)]
        async with started(*triggers) as tasks:
            await readings(2)
            server.stop()
            await readings(5)
            assert not any(task.done() for task in tasks)
            server.start()
            with server.client() as client:
                for number in range(3):
                    RedisMessageQueue(f"q{number}", client=client).publish("a")
            return list(await asyncio.gather(*tasks))

    with caplog.at_level(logging.INFO, logger=_poller.__name__):
        try:
            events = run(work)
        finally:
            server.remove()

    assert [event["value"]["ready"] for event in events] == [1, 1, 1]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert f"127.0.0.1:{server.port} cannot be reached" in warnings[0]
    assert sum("waiting until it is back" in line for line in lines) == 3
    assert sum("answers again" in line for line in lines) == 3
    assert PASSWORD not in "".join([*lines, *warnings])


@pytest.mark.parametrize(
    ("arguments", "says", "is_permanent"),
    [
        ({"redis_conn_id": "absent"}, "there is no connection 'absent'", True),
        ({"min_ready": "many"}, "min_ready must be a whole number or None, not 'many'", True),
        ({"queue_name": " "}, "see what it renders to", True),
        ({"queue_name": []}, "the name of a queue or a list of names", True),
        ({"queue_name": ["a", "a"]}, "a name twice", True),
        ({"match": "some"}, "match", True),
    ],
)
def test_what_cannot_work_ends_the_trigger_with_an_event(
    queue: RedisMessageQueue, arguments: dict[str, Any], says: str, is_permanent: bool
) -> None:
    trigger = RedisQueueTrigger(**{"queue_name": queue.name, "min_ready": 1, **arguments})

    event = run(lambda: event_of(trigger))

    assert event["status"] == "error"
    assert says in event["error"]
    assert event["is_permanent"] is is_permanent


def test_a_wrong_password_ends_the_trigger_and_a_retry_may_help(
    password_server: PasswordServer, connect: Connect
) -> None:
    connect(host="127.0.0.1", port=password_server.port, password="wrong-" + PASSWORD)

    event = run(lambda: event_of(RedisQueueTrigger(queue_name="orders", min_ready=1)))

    assert (event["status"], event["is_permanent"]) == ("error", False)
    assert PASSWORD not in event["error"]


def test_a_foreign_value_at_one_queues_key_ends_only_its_trigger(
    password_server: PasswordServer, connect: Connect, readings: Any
) -> None:
    connect(host="127.0.0.1", port=password_server.port, password=PASSWORD)
    with password_server.client() as client:
        client.set("sluicegate:{foreign}:pending", "a text")
        try:

            async def work() -> dict[str, Any]:
                good = RedisQueueTrigger(queue_name="good", min_ready=1, poll_interval_seconds=0.02)
                async with started(good) as (waiting,):
                    await readings(1)
                    event = await event_of(RedisQueueTrigger(queue_name="foreign", min_ready=1))
                    await readings(2)
                    assert not waiting.done()
                    return event

            event = run(work)
        finally:
            client.delete("sluicegate:{foreign}:pending")
    assert "foreign" in event["error"]


def test_a_changed_connection_is_used_after_an_error(
    queue: RedisMessageQueue, embedded_url: str, connect: Connect, readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_poller, "_MAX_PAUSE_SECONDS", 0.02)
    connect("moves", host="127.0.0.1", port=free_port())
    queue.publish("a")

    async def work() -> dict[str, Any]:
        trigger = RedisQueueTrigger(
            queue_name=queue.name, min_ready=1, poll_interval_seconds=0.02, redis_conn_id="moves"
        )
        async with started(trigger) as (waiting,):
            await readings(2)
            connect("moves", extra={"url": embedded_url})
            return await waiting

    assert run(work)["status"] == "open"


def test_a_fault_of_the_poller_itself_ends_its_triggers(
    queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(poller: Any) -> float:
        raise RuntimeError("a fault")

    monkeypatch.setattr(_poller.DepthPoller, "run_once", broken)

    with pytest.raises(RuntimeError, match="a fault"):
        run(lambda: event_of(RedisQueueTrigger(queue_name=queue.name, min_ready=1)))
