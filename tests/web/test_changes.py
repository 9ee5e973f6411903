"""Viewers get every place once, and then what has changed: 200 quiet queues cost a viewer a few bytes per second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate.gateway import RedisGateway
from sluicegate.place import Place
from sluicegate.survey import FoundPlace
from sluicegate.web.changes import Changes
from sluicegate.web.page import FixedPlaces
from sluicegate.web.sampling import Sampler
from sluicegate.web.shapes import Row
from sluicegate.web.streaming import Viewers
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

ORDERS, PAYMENTS = Place("orders"), Place("payments")
Event = tuple[str, dict[str, Any]]


@pytest.fixture
def places() -> FixedPlaces:
    """Return the places that the sampler reads."""
    return FixedPlaces([ORDERS, PAYMENTS])


@pytest.fixture
def sampler(client: redis.Redis, server: RedisServer, places: FixedPlaces) -> Iterator[Sampler]:
    """Yield a sampler whose thread would sample once per hour."""
    gateway = RedisGateway(url=server.url)
    made = Sampler(gateway, places, {}, interval_seconds=3600, idle_seconds=3600)
    yield made
    made.close()
    gateway.close()


def watched(
    sampler: Sampler, asked: FoundPlace | None, watch: Callable[[Callable[[], Awaitable[Event]]], Awaitable[None]]
) -> None:
    """Connect a viewer, and call a function with what waits for the next event."""

    async def run() -> None:
        stream: AsyncIterator[bytes] = Viewers().follow(sampler, asked)

        async def following() -> Event:
            name, _, data = (await anext(stream)).decode().partition("\ndata: ")
            return name.removeprefix("event: "), json.loads(data)

        assert (await anext(stream)).startswith(b"retry: ")
        await watch(following)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_viewer_gets_histories_once_and_then_the_places_that_changed(sampler: Sampler, make_queue: MakeQueue) -> None:
    orders, payments = make_queue("orders"), make_queue("payments")
    orders.publish("a")
    payments.publish("b")
    sampler.look()
    for _ in range(3):
        sampler.run_once()

    async def watch(following: Callable[[], Awaitable[Event]]) -> None:
        name, whole = await following()
        assert name == "overview"
        assert "since" not in whole
        assert [len(row["history"]) for row in whole["places"]] == [4, 4]
        assert whole["places"][0]["stats"]["published"] == 1

        orders.publish("c")
        sampler.run_once()
        _, changed = await following()
        assert changed["since"] == 4
        (row,) = changed["places"]
        assert (row["name"], row["depth"]["ready"], [point[1] for point in row["history"]]) == ("orders", 2, [2])
        assert "stats" not in row

        sampler._histories[ORDERS]._points.clear()  # the rate of the message that was published has ended
        sampler._histories[PAYMENTS]._points.clear()
        sampler.run_once()
        await following()
        latest = sampler.run_once()
        assert latest is not None
        _, unchanged = await following()
        assert unchanged == {"at": latest.at, "refreshed_at": latest.refreshed_at, "since": 6, "places": []}

    watched(sampler, None, watch)
    watched(sampler, None, watch_all)  # whoever connects again gets everything again


async def watch_all(following: Callable[[], Awaitable[Event]]) -> None:
    """Check that the first event has everything."""
    _, whole = await following()
    assert [row["name"] for row in whole["places"]] == ["orders", "payments"]
    assert "since" not in whole


def test_a_viewer_of_one_place_gets_its_chart_once_and_then_points(sampler: Sampler, make_queue: MakeQueue) -> None:
    orders = make_queue("orders")
    orders.publish("a")
    sampler.look()
    sampler.run_once()

    async def watch(following: Callable[[], Awaitable[Event]]) -> None:
        (_, overview), (name, whole) = await following(), await following()
        assert (overview["places"], name, len(whole["history"])) == ([], "place", 2)

        orders.publish("b")
        latest = sampler.run_once()
        assert latest is not None
        (_, overview), (_, news) = await following(), await following()
        assert (overview["at"], overview["places"]) == (latest.at, [])
        assert "history" not in news
        assert [point[:2] for point in news["points"]] == [[round(latest.at, 1), 2]]
        assert len(news["row"]["history"]) == 1

        sampler.run_once()  # a viewer who misses a sample has no gap in the chart
        sampler.run_once()
        _, (_, again) = await following(), await following()
        assert [point[1] for point in again["history"]] == [1, 1, 2, 2, 2]

    watched(sampler, FoundPlace(ORDERS, "queue"), watch)


def test_a_viewer_who_missed_samples_gets_what_changed_in_any_of_them(sampler: Sampler, make_queue: MakeQueue) -> None:
    orders, payments = make_queue("orders"), make_queue("payments")
    sampler.look()
    orders.publish("a")
    sampler.run_once()
    for history in sampler._histories.values():
        history._points.clear()  # rates of earlier samples would change the next ones too
    orders.publish("b")
    sampler.run_once()
    for history in sampler._histories.values():
        history._points.clear()
    payments.publish("c")
    latest = sampler.run_once()
    assert latest is not None

    def sent(since: int) -> list[str]:
        return [row["name"] for row in json.loads(latest.news_json(since))["places"]]

    assert (sent(3), sent(2)) == (["payments"], ["orders", "payments"])
    assert latest.news_json(0) == latest.overview_json  # for a new viewer


def test_everything_is_sent_again_when_a_place_was_added_or_removed(
    sampler: Sampler, places: FixedPlaces, make_queue: MakeQueue
) -> None:
    make_queue("orders").publish("a")
    sampler.look()
    places._places = [FoundPlace(ORDERS, "queue")]
    latest = sampler.run_once()
    assert latest is not None

    assert [row["name"] for row in json.loads(latest.news_json(1))["places"]] == ["orders"]
    assert "since" not in json.loads(latest.news_json(1))
    after = sampler.run_once()
    assert after is not None
    assert json.loads(after.news_json(2))["since"] == 2


def row(oldest: float | None, ready: int = 1, next_expiry: float | None = None) -> Row:
    """Return a row with an age and a time to wait."""
    depth = {"ready": ready, "oldest_ready_age_seconds": oldest, "next_expiry_seconds": next_expiry}
    rates = {"published_per_second": 0.0, "acked_per_second": 0.0}
    return {"kind": "queue", "name": "orders", "group": None, "depth": depth, "rates": rates, "history": []}  # type: ignore[typeddict-item]


def test_a_row_that_only_became_older_has_not_changed() -> None:
    known = Changes().after(1, 1000.0, {ORDERS: row(5.0, next_expiry=60.0)})

    older = known.after(2, 1010.0, {ORDERS: row(15.2, next_expiry=49.9)})
    assert older.places(1) == set()
    for drifted in range(3, 9):  # by a little each time, which adds up
        older = older.after(drifted, 1010.0, {ORDERS: row(15.2 + (drifted - 2) * 0.3, next_expiry=49.9)})
    assert older.places(2) == {ORDERS}
    for changed in (row(3.0, next_expiry=49.9), row(None), row(15.0, ready=2, next_expiry=50.0), row(15.0)):
        assert known.after(2, 1010.0, {ORDERS: changed}).places(1) == {ORDERS}
    assert known.after(2, 1010.0, {ORDERS: row(15.0, next_expiry=60.0)}).places(1) == {ORDERS}  # it was extended
