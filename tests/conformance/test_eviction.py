"""A server that evicts keys when it is full: warned of once, or refused where the queue requires that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError, EvictionPolicyError
from tests.support.servers import free_port

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def evicts(client: redis.Redis) -> Iterator[str]:
    """Yield the policy of a server that would delete messages."""
    client.config_set("maxmemory-policy", "allkeys-lru")
    yield "allkeys-lru"
    client.config_set("maxmemory-policy", "noeviction")


def scripts_run(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if "maxmemory-policy" in text]


def test_the_first_publish_warns_once_and_names_the_setting(
    make_queue: MakeQueue, evicts: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue()
    queue.depth()
    assert warnings(caplog) == []
    assert queue.publish("a") is True
    assert queue.publish_many("bc").accepted == 2
    (warning,) = warnings(caplog)
    assert "'orders'" in warning
    assert evicts in warning
    assert "CONFIG SET maxmemory-policy noeviction" in warning


@pytest.mark.parametrize("policy", ["volatile-ttl", "allkeys-random"])
def test_any_policy_but_noeviction_is_warned_of(
    make_queue: MakeQueue, client: redis.Redis, evicts: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("maxmemory-policy", policy)
    make_queue().publish_many("ab")
    assert [policy in warning for warning in warnings(caplog)] == [True]


def test_a_server_that_evicts_nothing_is_not_mentioned(make_queue: MakeQueue, caplog: pytest.LogCaptureFixture) -> None:
    assert make_queue().publish("a") is True
    assert make_queue(require_noeviction=True).publish("b") is True
    assert warnings(caplog) == []


@pytest.mark.parametrize("required", [False, True])
def test_looking_costs_one_call_per_object(make_queue: MakeQueue, client: redis.Redis, required: bool) -> None:
    queue = make_queue(require_noeviction=required)
    queue.depth()
    client.config_resetstat()
    queue.depth()
    alone = scripts_run(client)
    queue.publish("a")
    first = scripts_run(client)
    queue.publish("b")
    assert (alone, first - alone) in ((1, 2), (1, 3))  # three where the server meets the script for the first time
    assert scripts_run(client) - first == 1


def test_a_queue_that_requires_it_publishes_nothing_where_keys_are_evicted(
    make_queue: MakeQueue, client: redis.Redis, evicts: str
) -> None:
    queue = make_queue(require_noeviction=True)
    for publish in (lambda: queue.publish("a"), lambda: queue.publish_many("ab")):
        with pytest.raises(EvictionPolicyError, match=f"its policy is {evicts}: CONFIG SET maxmemory-policy") as caught:
            publish()
        assert isinstance(caught.value, ConfigurationError)
        assert (caught.value.policy, caught.value.queue, caught.value.operation) == (evicts, "orders", "publish")
    assert client.dbsize() == 0
    client.config_set("maxmemory-policy", "noeviction")
    assert queue.publish("a") is True
    assert queue.claim().messages[0].text() == "a"


def test_a_consumer_does_not_ask(make_queue: MakeQueue, evicts: str) -> None:
    make_queue().publish("a")
    queue = make_queue(require_noeviction=True)
    with queue.process_message() as payload:
        assert payload in ("a", b"a")
    assert queue.depth().ready == 0


def test_the_option_travels() -> None:
    queue = RedisMessageQueue("orders", url=f"redis://127.0.0.1:{free_port()}/0", require_noeviction=True)
    assert RedisMessageQueue.from_spec(queue.spec()).session.config.require_noeviction is True
