"""The page shows messages of every state, whoever stored them, and who holds what."""

from __future__ import annotations

import json

import pytest
import redis

from tests.support.flavours import MakeQueue, MakeStream
from tests.web.conftest import MakeApp, Visitor


def test_each_state_is_shown_with_what_is_known_of_it(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders", enable_completed_queue=True, enable_failed_queue=True)
    queue.publish_many([{"n": n} for n in range(5)], headers={"tenant": "acme"})
    with queue.claim(limit=4) as lease:
        done, again, hopeless, held = list(lease)
        lease.ack([done])
        lease.nack([again], error=ValueError("later"))
        lease.bury([hopeless], reason="broken", error=KeyError("why"))
        lease.release([held])
    queue.publish("later", delay_seconds=60)
    taken = queue.claim(limit=1, heartbeat=False)

    def shown(state: str) -> list[dict[str, object]]:
        messages: list[dict[str, object]] = visitor.get(f"/api/messages?queue=orders&state={state}").json()["messages"]
        return messages

    (pending,) = shown("pending")
    assert (pending["payload"], pending["headers"], pending["format"]) == ('{"n":4}', {"tenant": "acme"}, "json")
    assert [(each["payload"], each["format"]) for each in shown("delayed")][-1] == ("later", "text")
    (dead,) = shown("dead")
    assert (dead["reason"], dead["error_type"], dead["delivery_count"]) == ("broken", "KeyError", 1)
    assert dead["buried_at"] > dead["enqueued_at"]  # type: ignore[operator]
    assert [each["payload"] for each in shown("completed")] == ['{"n":0}']
    assert {each["verb"] for each in shown("failed")} == {"nack", "bury"}
    (in_flight,) = shown("in_flight")
    assert (in_flight["payload"], in_flight["lease_id"]) == ('{"n":1}', taken.id)


def test_a_search_reads_through_the_state_and_pages_through_what_it_finds(
    make_queue: MakeQueue, visitor: Visitor
) -> None:
    make_queue("orders").publish_many([{"n": n, "even": n % 2 == 0} for n in range(500)])

    def found(**query: object) -> list[int]:
        answer = visitor.get("/api/messages", params={"queue": "orders", "search": 'EVEN":true', **query}).json()
        assert answer["scanned"] <= 500
        return [json.loads(message["payload"])["n"] for message in answer["messages"]]

    assert found(count=3) == [0, 2, 4]
    assert found(count=3, offset=3) == [6, 8, 10]
    assert len(found(count=500)) == 250
    assert visitor.get("/api/messages?queue=orders&search=none").json() == {
        "messages": [],
        "scanned": 500,
        "whole": True,
        "next": None,
    }


@pytest.mark.parametrize("search", ["", "n"])
def test_the_server_says_where_the_next_page_begins(search: str, make_queue: MakeQueue, visitor: Visitor) -> None:
    make_queue("orders").publish_many([{"n": n} for n in range(25)])
    asked = {"queue": "orders", "count": 10, "search": search}

    offsets, found = [0], []
    while (offset := offsets[-1]) is not None:
        page = visitor.get("/api/messages", params={**asked, "offset": offset}).json()
        found += [json.loads(message["payload"])["n"] for message in page["messages"]]
        offsets.append(page["next"])

    assert offsets == [0, 10, 20, None]
    assert found == list(range(25))


def test_large_messages_end_a_page_early_and_the_next_one_misses_none(
    make_queue: MakeQueue, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue("orders")
    queue.publish_many([{"n": n, "text": "x" * 1000} for n in range(100)])
    monkeypatch.setattr("sluicegate.web.messages._MAX_PAGE_BYTES", 20_000)

    offsets, found = [0], []
    while (offset := offsets[-1]) is not None:
        page = visitor.get(f"/api/messages?queue=orders&count=500&offset={offset}").json()
        assert len(page["messages"]) <= 25
        found += [json.loads(message["payload"])["n"] for message in page["messages"]]
        offsets.append(page["next"])

    assert found == list(range(100))
    assert len(offsets) > 5


def test_values_of_other_programs_and_binary_payloads_are_shown(
    bare_client: redis.Redis, make_app: MakeApp, make_queue: MakeQueue
) -> None:
    queue = make_queue("orders")
    queue.publish(b"\xff\x00binary")
    bare_client.lpush("sluicegate:{orders}:pending", b"<script>alert(1)</script>")
    with queue.claim(limit=10) as lease:
        lease.release(list(lease))
    visitor = Visitor(make_app())

    (foreign,) = visitor.get("/api/messages?queue=orders&state=dead").json()["messages"]
    (binary,) = visitor.get("/api/messages?queue=orders&state=returned").json()["messages"]

    assert (foreign["id"], foreign["payload"], foreign["reason"]) == (None, "<script>alert(1)</script>", "foreign")
    assert (binary["payload"], binary["format"]) == ("\\xff\x00binary", "binary")


def test_a_long_payload_is_cut_but_exported_whole(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders")
    queue.publish("x" * 100_000)
    with queue.claim() as lease:
        lease.bury(list(lease), reason="long")

    (shown,) = visitor.get("/api/messages?queue=orders&state=dead").json()["messages"]
    export = visitor.get("/api/dead/export?queue=orders")

    assert (len(shown["payload"]), shown["truncated"]) == (65_536, True)
    assert shown["size"] > 100_000
    (line,) = export.text.splitlines()
    assert len(json.loads(line)["payload"]) == 100_000
    assert export.headers["content-disposition"] == "attachment; filename*=UTF-8''orders-dead.jsonl"


@pytest.mark.parametrize("query", ["state=other", "count=0", "count=501", "offset=-1", "state=history"])
def test_a_query_that_cannot_work_is_refused(query: str, visitor: Visitor) -> None:
    refused = visitor.get(f"/api/messages?queue=orders&{query}")

    assert refused.status_code == 400
    assert query.partition("=")[0] in refused.text


def test_the_history_of_a_stream_is_read_in_pages(make_stream: MakeStream, visitor: Visitor) -> None:
    make_stream("events").publish_many(["a", "b", "c"])

    first = visitor.get("/api/messages?stream=events&count=2").json()["messages"]
    rest = visitor.get("/api/messages", params={"stream": "events", "after": first[-1]["id"]}).json()["messages"]

    assert [message["payload"] for message in first + rest] == ["a", "b", "c"]


def test_leases_and_consumers_say_who_holds_what_until_when(
    make_queue: MakeQueue, make_stream: MakeStream, visitor: Visitor
) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a", "b", "c"])
    queue.claim(limit=2, lease_seconds=60, lease_id="mine", heartbeat=False)
    queue.claim(limit=1, lease_seconds=600, heartbeat=False)

    answer = visitor.get("/api/leases?queue=orders").json()

    first, second = answer["leases"]
    assert (first["lease_id"], first["messages"], first["expired"]) == ("mine", 2, False)
    assert 50 < first["seconds_left"] <= 60
    assert first["deadline"] - first["extended"] == pytest.approx(60, abs=1)
    assert (second["messages"], answer["whole"]) == (1, True)
    (holder,) = visitor.get("/api/consumers?queue=orders").json()["consumers"]
    assert (holder["messages"], holder["leases"]) == (3, 2)

    stream = make_stream("events")
    stream.publish_many(["a", "b"])
    stream.group("billing", start="beginning", consumer="ann").claim(limit=2, heartbeat=False)
    (ann,) = visitor.get("/api/consumers?stream=events&group=billing").json()["consumers"]
    assert (ann["name"], ann["messages"], ann["leases"], ann["foreign"]) == ("ann", 2, 1, False)
    refused = visitor.get("/api/leases?stream=events")
    assert refused.status_code == 400
    assert "this needs 'queue' or 'group' or 'jobs'" in refused.json()["error"]["message"]
