"""Replies of a stream's calls that get lost, calls that come late, and scripts that are stopped in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate import PublishUnknownError
from sluicegate.core.keys import StreamKeys
from sluicegate.core.publishing import Publishing
from sluicegate.core.transitions.publish_to_stream import publish_to_stream_call
from sluicegate.streams import RedisStreamQueue
from tests.faults import stream_cases
from tests.faults.test_outage import down
from tests.faults.test_stopped_scripts import is_stopped, without
from tests.support import markers, state
from tests.support.core_calls import Core
from tests.support.proxy import Proxy, proxied
from tests.support.servers import RedisServer

KEYS = StreamKeys("orders")
OPTIONS = {"retry_budget_seconds": 20, "retry_initial_delay_seconds": 0.01, "retry_max_delay_seconds": 0.1}


@pytest.fixture
def proxy(own_server: RedisServer) -> Iterator[Proxy]:
    with proxied(own_server.port) as between:
        yield between


@pytest.fixture
def client_of_proxy(proxy: Proxy, own_server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=20)
    yield client
    client.close()
    with own_server.client() as inspector:
        state.check(inspector)


def entries(server: RedisServer) -> list[str]:
    with server.client() as client:
        return [name.decode() for name, _ in client.xrange(KEYS.stream)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"get_deduplication_key": "id"},
        {"get_deduplication_key": "id", "deduplication_window_seconds": 0.05},
        {"get_deduplication_key": "id", "deduplication_policy": "until_acked"},
    ],
    ids=["no key", "window", "short window", "until acked"],
)
@pytest.mark.parametrize("losses", [1, 3])
def test_a_lost_reply_never_doubles_a_publish(
    client_of_proxy: redis.Redis, proxy: Proxy, own_server: RedisServer, options: dict[str, Any], losses: int
) -> None:
    stream = RedisStreamQueue("orders", client=client_of_proxy, **OPTIONS, **options)
    earlier = stream.publish_many([{"id": -1}])
    proxy.lose(losses)
    report = stream.publish_many([{"id": number} for number in range(3)])
    assert proxy.lost == losses
    assert (report.accepted, report.duplicates, report.duplicate_of) == (3, 0, [None] * 3)
    assert [*earlier.ids, *report.ids] == entries(own_server)
    assert stream.info().published == 4


def test_a_lost_reply_of_each_administration_has_one_effect(
    client_of_proxy: redis.Redis, proxy: Proxy, own_server: RedisServer
) -> None:
    stream = RedisStreamQueue("orders", client=client_of_proxy, get_deduplication_key="id", max_length=5, **OPTIONS)
    ids = stream.publish_many({"id": number} for number in range(20)).ids
    group = stream.group("g")
    proxy.lose(1)
    assert group.create("beginning") is True
    group.claim(20).ack()
    proxy.lose(1)
    assert group.replay(from_id=ids[18]) == ids[19]
    proxy.lose(2)
    assert stream.cancel([ids[19], ids[0]]) == [ids[19], ids[0]]
    assert [message.id for message in group.claim(20)] == [ids[18]]
    proxy.lose(1)
    assert stream.trim().length == 5
    proxy.lose(2)
    assert stream.delete_group("g") in (True, False)  # the repeat of its last step finds the group deleted
    assert stream.groups() == []


def test_an_unknown_publish_can_be_asked_for_again(own_server: RedisServer) -> None:
    stream = RedisStreamQueue("orders", url=own_server.url, get_deduplication_key="id", retry_budget_seconds=0.3)
    stream.publish({"id": 0})
    with down(own_server, comes_back=False), pytest.raises(PublishUnknownError) as caught:
        stream.publish_many([{"id": 1}, {"id": 0}, {"id": 2}])
    own_server.start()
    reports = [stream.publish_again(caught.value) for _ in range(3)]
    assert [(report.accepted, report.duplicates) for report in reports] == [(2, 1)] * 3
    assert reports[0].ids == reports[2].ids
    assert len(entries(own_server)) == 3
    stream.close()


def test_a_repeat_appends_only_what_its_markers_miss(client: redis.Redis) -> None:
    """The first attempt was stopped between its messages: one has its marker, the others are not there."""
    core = Core(client)
    first = core.do(stream_cases.publish("batch", "a"))
    again = core.do(stream_cases.publish("batch", "a", "b", "a", "c"))
    assert (again.accepted, again.duplicates) == (3, {2: first.ids[0]})  # type: ignore[index]
    assert again.ids is not None
    assert [again.ids[0], again.ids[1], again.ids[3]] == [name.decode() for name, _ in client.xrange(KEYS.stream)]


@pytest.mark.parametrize("command", ["xadd", "hset", "hincrby", "rpush", "set"])
def test_a_publish_that_is_stopped_orphans_no_key(server: RedisServer, bare_client: redis.Redis, command: str) -> None:
    core = Core(bare_client)
    call = stream_cases.publish_to_stream_with_a_receipt(core)
    bare_client.delete(stream_cases.GROUP.wakeup)
    with without(server, bare_client, command) as limited:
        assert is_stopped(Core(limited), call)
    there = {name for name, _ in bare_client.xrange(KEYS.stream)}
    for value in markers.held(bare_client, KEYS).values():
        assert value.partition(b"\x1f")[0] in there


def test_a_full_redis_refuses_a_publish_whole(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    call = stream_cases.publish_to_stream(core)
    before = state.dumps(bare_client)
    bare_client.config_set("maxmemory", "1")
    with pytest.raises(Exception, match="maxmemory"):
        core.do(call)
    bare_client.config_set("maxmemory", "0")
    assert state.dumps(bare_client) == before


def test_a_group_that_a_publisher_does_not_know_is_woken_too(client: redis.Redis) -> None:
    stream = RedisStreamQueue("orders", client=client)
    stream.publish("a")
    group = KEYS.of_group("late")
    RedisStreamQueue("orders", client=client).group("late").create("beginning")
    client.delete(group.wakeup)
    stream.publish("b")
    assert client.lrange(group.wakeup, 0, -1) == [b"1", b"2"]
    client.delete(group.wakeup)
    stream.publish("c")  # which it knows by now
    assert client.lrange(group.wakeup, 0, -1) == [b"1", b"2"]
    stream.delete_group("late")
    stream.publish("d")
    assert client.exists(group.wakeup) == 0, "no wake-up is left for a group that is gone"


def test_the_age_grows_with_each_attempt(client: redis.Redis) -> None:
    (batch,) = Publishing(KEYS, None, 3600, 120).batches(["a"], new_id=lambda: b"B" * 16)
    call = publish_to_stream_call(KEYS, batch, {}, age_seconds=0)
    assert call.elapsed_arg is not None
    assert call.later(1.5).args[call.elapsed_arg] == 1500
    late = Core(client).do(call.later(batch.oldest_seconds + 1))
    assert late.accepted == -1
    assert client.exists(KEYS.stream) == 0
