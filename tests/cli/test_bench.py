"""`sluicegate bench` measures on the server that it is given, and leaves nothing there."""

from __future__ import annotations

import redis

from tests.cli.conftest import Call


def test_rates_and_latencies_are_measured_and_every_key_is_deleted(call: Call, client: redis.Redis) -> None:
    client.set("other", "stays")
    record = call("bench", "--messages", 3000, "--batch", 500, "--payload-bytes", 300, "--json").record
    assert client.keys() == [b"other"]
    assert (record["messages"], record["batch"], record["payload_bytes"]) == (3000, 500, 300)
    assert record["published_per_second"] > 500
    assert record["drained_per_second"] > 500
    assert set(record["latency_ms"]) == {"publish", "claim", "ack", "depth"}
    assert all(0 < one["p50"] <= one["p99"] for one in record["latency_ms"].values())


def test_people_get_a_few_lines(call: Call) -> None:
    called = call("bench", "--messages", 200, "--no-keys")
    assert called.code == 0
    assert "200 messages of 200 bytes, without keys" in called.out.splitlines()[0]
    assert called.out.splitlines()[1].split()[0] == "publish"
