"""Administering queues: dead letters, pauses, purges, cancellations, repairs and jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.jobs import RedisJobQueue
from tests.cli.conftest import Call
from tests.support.flavours import MakeQueue


@pytest.fixture
def dead(make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue with four dead letters: two out of stock, one with another error, one that had too many tries."""
    queue = make_queue("orders", get_deduplication_key="id")
    queue.publish_many([{"id": number} for number in range(4)], headers={"type": "order"})
    lease = queue.claim(4, heartbeat=False)
    lease.bury(lease.messages[:2], error=ValueError("no tea"), reason="out of stock")
    lease.bury(lease.messages[2], error=KeyError("customer"), reason="out of stock")
    lease.bury(lease.messages[3])
    return queue


FILTERS: list[tuple[tuple[str, ...], list[int]]] = [
    ((), [0, 1, 2, 3]),
    (("--reason", "buried"), [3]),
    (("--error-type", "KeyError"), [2]),
    (("--search", "no tea"), [0, 1]),
    (("--search", '"id":2'), [2]),
    (("--search", "order"), [0, 1, 2, 3]),
    (("--key", "1"), [1]),
    (("--older-than", "1h"), []),
    (("--reason", "out of stock", "--limit", "2"), [0, 1]),
]


@pytest.mark.parametrize(("options", "expected"), FILTERS, ids=lambda value: " ".join(map(str, value)))
def test_filters_choose_what_is_listed_and_what_is_redriven(
    call: Call, dead: RedisMessageQueue, options: tuple[str, ...], expected: list[int]
) -> None:
    listed = call("dead", "list", "orders", *options, "--json").records
    planned = call("dead", "redrive", "orders", *options, "--dry-run", "--json").record
    assert dead.depth().dead == 4
    done = call("dead", "redrive", "orders", *options, "--json").record

    assert [one["payload"]["id"] for one in listed] == expected
    assert (planned["dry_run"], planned["redrive"]["redriven"]) == (True, len(expected))
    assert (done["dry_run"], done["redrive"]["redriven"]) == (False, len(expected))
    assert [message.json()["id"] for message in dead.peek()] == expected


def test_dead_letters_are_shown_whole_and_counted(call: Call, dead: RedisMessageQueue) -> None:
    first = dead.peek(1, state="dead")[0].id

    shown = call("dead", "show", "orders", str(first), "missing")
    counted = call("dead", "summary", "orders", "--json").records

    assert shown.code == 1
    assert shown.out.splitlines()[0] == first
    assert '  │ {"id":0}' in shown.out.splitlines()
    assert "queue 'orders' has no dead letter missing" in shown.err
    assert [(one["reason"], one["error_type"], one["messages"]) for one in counted] == [
        ("out of stock", "ValueError", 2),
        ("out of stock", "KeyError", 1),
        ("buried", None, 1),
    ]


def test_a_blocked_dead_letter_is_a_finding(call: Call, dead: RedisMessageQueue) -> None:
    call("dead", "redrive", "orders", "--id", str(dead.peek(1, state="dead")[0].id))
    dead.claim(heartbeat=False).bury()
    dead.forget("0")
    dead.publish({"id": 0})

    shown = call("dead", "redrive", "orders", "--key", "0", "--json")

    assert (shown.code, shown.record["redrive"]["blocked"]) == (1, 1)


def test_dead_letters_are_purged_only_when_that_is_confirmed(call: Call, dead: RedisMessageQueue) -> None:
    refused = call("dead", "purge", "orders")
    planned = call("dead", "purge", "orders", "--dry-run", "--json").record
    aged = call("dead", "purge", "orders", "--dry-run", "--older-than", "1d", "--json").record
    kept = call("dead", "purge", "orders", "--older-than", "1d", "--yes", "--json").record
    assert dead.depth().dead == 4
    done = call("dead", "purge", "orders", "--yes", "--json").record

    assert refused.code == 2
    assert "this cannot be undone, and there is no terminal to ask at; add --yes" in refused.err
    assert (planned["purged"], aged["purged"], kept["purged"]) == ({"dead": 4}, {"dead": 0}, {"dead": 0})
    assert (done["dry_run"], done["purged"]) == (False, {"dead": 4})
    assert dead.depth().dead == 0


@pytest.mark.parametrize(
    ("options", "purged"),
    [
        (("--state", "pending"), {"pending": 2}),
        (("--state", "pending", "--state", "delayed"), {"pending": 2, "delayed": 1}),
        (("--all",), {"pending": 2, "returned": 0, "delayed": 1, "dead": 0, "completed": 0, "failed": 0}),
    ],
)
def test_states_are_purged_and_their_keys_freed(
    call: Call, make_queue: MakeQueue, options: tuple[str, ...], purged: dict[str, int]
) -> None:
    queue = make_queue("orders", get_deduplication_key="id")
    queue.publish_many([{"id": 1}, {"id": 2}])
    queue.publish({"id": 3}, delay_seconds=500)

    assert call("purge", "orders", *options, "--dry-run", "--json").record["purged"] == purged
    assert call("purge", "orders", *options, "--yes", "--json").record["purged"] == purged

    assert queue.depth().pending + queue.depth().delayed == 3 - sum(purged.values())
    assert queue.publish({"id": 1})


@pytest.mark.parametrize("options", [(), ("--state", "pending", "--all"), ("--state", "in_flight")])
def test_a_purge_without_a_clear_state_deletes_nothing(
    call: Call, orders: RedisMessageQueue, options: tuple[str, ...]
) -> None:
    orders.publish("x")

    failed = call("purge", "orders", *options, "--yes")

    assert failed.code == 2
    assert "nothing was deleted" in failed.err
    assert orders.depth().ready == 1


def test_a_queue_is_paused_and_resumed(call: Call, orders: RedisMessageQueue) -> None:
    assert call("pause", "orders").out == "queue 'orders' is paused\n"
    assert orders.depth().paused
    assert call("pause", "orders", "--json").record["changed"] is False
    assert call("resume", "orders", "--json").record == {
        "kind": "queue",
        "name": "orders",
        "group": None,
        "paused": False,
        "changed": True,
    }
    assert not orders.depth().paused
    assert call("resume", "orders").out == "queue 'orders' was not paused\n"


def test_waiting_messages_are_cancelled_by_id(call: Call, orders: RedisMessageQueue) -> None:
    first, second = orders.publish_many(["a", "b"]).ids

    done = call("cancel", "orders", first, "unknown", "--json")

    assert (done.code, done.record["cancelled"], done.record["not_cancelled"]) == (1, [first], ["unknown"])
    assert [message.id for message in orders.peek()] == [second]
    assert call("cancel", "orders", second).out == f"cancelled {second}\n"


def test_damage_is_repaired_and_counted(call_bare: Call, bare_client: redis.Redis, server: Any) -> None:
    queue = RedisMessageQueue("orders", client=bare_client)
    queue.publish("x")
    lease = queue.claim(heartbeat=False)
    bare_client.hset("sluicegate:{orders}:counters", "in_flight", 7)

    done = call_bare("repair", "orders", "--url", server.url, "--json").record

    assert done["repair"]["in_flight"] == -6
    assert "nothing was damaged" in call_bare("repair", "orders", "--url", server.url).out
    lease.ack()


def test_jobs_are_listed_shown_and_cancelled(call: Call, client: redis.Redis) -> None:
    with RedisJobQueue("mails", client=client, worker="ada") as jobs:
        waiting = jobs.enqueue({"to": "bob"}, kind="mail")
        running = jobs.enqueue({"to": "cyd"}, kind="mail")
        call("jobs", "cancel", "mails", waiting)
        lease = jobs.claim_jobs(1, heartbeat=False)
        lease.jobs[0].update(progress=0.5, note="half")

        records = call("jobs", "list", "mails", "--json").records
        (line,) = call("jobs", "list", "mails", "--status", "running").out.splitlines()[1:]
        shown = call("jobs", "show", "mails", running, "missing", "--json")
        stats = call("jobs", "stats", "mails", "--json").record
        asked = call("jobs", "cancel", "mails", running, waiting, "--json")
        lease.jobs[0].complete({"sent": True})

    assert [(one["id"], one["status"]) for one in records] == [(running, "running"), (waiting, "cancelled")]
    assert line.split()[:5] == [running, "mail", "running", "1", "50%"]
    assert line.split()[-2:] == ["ada", "half"]
    assert (shown.code, shown.record["payload"], shown.record["progress"]) == (1, {"to": "cyd"}, 0.5)
    assert (stats["now"]["running"], stats["totals"]["cancelled"]) == (1, 1)
    assert (asked.code, asked.record["cancelled"]) == (1, [running])
    assert "completed" in call("jobs", "show", "mails", running).out


def test_a_stream_has_neither_jobs_nor_states(call: Call) -> None:
    for arguments in (["jobs", "list"], ["pause"], ["dead", "list"], ["leases"], ["repair"]):
        failed = call(*arguments, "events", "--stream")
        assert failed.code == 2
        assert failed.err.startswith("error: stream 'events' ")


def test_options_of_the_file_are_those_of_the_queue(call: Call, orders: RedisMessageQueue, outside: Any) -> None:
    (outside / "sluicegate.toml").write_text("[options.orders]\nmax_delivery_count = 1\n")
    orders.publish("x")

    claimed = call("claim", "orders", "--json").record
    call("nack", json.dumps(claimed))

    assert orders.depth().dead == 1
    (outside / "sluicegate.toml").write_text("[options.orders]\nmax_delivery_cuont = 1\n")
    failed = call("peek", "orders")
    assert failed.code == 2
    assert "max_delivery_count" in failed.err
