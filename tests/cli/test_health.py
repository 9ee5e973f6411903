"""`sluicegate health` answers a probe by its exit code."""

from __future__ import annotations

from pathlib import Path

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.support.servers import free_port


def test_limits_decide(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish_many(["a", "b"])
    well = call("health", "orders", "--max-ready", 2)
    assert (well.code, "messages that are ready: 2, at most 2" in well.out) == (0, True)
    called = call("health", "orders", "--max-ready", 1, "-q")
    assert called.code == 1
    assert " ".join(called.out.split()) == "failed ready queue 'orders': messages that are ready: 2, at most 1"
    record = call("health", "orders", "--max-ready", 1, "--json").record
    assert (record["status"], record["checks"][0]["name"], record["checks"][0]["value"]) == ("unready", "ready", 2)


def test_without_places_only_redis_is_asked(call: Call) -> None:
    assert call("health", "-q").code == 0


def test_limits_and_places_of_the_configuration_file(call: Call, outside: Path, orders: RedisMessageQueue) -> None:
    orders.publish_many(["a", "b"])
    outside.joinpath("sluicegate.toml").write_text('queues = ["orders"]\n[health]\nmax_ready = 1\n')
    assert call("health").code == 1
    assert call("health", "--max-ready", 5).code == 0, "an option comes first"
    outside.joinpath("sluicegate.toml").write_text("[health]\nmax_redy = 1\n")
    called = call("health")
    assert (called.code, "max_redy" in called.err) == (2, True)


def test_a_server_that_does_not_answer(call_bare: Call) -> None:
    called = call_bare("health", "--url", f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    assert (called.code, "s3cret" in called.out + called.err) == (3, False)
