"""`sluicegate doctor` prints each finding with what to do, and its exit code says whether there is an error."""

from __future__ import annotations

import redis

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.support.servers import free_port


def test_findings_are_printed_the_worst_first(call: Call, orders: RedisMessageQueue, client: redis.Redis) -> None:
    orders.publish("a")
    client.config_set("maxmemory", "64mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        called = call("doctor", "--seconds", 0)
        records = call("doctor", "--seconds", 0, "--json").records
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "0")
    assert called.code == 1
    first, what, advice = called.out.splitlines()[:3]
    assert first.startswith("error   unix:")
    assert what.startswith("        maxmemory-policy is allkeys-lru: when memory is full")
    assert advice.startswith("        → CONFIG SET maxmemory-policy noeviction")
    assert "1 error, 1 warning, " in called.out.splitlines()[-1]
    assert "queue 'orders'" not in called.out, "what is in order is shown on request only"
    assert set(records[0]) == {"severity", "check", "where", "what", "advice"}
    assert (records[0]["severity"], records[0]["check"]) == ("error", "eviction")
    assert ("ok", "stored", "queue 'orders'") in [(each["severity"], each["check"], each["where"]) for each in records]


def test_the_exit_code_ignores_warnings_unless_asked(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("a")
    orders.pause()
    called = call("doctor", "orders", "--seconds", 0)
    assert (called.code, "warning queue 'orders'" in called.out) == (0, True)
    assert call("doctor", "orders", "--seconds", 0, "--strict").code == 1
    assert "ok      queue 'orders'" in call("doctor", "orders", "--seconds", 0, "--all").out


def test_a_server_that_does_not_answer_is_a_finding_without_a_password(call_bare: Call) -> None:
    called = call_bare("doctor", "--url", f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    assert (called.code, "s3cret" in called.out + called.err) == (3, False)
    assert "cannot be reached" in called.out
