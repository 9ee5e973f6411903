"""The depths of many queues are read in one round trip, and each is what the queue's own `depth` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

import sluicegate.asyncio
from sluicegate import Depth, RedisGateway, RedisMessageQueue
from sluicegate.asyncio.depths import read_depths as read_depths_async
from sluicegate.depths import read_depths
from sluicegate.errors import ConfigurationError, GroupNotFoundError, RedisUnavailableError, WrongKeyTypeError
from sluicegate.place import Place
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support import state
from tests.support.flavours import Loop
from tests.support.servers import RedisServer, programs
from tests.support.topologies import ClusterServers

Read = Callable[..., dict[str, Any]]


@pytest.fixture(params=["sync", "asyncio"])
def read(request: pytest.FixtureRequest, server: RedisServer, loop: Loop) -> Read:
    """Return a function that reads the depths of some names twice with one gateway: the first reading makes contact."""

    def read_sync(
        names: Sequence[str], url: str = server.url, between: Callable[[], object] = list, **options: Any
    ) -> dict[str, Any]:
        gateway = RedisGateway(url=url)
        try:
            read_depths(gateway, names, **options)
            between()
            return dict(read_depths(gateway, names, **options))
        finally:
            gateway.close()

    async def read_async(
        names: Sequence[str], url: str = server.url, between: Callable[[], object] = list, **options: Any
    ) -> dict[str, Any]:
        gateway = sluicegate.asyncio.RedisGateway(url=url)
        try:
            await read_depths_async(gateway, names, **options)
            between()
            return dict(await read_depths_async(gateway, names, **options))
        finally:
            await gateway.aclose()

    if request.param == "sync":
        return read_sync
    return lambda *arguments, **options: loop.run(lambda: read_async(*arguments, **options))


def without_times(depth: Depth) -> Depth:
    return replace(depth, oldest_ready_age_seconds=None, next_due_seconds=None, next_expiry_seconds=None)


def test_each_depth_is_what_the_queue_says(read: Read, client: redis.Redis) -> None:
    queues = {name: RedisMessageQueue(name, client=client) for name in ("a", "b", "c", "empty")}
    queues["a"].publish_many("abcdef")
    queues["a"].claim(2)
    queues["b"].publish_many("abc", delay_seconds=100)
    queues["c"].publish_many([str(number) for number in range(1200)])
    for _ in range(1200):
        queues["c"].claim(1)
    state.expire(client, "c")  # three pages of leases
    found = read(list(queues))
    assert list(found) == ["a", "b", "c", "empty"]
    for name, queue in queues.items():
        assert without_times(found[name]) == without_times(queue.depth()), name
    assert (found["c"].expired, found["b"].delayed, found["a"].in_flight) == (1200, 3, 2)


def test_many_depths_cost_one_command_each_and_one_write(read: Read, client: redis.Redis) -> None:
    names = [f"queue-{number}" for number in range(300)]
    RedisMessageQueue("queue-7", client=client).publish("a")
    read(names)
    client.config_resetstat()
    found = read(names)
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 600  # two readings
    assert "cmdstat_eval" not in stats
    assert [name for name, depth in found.items() if depth.ready] == ["queue-7"]


def test_a_server_that_forgot_the_script_gets_it_once(read: Read, client: redis.Redis) -> None:
    names = [f"queue-{number}" for number in range(50)]

    def forget() -> None:
        client.script_flush()
        client.config_resetstat()

    assert all(isinstance(depth, Depth) for depth in read(names, between=forget).values())

    assert client.info("commandstats")["cmdstat_eval"]["calls"] == 1


def test_a_foreign_value_at_one_queues_key_hides_no_other(read: Read, bare_client: redis.Redis) -> None:
    RedisMessageQueue("good", client=bare_client).publish("a")
    bare_client.set("sluicegate:{bad}:pending", "not a list")
    found = read(["bad", "good"])
    assert isinstance(found["bad"], WrongKeyTypeError)
    assert "bad" in str(found["bad"])
    assert found["good"].ready == 1


def test_no_names_ask_nothing(read: Read) -> None:
    assert read([]) == {}


def test_a_name_that_no_queue_has_is_refused(read: Read) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        read(["orders", "  "])


def test_a_queue_may_be_given_as_a_place(read: Read, client: redis.Redis) -> None:
    RedisMessageQueue("orders", client=client).publish_many("abc")
    place = Place("orders")

    assert read([place])[place].ready == 3


def test_groups_are_read_beside_queues_and_one_that_is_missing_hides_no_other(read: Read, client: redis.Redis) -> None:
    with RedisStreamQueue("orders", client=client) as stream:
        stream.publish_many("abc")
    ConsumerGroup("orders", "billing", client=client, start="beginning").claim(2)
    RedisMessageQueue("orders", client=client).publish("a")
    queue, billing, missing = (
        Place("orders"),
        Place("orders", stream=True, group="billing"),
        Place("orders", stream=True, group="missing"),
    )

    found = read([missing, queue, billing])

    assert isinstance(found[missing], GroupNotFoundError)
    assert (found[queue].ready, found[queue].claimed_total) == (1, 0)
    assert (found[billing].ready, found[billing].in_flight, found[billing].claimed_total) == (1, 2, 2)


def test_a_stream_without_a_group_is_refused(read: Read) -> None:
    with pytest.raises(ConfigurationError, match=r"stream 'orders' has no depth of its own.*name one of them"):
        read([Place("orders"), Place("orders", stream=True)])


@pytest.mark.parametrize("retry", [True, False])
def test_nobody_answers(read: Read, retry: bool) -> None:
    with pytest.raises(RedisUnavailableError):
        read(["orders", "invoices"], "redis://127.0.0.1:1/0", retry=retry)


def test_queues_on_several_nodes_of_a_cluster() -> None:
    names = [f"queue-{number}" for number in range(30)]
    with ClusterServers(programs()[0]) as cluster:
        for name in names[:10]:
            with RedisMessageQueue(name, url=cluster.url) as queue:
                queue.publish_many(["a", "b"])
        gateway = RedisGateway(url=cluster.url)
        try:
            for _ in range(2):
                found = read_depths(gateway, names)
                assert [found[name].ready for name in names] == [2] * 10 + [0] * 20  # type: ignore[union-attr]
        finally:
            gateway.close()

        async def read_async() -> list[int]:
            gateway = sluicegate.asyncio.RedisGateway(url=cluster.url)
            try:
                await read_depths_async(gateway, names)
                found = await read_depths_async(gateway, names)
                return [found[name].ready for name in names]  # type: ignore[union-attr]
            finally:
                await gateway.aclose()

        assert asyncio.run(read_async()) == [2] * 10 + [0] * 20
