"""`sluicegate migrate` shows what would move, and moves it with `--yes`."""

from __future__ import annotations

import redis

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.migrating.old_queues import OldJobQueue, OldMessageQueue


def test_a_message_queue_moves_only_with_yes(client: redis.Redis, call: Call) -> None:
    old = OldMessageQueue(client)
    old.publish("a", "b")
    old.end("dlq", "d")

    shown = call("migrate", "message-queue", "orders")

    assert (shown.code, shown.err) == (0, "3 would move; give --yes to move them\n")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["redis-message-queue", "'orders'", "→", "queue", "'orders'"],
        ["part", "key", "count", "becomes"],
        ["pending", "orders::pending", "2", "pending"],
        ["dead", "orders::dlq", "1", "dead"],
    ]
    assert client.llen("orders::pending") == 2

    moved = call("migrate", "message-queue", "orders", "--into", "new", "--yes", "--only", "pending")

    assert (moved.code, moved.err) == (0, "")
    assert "2 moved in " in moved.out
    assert [message.text() for message in RedisMessageQueue("new", client=client).peek()] == ["a", "b"]
    assert client.llen("orders::dlq") == 1


def test_json_has_the_plan_and_the_report(client: redis.Redis, call: Call) -> None:
    OldJobQueue(client).enqueue([[1]])
    client.lpush("queue:jobs:pending", "ghost")

    plan = call("migrate", "job-queue", "--json").record
    done = call("migrate", "job-queue", "--json", "--yes")

    assert (plan["dry_run"], plan["total"], plan["target"]) == (True, 2, "queue of jobs 'queue:jobs'")
    assert (done.code, done.record["moved"], done.record["left"]) == (1, 1, 1)
    assert done.record["parts"][0]["reasons"] == {"an id without a record": 1}


def test_a_refusal_says_why_and_what_to_do(client: redis.Redis, call: Call) -> None:
    old = OldMessageQueue(client)
    old.publish("a")
    old.claim()

    refused = call("migrate", "message-queue", "orders", "--yes")

    assert refused.code == 4
    assert "consumers of redis-message-queue 'orders' may be working on 1 of 1 messages; stop them first" in refused.err
    assert refused.err.endswith("nothing was moved\n")
    assert call("migrate", "message-queue", "orders", "--yes", "--in-flight", "return").code == 0
    assert call("migrate", "message-queue", "orders", "--in-flight", "some").code == 2


def test_streams_become_streams_or_queues(client: redis.Redis, call: Call) -> None:
    for number in range(3):
        client.xadd("events", {"data": str(number)}, id=f"{number + 1}-1")
    client.xgroup_create("events", "billing", "2-1")

    moved = call("migrate", "stream", "events", "--group", "billing", "--into", "bills", "--yes", "--json").record
    rest = call("migrate", "stream", "events", "--yes", "--json").record
    nothing = call("migrate", "stream", "absent")

    assert (moved["moved"], moved["target"]) == (1, "queue 'bills'")
    assert (rest["moved"], rest["target"]) == (2, "stream 'events'")
    assert (nothing.code, nothing.err) == (0, "nothing would move\nthere is no stream 'absent'; is the name right?\n")
