"""Looking at queues: counts, totals, what SCAN finds, messages, and who holds leases."""

from __future__ import annotations

import re
import sys

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.jobs import RedisJobQueue
from tests.cli.conftest import Call
from tests.support.flavours import MakeGroup, MakeQueue


def fill(queue: RedisMessageQueue) -> None:
    """Leave 3 pending, 1 delayed, 2 in flight and 1 dead."""
    queue.publish_many([{"id": number} for number in range(6)])
    queue.publish({"id": 6}, delay_seconds=500)
    lease = queue.claim(3, lease_seconds=90, lease_id="worker/1", heartbeat=False)
    lease.bury(lease.messages[0], error=ValueError("no tea"), reason="out of stock")


def test_a_depth_is_that_of_the_queue_and_readable(call: Call, orders: RedisMessageQueue) -> None:
    fill(orders)

    record = call("depth", "orders", "--json").record
    lines = call("depth", "orders").out.splitlines()

    assert {name: record[name] for name in ("kind", "name", "group")} == {
        "kind": "queue",
        "name": "orders",
        "group": None,
    }
    shown = {name: record["depth"][name] for name in ("ready", "pending", "in_flight", "leases", "delayed", "dead")}
    assert shown == {"ready": 3, "pending": 3, "in_flight": 2, "leases": 1, "delayed": 1, "dead": 1}
    assert lines[0] == "queue 'orders'"
    assert lines[1] == "  ready         3  (3 pending)"
    assert re.fullmatch(r"  in flight     2 in 1 lease  \(next expiry in 1m \d+s\)", lines[3])
    assert re.fullmatch(r"  delayed       1  \(next due in 8m \d+s\)", lines[4])
    assert lines[5] == "  dead          1"


def test_a_paused_queue_says_so(call: Call, orders: RedisMessageQueue) -> None:
    orders.pause()

    assert "  paused        yes; `resume` lets claims take messages again" in call("depth", "orders").out


@pytest.mark.parametrize("command", ["depth", "peek"])
def test_a_name_that_nothing_has_is_remarked_on(call: Call, orders: RedisMessageQueue, command: str) -> None:
    orders.publish("x")
    orders.claim().ack()

    unknown = call(command, "ordres")

    assert unknown.code == 0
    assert unknown.err.startswith("nothing was ever published to queue 'ordres'; `sluicegate queues` lists what there")
    assert "ever published" not in call(command, "orders").err


def test_places_that_fail_do_not_hide_the_others(call_bare: Call, bare_client: redis.Redis, server: object) -> None:
    url = server.url  # type: ignore[attr-defined]
    RedisMessageQueue("fine", client=bare_client).publish("x")
    bare_client.set("sluicegate:{broken}:pending", "x")

    shown = call_bare("depth", "fine", "broken", "--json", "--url", url)

    assert shown.code == 4
    assert [one["name"] for one in shown.records] == ["fine", "broken"]
    assert shown.records[0]["depth"]["ready"] == 1
    assert shown.records[1]["error"]["type"] == "WrongKeyTypeError"
    assert call_bare("stats", "fine", "broken", "--json", "--url", url).code == 1
    RedisMessageQueue("worse", client=bare_client).publish("x")
    bare_client.set("sluicegate:{worse}:dead", "x")
    assert call_bare("queues", "--json", "--url", url).code == 4
    assert call_bare("queues", "--url", url).code == 4


def test_a_group_that_does_not_exist_is_explained(call: Call, make_group: MakeGroup) -> None:
    make_group("events", "billing", start="beginning").create("beginning")

    failed = call("depth", "events", "--group", "none")

    assert failed.code == 1
    assert "`claim` and `drain` create it with --start beginning, end or an id" in failed.err
    assert call("depth", "events", "--group", "billing", "--json").record["depth"]["ready"] == 0


def test_totals_are_those_of_the_queue(call: Call, orders: RedisMessageQueue) -> None:
    fill(orders)

    stats = call("stats", "orders", "--json").record["stats"]
    lines = call("stats", "orders").out.splitlines()

    assert (stats["published"], stats["claimed"], stats["buried"], stats["paused"]) == (7, 3, 1, False)
    assert lines[:2] == ["queue 'orders'", "  published   7"]
    assert "  buried      1" in lines
    assert not any("purged" in line for line in lines)


def test_everything_on_the_server_is_found(
    call: Call, orders: RedisMessageQueue, make_group: MakeGroup, client: redis.Redis
) -> None:
    fill(orders)
    make_group("events", "billing", start="beginning").create("beginning")
    with RedisJobQueue("mails", client=client) as jobs:
        jobs.enqueue({"to": "ada"})

    records = call("queues", "--json").records
    names = call("queues", "--names").out.splitlines()
    (header, *rows) = call("queues").out.splitlines()

    assert [(one["kind"], one["name"], one["group"]) for one in records] == [
        ("stream", "events", None),
        ("group", "events", "billing"),
        ("jobs", "mails", None),
        ("queue", "orders", None),
    ]
    assert records[0]["stream"]["length"] == 0
    assert (records[3]["depth"]["ready"], records[3]["stats"]["published"]) == (3, 7)
    assert names == ["stream events", "group events billing", "jobs mails", "queue orders"]
    assert header.split() == ["name", "kind", "ready", "in", "flight", "delayed", "dead", "oldest", "published"]
    assert rows[3].split()[:6] == ["orders", "queue", "3", "2", "1", "1"]
    assert [one["kind"] for one in call("depth", "--json").records] == ["group", "jobs", "queue"]


def test_an_empty_server_is_no_error(call: Call) -> None:
    for command in ("queues", "depth", "stats"):
        shown = call(command)
        assert (shown.code, shown.out, shown.err) == (0, "", "no queues were found\n")


def test_messages_are_shown_without_claiming_them(call: Call, make_queue: MakeQueue) -> None:
    orders = make_queue("orders", get_deduplication_key="id")
    orders.publish({"id": 1}, headers={"type": "order"})
    text = make_queue("texts")
    text.publish("héllo")
    text.publish(b"\xff\x00")

    (record,) = call("peek", "orders", "--json").records
    others = call("peek", "texts", "--json").records

    assert list(record) == [
        *("id", "sequence", "enqueued_at", "delivery_count", "headers", "deduplication_key", "size"),
        *("payload", "format"),
    ]
    assert (record["payload"], record["format"], record["headers"]) == ({"id": 1}, "json", {"type": "order"})
    assert record["deduplication_key"] == "1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["enqueued_at"])
    assert [(one["payload"], one["format"]) for one in others] == [("héllo", "text"), ("/wA=", "base64")]
    assert orders.depth().ready == 1


@pytest.mark.parametrize("state", ["delayed", "in_flight", "dead", "pending"])
def test_each_state_shows_what_belongs_to_it(call: Call, orders: RedisMessageQueue, state: str) -> None:
    fill(orders)
    expected = {
        "pending": (3, {}),
        "delayed": (1, {}),
        "in_flight": (2, {"lease_id": "worker/1", "expired": False}),
        "dead": (1, {"reason": "out of stock", "error_type": "ValueError", "error": "no tea"}),
    }

    records = call("peek", "orders", "--state", state, "--json").records
    lines = call("peek", "orders", "--state", state).out.splitlines()

    assert len(records) == expected[state][0]
    assert expected[state][1].items() <= records[0].items()
    assert len(lines) == 1 + len(records)
    assert lines[1].startswith(records[0]["id"])
    assert lines[1].endswith(f'{{"id":{records[0]["payload"]["id"]}}}')


def test_payloads_and_headers_cannot_steer_a_terminal(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("\x1b]0;owned\x07\u202etxt", headers={"a": "\x1b[31m"})
    lease = orders.claim(heartbeat=False)
    lease.bury(error="\x1b[2J")

    for options in ((), ("--full",)):
        shown = call("peek", "orders", "--state", "dead", *options).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\\x1b]0;owned\\x07\\u202etxt" in shown


def test_a_history_is_shown_from_an_id_on(call: Call, make_group: MakeGroup) -> None:
    group = make_group("events", "billing", start="beginning")
    group.create("beginning")
    call("publish", "events", "--stream", "-m", '{"id": 1}', "-m", '{"id": 2}')

    records = call("peek", "events", "--stream", "--json").records
    (last,) = call("peek", "events", "--stream", "--from-id", records[1]["id"], "--json").records

    assert [one["payload"] for one in records] == [{"id": 1}, {"id": 2}]
    assert last["payload"] == {"id": 2}
    assert call("peek", "events", "--stream", "--state", "dead").code == 2
    assert call("peek", "events", "--from-id", "1-0").code == 2


def test_leases_show_who_holds_what_until_when(call: Call, make_group: MakeGroup, orders: RedisMessageQueue) -> None:
    fill(orders)
    group = make_group("events", "billing", start="beginning", consumer="ada")
    group.create("beginning")
    call("publish", "events", "--stream", "-m", "{}")
    held = group.claim(heartbeat=False)

    (record,) = call("leases", "orders", "--json").records
    (of_group,) = call("leases", "events", "--group", "billing", "--json").records
    shown = call("leases", "orders").out.splitlines()[1].split()

    assert (record["lease_id"], record["messages"], record["expired"]) == ("worker/1", 2, False)
    assert 0 < record["seconds_left"] <= 90
    assert len(record["message_ids"]) == 2
    assert (of_group["consumer"], of_group["messages"]) == ("ada", 1)
    assert shown[:3] == ["worker/1", "-", "2"]
    held.ack()


def test_a_narrow_terminal_gets_paragraphs_and_a_wide_one_a_table(
    call: Call, orders: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(orders)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")

    monkeypatch.setenv("COLUMNS", "120")
    wide = call("dead", "list", "orders").out.splitlines()
    monkeypatch.setenv("COLUMNS", "64")
    cut = call("dead", "list", "orders").out.splitlines()
    monkeypatch.setenv("COLUMNS", "40")
    narrow = call("dead", "list", "orders").out.splitlines()

    assert len(wide) == len(cut) == 2
    assert wide[1].endswith('out of stock  ValueError: no tea  {"id":0}')
    assert len(cut[1]) <= 64
    assert "  ValueError:…  " in cut[1]
    assert "  reason   out of stock" in narrow
