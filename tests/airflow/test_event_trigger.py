"""The event trigger of an asset watcher: when it fires, when it fires again, and that it never ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_sluicegate.triggers import _poller
from airflow_provider_sluicegate.triggers.event import Rearming, RedisQueueEventTrigger
from sluicegate import Depth, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment
from tests.airflow.test_triggers import run
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow


def depth(*, ready: int = 0, claimed: int = 0, dead: int = 0, paused: bool = False) -> Depth:
    return Depth(
        ready=ready, pending=ready, returned=0, delayed=0, due=0, in_flight=0, leases=0, expired=0, dead=dead,
        oldest_ready_age_seconds=None, paused=paused, published_total=claimed + ready, claimed_total=claimed,
    )  # fmt: skip


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fires() -> Callable[..., bool]:
    """Return a function that says whether a gate of one message fires at a time, by what the queue then holds."""
    clock = Clock()
    rearming = Rearming(60, clock)

    def at(now: float, *, by: str | None = "depth", **counts: Any) -> bool:
        clock.now = now
        found = depth(**counts)
        return rearming.fires(found, by if found.ready or found.dead else None)

    return at


def test_an_open_gate_fires_once(fires: Callable[..., bool]) -> None:
    assert not fires(0)
    assert fires(1, ready=5)
    assert [fires(now, ready=5) for now in (2, 30, 60)] == [False, False, False]


def test_it_fires_again_when_nothing_was_claimed_for_a_minute(fires: Callable[..., bool]) -> None:
    assert fires(0, ready=5)
    assert not fires(59.9, ready=5)
    assert fires(60, ready=5)
    assert not fires(61, ready=5)
    assert fires(120, ready=6)


def test_a_claim_puts_the_next_event_off(fires: Callable[..., bool]) -> None:
    assert fires(0, ready=50)
    assert not fires(50, ready=40, claimed=10)
    assert not fires(100, ready=30, claimed=20)
    assert not fires(159, ready=30, claimed=20)
    assert fires(160, ready=30, claimed=20)


def test_it_fires_anew_when_it_was_closed_in_between(fires: Callable[..., bool]) -> None:
    assert fires(0, ready=5)
    assert not fires(5, claimed=5)
    assert fires(10, ready=1, claimed=5)


def test_dead_letters_fire_again_only_when_there_are_more(fires: Callable[..., bool]) -> None:
    assert fires(0, by="dead", dead=3)
    assert not fires(1000, by="dead", dead=3)
    assert fires(1001, by="dead", dead=4)


# ---------------------------------------------------------------------- on a real queue


async def collect(trigger: BaseEventTrigger, until: Callable[[list[Any]], bool]) -> list[dict[str, Any]]:
    """Return the payloads that a trigger yields until a condition about them holds."""
    payloads: list[dict[str, Any]] = []
    events = trigger.run()
    try:
        async for event in events:
            payloads.append(json.loads(json.dumps(event.payload)))
            if until(payloads):
                return payloads
    finally:
        await events.aclose()  # type: ignore[attr-defined]  # an async generator
    raise AssertionError("an event trigger must not end")


def test_a_watcher_gets_counts_when_the_gate_opens_and_again_while_nothing_is_claimed(
    queue: RedisMessageQueue,
) -> None:
    queue.publish_many([{"note": "CANARY"}] * 3)
    trigger = RedisQueueEventTrigger(
        queue_name=queue.name, min_ready=3, refire_after_seconds=0.2, poll_interval_seconds=0.02
    )

    events = run(lambda: collect(trigger, lambda found: len(found) == 3))

    assert [event["ready"] for event in events] == [3, 3, 3]
    assert events[0]["fired_by"] == "depth"
    assert "CANARY" not in json.dumps(events)


def test_a_paused_queue_fires_only_after_its_resume(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.publish("a")
    queue.pause()
    looks = 0
    original = _poller.DepthPoller.run_once

    async def counted(poller: Any) -> float:
        nonlocal looks
        pause = await original(poller)
        looks += 1
        if looks == 5:
            queue.resume()
        return pause

    monkeypatch.setattr(_poller.DepthPoller, "run_once", counted)
    trigger = RedisQueueEventTrigger(queue_name=queue.name, poll_interval_seconds=0.02)

    (event,) = run(lambda: collect(trigger, lambda found: True))

    assert looks >= 5
    assert event["paused"] is False


def test_no_error_ends_it(
    queue: RedisMessageQueue, embedded_url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_poller, "_MAX_PAUSE_SECONDS", 0.02)
    queue.publish("a")
    failures: list[str] = []
    original = _poller.DepthPoller.run_once

    async def counted(poller: Any) -> float:
        pause = await original(poller)
        failures.append("x")
        if len(failures) == 3:
            connect("moves", host="127.0.0.1", port=free_port())
        if len(failures) == 6:
            connect("moves", extra={"url": embedded_url})
        return pause

    monkeypatch.setattr(_poller.DepthPoller, "run_once", counted)
    trigger = RedisQueueEventTrigger(queue_name=queue.name, poll_interval_seconds=0.02, redis_conn_id="moves")

    (event,) = run(lambda: collect(trigger, lambda found: True))

    assert len(failures) >= 6, "there was no such connection, then no server"
    assert event["ready"] == 1


# ---------------------------------------------------------------------- as Airflow keeps it


def test_it_is_rebuilt_from_plain_values_with_the_same_identity() -> None:
    trigger = RedisQueueEventTrigger(queue_name="orders", min_ready=3, refire_after_seconds=90)

    path, arguments = trigger.serialize()
    plain = json.loads(json.dumps(arguments))

    assert plain == arguments
    rebuilt = RedisQueueEventTrigger(**plain)
    assert BaseEventTrigger.hash(*rebuilt.serialize()) == BaseEventTrigger.hash(path, arguments)


def test_the_common_trigger_makes_one_of_the_scheme(queue: RedisMessageQueue) -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    trigger = MessageQueueTrigger(scheme="redis+sluicegate", queue_name=queue.name, min_ready=2)

    assert trigger.serialize() == RedisQueueEventTrigger(queue_name=queue.name, min_ready=2).serialize()
    assert Asset("orders", watchers=[AssetWatcher(name="gate", trigger=trigger)]).watchers[0].name == "gate"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"queue_name": ["a", "b"]}, "give each queue a watcher of its own"),
        ({"queue_name": " "}, "queue_name"),
        ({"min_ready": 0}, "min_ready must be None or an int of 1 or more"),
        ({"refire_after_seconds": 0}, "refire_after_seconds must be a number above 0"),
        ({"poll_interval_seconds": -1}, "poll_interval_seconds must be a number above 0"),
    ],
)
def test_what_cannot_work_is_refused_when_the_dag_is_read(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RedisQueueEventTrigger(**{"queue_name": "orders", **arguments})


def test_the_documentations_watcher_is_what_airflow_stores(airflow_deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "store_when_full.py"
    file.write_text(snippet("airflow-watcher"))
    with airflow_deployment.dags([file]) as dags:
        (asset,) = dags["store_when_full"].timetable.asset_condition.objects
        (watcher,) = asset.watchers
    assert (
        watcher.trigger.serialize()[1]
        == RedisQueueEventTrigger(queue_name="to-store", min_ready=1000, max_age_seconds=60).serialize()[1]
    )
