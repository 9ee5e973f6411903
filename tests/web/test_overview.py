"""The page shows every place of its server, as one read for all viewers found it."""

from __future__ import annotations

import redis

from sluicegate import RedisMessageQueue
from sluicegate.gates import Gate
from sluicegate.jobs import RedisJobQueue
from sluicegate.place import Place
from sluicegate.streams import RedisStreamQueue
from sluicegate.web.access import TokenAccess
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.web.conftest import TOKEN, MakeApp, Visitor


def test_the_overview_lists_queues_streams_and_groups(
    make_queue: MakeQueue, make_stream: MakeStream, visitor: Visitor
) -> None:
    queue: RedisMessageQueue = make_queue("orders")
    queue.publish_many([{"n": n} for n in range(3)])
    stream: RedisStreamQueue = make_stream("events")
    stream.publish({"n": 1})
    stream.group("billing").create("beginning")

    rows = {(row["kind"], row["name"], row["group"]): row for row in visitor.get("/api/overview").json()["places"]}

    assert rows.keys() == {("queue", "orders", None), ("stream", "events", None), ("group", "events", "billing")}
    assert rows["queue", "orders", None]["depth"]["ready"] == 3
    assert rows["queue", "orders", None]["stats"]["published"] == 3
    assert rows["stream", "events", None]["info"]["length"] == 1
    assert rows["group", "events", "billing"]["depth"]["ready"] == 1
    assert rows["queue", "orders", None]["history"][0][1] == 3


def test_a_place_shows_its_gates_and_why_nothing_is_ready(make_queue: MakeQueue, make_app: MakeApp) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a", "b"])
    visitor = Visitor(make_app(gates={"orders": {"small": Gate(min_ready=2), "old": Gate(max_age_seconds=60)}}))

    shown = visitor.get("/api/place?queue=orders").json()

    assert [gate["label"] for gate in shown["gates"]] == ["small", "old"]
    assert shown["open"] == "depth"
    assert shown["history"][0][1:4] == [2, 0, 0]
    assert shown["why_not_ready"] == ""
    assert visitor.get("/api/place?queue=other").json()["why_not_ready"] == "no such queue yet"


def test_a_job_list_is_shown_as_one_even_if_it_was_asked_for_as_a_queue(
    client: redis.Redis, server: RedisServer, make_app: MakeApp
) -> None:
    with RedisJobQueue("nightly", url=server.url) as jobs:
        jobs.enqueue({"n": 1})
    unlisted, listed = Visitor(make_app(places=[Place("other"), Place("nightly")])), Visitor(make_app())

    assert [row["kind"] for row in unlisted.get("/api/overview").json()["places"]] == ["queue", "jobs"]
    for visitor in (unlisted, listed):
        assert visitor.get("/api/place?queue=nightly").json()["row"]["kind"] == "jobs"
        assert visitor.get("/api/place?queue=other").json()["row"]["kind"] == "queue"


def test_a_page_with_named_places_shows_no_others(make_queue: MakeQueue, make_app: MakeApp) -> None:
    make_queue("orders").publish("a")
    make_queue("salaries").publish("b")
    visitor = Visitor(make_app(places=[Place("orders")]))

    assert [row["name"] for row in visitor.get("/api/overview").json()["places"]] == ["orders"]
    refused = visitor.get("/api/place?queue=salaries")
    assert refused.status_code == 400
    assert "does not show queue 'salaries'" in refused.json()["error"]["message"]


def test_a_request_that_names_no_place_is_explained(visitor: Visitor) -> None:
    for query in ("", "?queue=a&stream=b", "?queue=a&jobs=b", "?group=b", "?queue=%20"):
        refused = visitor.get(f"/api/place{query}")
        assert refused.status_code == 400, query
        assert refused.json()["error"]["type"] == "ConfigurationError"


def test_an_outage_is_shown_with_the_places_as_they_were_last_seen(own_server: RedisServer, make_app: MakeApp) -> None:
    RedisMessageQueue("orders", url=own_server.url).publish("a")
    app = make_app(url=own_server.url, access=TokenAccess(TOKEN))
    visitor = Visitor(app)
    assert [row["name"] for row in visitor.get("/api/overview").json()["places"]] == ["orders"]

    own_server.stop()
    sample = app.state.page.sampler.run_once()

    assert sample.error is not None
    shown = sample.overview()
    assert [row["name"] for row in shown["places"]] == ["orders"]
    assert shown["error"]["type"] in {"RedisUnavailableError", "RetryBudgetExhaustedError"}
