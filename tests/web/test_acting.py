"""What the page's buttons do to a real queue, stream, group or job list."""

from __future__ import annotations

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until
from tests.web.conftest import Visitor


def bury(queue: RedisMessageQueue, *payloads: object) -> None:
    """Make dead letters of payloads, with an error each."""
    queue.publish_many(payloads)
    with queue.claim(limit=len(payloads)) as lease:
        for message in lease:
            lease.bury([message], error=ValueError(f"cannot work on {message.text()}"))


def test_publish_stores_json_text_headers_and_a_deduplication_key(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders")
    body = {"payload": '{"n": 1}', "headers": {"source": "page"}, "deduplication_key": "k"}

    assert visitor.ok("/api/publish?queue=orders", body) | {"ids": []} == {"accepted": 1, "duplicates": 0, "ids": []}
    assert visitor.ok("/api/publish?queue=orders", body)["duplicates"] == 1
    visitor.ok("/api/publish?queue=orders", {"payload": '{"n": 2}', "format": "text", "count": 2})
    visitor.ok("/api/publish?queue=orders", {"payload": "plain", "delay_seconds": 60})

    first, second, third = queue.peek()
    assert (first.payload, first.headers, first.deduplication_key) == (b'{"n":1}', {"source": "page"}, "k")
    assert second.payload == third.payload == b'{"n": 2}'
    assert [message.payload for message in queue.peek(state="delayed")] == [b"plain"]


@pytest.mark.parametrize(
    ("query", "body", "said"),
    [
        ("queue=q", {"payload": "{", "format": "json"}, "the payload is not JSON"),
        ("queue=q", {"payload": "a", "count": 0}, "count: Input should be greater than or equal to 1"),
        ("queue=q", {"payload": "secret-payload", "extra": 1}, "extra: Extra inputs are not permitted"),
        ("queue=q", {}, "payload: Field required"),
        ("queue=q", {"payload": "x" * 10_000, "count": 10_000}, "10000 copies of this payload are more than"),
        ("queue=q", {"payload": "a", "kind": "b"}, "only jobs have a kind"),
        ("stream=s&group=g", {"payload": "a"}, "this needs 'queue' or 'stream' or 'jobs'"),
        ("stream=s", {"payload": "a", "delay_seconds": 5}, "a stream delivers at once"),
        ("jobs=j", {"payload": "a"}, "the payload of a job is a JSON object or list"),
        ("queue=q", {"payload": '{"a": "secret-payload\\ud800"}'}, "lone surrogate at $.a"),
        ("queue=q", {"payload": '{"a": 123456789012345678901234567890}'}, "$.a"),
        ("jobs=j", {"payload": '{"a": "\\udfff"}'}, "nothing was published"),
    ],
)
def test_a_publish_that_cannot_work_is_explained(
    query: str, body: dict[str, object], said: str, visitor: Visitor
) -> None:
    refused = visitor.post(f"/api/publish?{query}", body)

    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]
    assert "secret-payload" not in refused.text


def test_dead_letters_are_redriven_by_id_and_purged_by_name(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders")
    bury(queue, "a", "b", "c")
    first = visitor.get("/api/messages?queue=orders&state=dead").json()["messages"][0]

    assert visitor.ok("/api/redrive?queue=orders", {"ids": [first["id"]]})["redriven"] == 1
    assert [message.text() for message in queue.peek()] == [first["payload"]]
    wrong = visitor.post("/api/purge?queue=orders", {"state": "dead", "confirm": "order"})
    assert wrong.status_code == 400
    assert queue.depth().dead == 2
    assert visitor.ok("/api/purge?queue=orders", {"state": "dead", "confirm": "orders"}) == {"purged": 2}
    assert queue.depth().dead == 0


def test_waiting_messages_are_cancelled_and_claims_paused(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders")
    ids = queue.publish_many(["a", "b"]).ids

    assert visitor.ok("/api/cancel?queue=orders", {"ids": [ids[0], "unknown"]}) == {"cancelled": [ids[0]]}
    assert visitor.ok("/api/pause?queue=orders") == {"paused": True, "changed": True}
    assert queue.depth().paused
    assert visitor.ok("/api/resume?queue=orders") == {"paused": False, "changed": True}
    with queue.claim(limit=10) as lease:
        assert [message.text() for message in lease] == ["b"]


def test_reap_recovers_expired_leases_and_buries_nothing(make_queue: MakeQueue, visitor: Visitor) -> None:
    queue = make_queue("orders", max_delivery_count=1)
    queue.publish("a")
    queue.claim(lease_seconds=0.05, heartbeat=False)
    wait_until(lambda: queue.depth().expired == 1, "the lease expires")

    assert visitor.ok("/api/reap?queue=orders") == {"recovered": 1}
    depth = queue.depth()
    assert (depth.returned, depth.dead, depth.in_flight) == (1, 0, 0)


def test_a_stream_is_published_to_and_its_group_administered(make_stream: MakeStream, visitor: Visitor) -> None:
    stream = make_stream("events")
    group = stream.group("billing", start="beginning")
    visitor.ok("/api/publish?stream=events", {"payload": {"n": 1}})
    with group.claim() as lease:
        lease.bury(list(lease), reason="hopeless")

    assert visitor.ok("/api/redrive?stream=events&group=billing", {"reason": "hopeless"})["redriven"] == 1
    assert visitor.ok("/api/pause?stream=events&group=billing")["changed"]
    assert visitor.get("/api/messages?stream=events").json()["messages"][0]["payload"] == '{"n":1}'
    missing = visitor.get("/api/messages?stream=events&group=none&state=pending")
    assert missing.status_code == 404


def test_jobs_are_enqueued_listed_and_cancelled(client: redis.Redis, server: RedisServer, visitor: Visitor) -> None:
    with RedisJobQueue("mails", url=server.url, result_ttl_seconds=7 * 86400) as jobs:
        first = jobs.enqueue({"to": "a"}, kind="email")
        kept = client.hget("sluicegate:{mails}:tracking", "ttl_ms")
        visitor.ok("/api/publish?jobs=mails", {"payload": {"to": "b"}, "kind": "sms"})
        with jobs.claim_jobs() as lease:
            lease.jobs[0].update(0.5, "half")
            shown = visitor.get("/api/jobs?jobs=mails&status=running").json()
            assert [(job["id"], job["kind"], job["progress"], job["note"]) for job in shown["jobs"]] == [
                (first, "email", 0.5, "half")
            ]
            assert shown["stats"]["running"] == 1

    waiting = visitor.get("/api/jobs?jobs=mails&status=waiting").json()["jobs"]
    assert [(job["kind"], job["payload"]) for job in waiting] == [("sms", '{"to":"b"}')]
    ids = [waiting[0]["id"]]
    assert visitor.ok("/api/jobs/cancel?jobs=mails", {"ids": ids}) == {"cancelled": ids}
    statuses = [job["status"] for job in visitor.get("/api/jobs?jobs=mails").json()["jobs"]]
    assert statuses == ["completed", "cancelled"]
    # The page leaves how long ended jobs are kept to whoever enqueues.
    assert client.hget("sluicegate:{mails}:tracking", "ttl_ms") == kept == b"604800000"
