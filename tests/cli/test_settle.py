"""Leases over several commands: claim in one, settle in others, and what a late or repeated one gets."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.support.flavours import MakeGroup


@pytest.fixture
def claimed(call: Call, orders: RedisMessageQueue) -> dict[str, Any]:
    """Return what a claim of three messages printed."""
    orders.publish_many([{"id": number} for number in range(3)])
    return call("claim", "orders", "--limit", "3", "--json").record


def test_a_claim_is_settled_by_a_later_command(call: Call, orders: RedisMessageQueue, claimed: dict[str, Any]) -> None:
    assert [one["payload"] for one in claimed["messages"]] == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert claimed["state"] == "open"

    done = call("ack", json.dumps(claimed), "--json").record

    assert (done["verb"], done["settled"], done["open"]) == ("ack", 3, 0)
    assert (orders.depth().in_flight, orders.stats().acked) == (0, 3)


def test_a_repeat_is_harmless_and_another_verdict_comes_too_late(call: Call, claimed: dict[str, Any]) -> None:
    lease = json.dumps(claimed)

    assert [call("ack", lease).code for _ in range(2)] == [0, 0]
    late = call("nack", lease)

    assert late.code == 5
    assert "3 messages acked" in late.err


def test_messages_are_settled_one_by_one(call: Call, orders: RedisMessageQueue, claimed: dict[str, Any]) -> None:
    lease = json.dumps(claimed)
    first, second, third = (one["id"] for one in claimed["messages"])

    assert call("ack", lease, "--id", first, "--json").record["open"] == 2
    again = call("ack", lease, "--id", first, "--json")
    assert call("bury", lease, "--id", second, "--reason", "bad", "--error", "no tea").code == 0
    assert call("nack", lease, "--id", third, "--delay", "1h").code == 0

    assert (again.code, again.record["settled"], again.record["not_open"]) == (1, 0, [first])
    (dead,) = orders.peek(state="dead")
    assert (dead.id, dead.reason, dead.error) == (second, "bad", "no tea")
    assert [message.id for message in orders.peek(state="delayed")] == [third]
    assert orders.depth().in_flight == 0


def test_a_release_counts_no_delivery(call: Call, orders: RedisMessageQueue, claimed: dict[str, Any]) -> None:
    assert call("release", json.dumps(claimed)).out == "release: 3 messages\n"
    assert orders.peek(1, state="returned")[0].delivery_count == 0


def test_a_lease_travels_in_a_file_or_through_stdin(
    call: Call, orders: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish_many(["a", "b"])

    shown = call("claim", "orders", "--lease-file", "lease.json", "-n", "2")
    monkeypatch.setattr(sys, "stdin", io.StringIO(Path("lease.json").read_text()))

    assert (shown.code, shown.out) == (0, "a\nb\n")
    assert "2 messages for 5m 0s; the lease is in lease.json" in shown.err
    assert call("extend", "lease.json", "--lease", "2h", "--json").record["lease_seconds"] == 7200
    assert 7100 < orders.peek(1, state="in_flight")[0].seconds_left <= 7200
    assert call("ack", "-").code == 0
    assert orders.depth().in_flight == 0


def test_a_lease_that_expired_is_code_5(call: Call, orders: RedisMessageQueue, claimed: dict[str, Any]) -> None:
    orders.extend(_handle(claimed), 0.001)
    orders.claim(3, wait_seconds=5, heartbeat=False).release()

    for command in ("ack", "extend"):
        assert call(command, json.dumps(claimed)).code == 5


def test_nothing_to_claim_is_code_1_with_the_state(call: Call, orders: RedisMessageQueue) -> None:
    empty = call("claim", "orders", "--json")
    orders.publish("x")
    orders.pause()
    paused = call("claim", "orders", "--json")

    assert (empty.code, empty.record["state"], empty.record["messages"]) == (1, "empty", [])
    assert (paused.code, paused.record["state"]) == (1, "paused")


def test_a_named_lease_is_held_and_can_be_taken_over(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("x")
    first = call("claim", "orders", "--lease-id", "job/1", "--json").record
    held = call("claim", "orders", "--lease-id", "job/1", "--json")

    taken = call("claim", "orders", "--lease-id", "job/1", "--take-over-after", "0", "--json").record

    assert (held.code, held.record["state"]) == (1, "held")
    assert taken["messages"][0]["id"] == first["messages"][0]["id"]
    assert call("ack", json.dumps(first)).code == 5
    assert call("ack", json.dumps(taken)).code == 0


def test_a_group_is_created_where_the_claim_says(call: Call, make_group: MakeGroup) -> None:
    call("publish", "events", "--stream", "-m", '{"id": 1}')

    claimed = call("claim", "events", "--group", "billing", "--start", "beginning", "--json").record

    assert (claimed["kind"], claimed["group"], claimed["messages"][0]["payload"]) == ("group", "billing", {"id": 1})
    assert call("ack", json.dumps(claimed)).code == 0
    assert make_group("events", "billing").depth().ready == 0
    assert call("claim", "events", "--stream", "--json").code == 2
    assert call("claim", "events", "--start", "end", "--json").code == 2


@pytest.mark.parametrize("text", ["{}", '{"lease": 1}', "no.json", "[1]", '{"kind": "queue", "name": "a", "group": 0}'])
def test_what_is_no_lease_is_explained(call: Call, text: str) -> None:
    failed = call("ack", text)

    assert failed.code == 2
    assert "LEASE is what `claim --json` printed, a file with it, or - for stdin" in failed.err


def test_a_claim_without_a_place_for_the_lease_takes_nothing(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("x")

    failed = call("claim", "orders")

    assert failed.code == 2
    assert "add --json, or --lease-file FILE" in failed.err
    assert orders.depth().ready == 1


def test_a_lease_that_cannot_be_written_is_released_at_once(
    call: Call, orders: RedisMessageQueue, outside: Path
) -> None:
    orders.publish("x")

    failed = call("claim", "orders", "--lease-file", str(outside / "none" / "lease.json"))

    assert failed.code == 2
    assert failed.err.endswith("none/lease.json: No such file or directory\n")
    assert (orders.depth().ready, orders.depth().in_flight) == (1, 0)
    assert orders.claim().messages[0].delivery_count == 1


def _handle(claimed: dict[str, Any]) -> Any:
    from sluicegate import LeaseHandle

    return LeaseHandle.from_dict(claimed["lease"])
