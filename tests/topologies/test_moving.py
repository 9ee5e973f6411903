"""A slot that moves from one primary of a cluster to another, and gateways that are held against their contract."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest
from redis.crc import key_slot

from sluicegate import RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.asyncio.gateway import RedisGateway as AsyncRedisGateway
from sluicegate.core.call import Call, Wait
from sluicegate.core.keys import QueueKeys
from sluicegate.core.scripts import Header, Script
from sluicegate.gateway import RedisGateway
from sluicegate.testing.gateways import check_async_gateway, check_gateway
from tests.support.flavours import Blocking, Loop
from tests.support.servers import programs
from tests.support.topologies import ClusterServers, SentinelServers, Server, Topology, raw
from tests.support.waiting import wait_until

QUEUE = QueueKeys("orders")
FLAVOURS = pytest.mark.parametrize("flavour", ["sync", "asyncio"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServers]:
    with ClusterServers(programs()[0]) as running:
        yield running


@pytest.fixture
def make(cluster: ClusterServers, flavour: str, loop: Loop) -> Iterator[Callable[..., Any]]:
    """Makes a queue or a gateway of the flavour, for an empty cluster."""
    cluster.empty()
    made: list[Any] = []

    def make_one(sync: Any, asyncio: Any, *args: Any, **options: Any) -> Any:
        each = sync if flavour == "sync" else asyncio
        one = each(*args, url=cluster.url, **options)
        made.append(one if flavour == "sync" else Blocking(one, loop))
        return made[-1]

    yield make_one
    for one in made:
        getattr(one, "aclose" if flavour == "asyncio" else "close")()


def increase(key: bytes) -> Call[int]:
    text = b"return redis.call('INCR', KEYS[1])"
    digest = hashlib.sha1(text).hexdigest().encode()  # noqa: S324  (Redis' own name for a script)
    script = Script("increase", "increase", text, digest, Header((), (), True, True, MappingProxyType({})))
    return Call(script, (key,), (), int)


@FLAVOURS
def test_what_is_on_its_way_is_asked_for_where_it_goes(cluster: ClusterServers, make: Callable[..., Any]) -> None:
    gateway = make(RedisGateway, AsyncRedisGateway)
    there, here = b"sluicegate:{orders}:there", b"sluicegate:{orders}:here"
    assert gateway.execute(increase(here)) == 1
    source, target = cluster.begin_to_move(here)
    try:
        assert [gateway.execute(increase(there)) for _ in range(2)] == [1, 2]
        assert gateway.execute(increase(here)) == 2, "the next call goes to the old primary again"
        assert [_keys(server, here) for server in (source, target)] == [[here], [there]]
        assert _bell_wakes(gateway, target) is True
    finally:
        cluster.finish_moving(here, source, target)
    assert [gateway.execute(increase(key)) for key in (here, there)] == [3, 3]
    assert cluster.owner(here) is target


@FLAVOURS
def test_a_queue_goes_on_while_its_slot_moves(cluster: ClusterServers, make: Callable[..., Any]) -> None:
    queue = make(RedisMessageQueue, AsyncQueue, "orders", retry_budget_seconds=30, retry_max_delay_seconds=0.1)
    queue.publish_many([str(number) for number in range(50)])
    held = queue.claim(10)
    for server in cluster.servers:
        with server.client() as client:
            client.config_resetstat()
    source, target = cluster.begin_to_move(QUEUE.pending)
    results: list[Any] = []
    publishing = threading.Thread(target=lambda: results.append(queue.publish("late")))
    publishing.start()
    try:
        with source.client() as client:
            wait_until(lambda: _refused(client), "a publish that finds half of its keys")
        assert results == []
    finally:
        cluster.finish_moving(QUEUE.pending, source, target)
        publishing.join(timeout=20)
    assert results == [True]
    held.ack()
    with queue.claim(100) as rest:
        assert [message.text() for message in rest.messages] == [*map(str, range(10, 50)), "late"]
    assert queue.depth().claimed_total == queue.depth().published_total == 51
    with source.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_gateways_keep_their_contract(kind: str) -> None:
    program = programs()[0]
    servers: Topology = SentinelServers(program) if kind == "sentinel" else ClusterServers(program, primaries=1)
    try:
        servers.start()
        url = f"{servers.url}?socket_timeout=1"
        with servers.primary(QUEUE.pending) as client:
            check_gateway(lambda: RedisGateway(url=url), client)
            check_async_gateway(lambda: AsyncRedisGateway(url=url), client)
    finally:
        servers.remove()


def _refused(client: Any) -> bool:
    if client.info("server")["redis_version"].startswith("6."):  # counts refused calls, but not by their error
        calls = client.info("commandstats")
        return any(calls[name]["rejected_calls"] for name in calls if name.startswith("cmdstat_eval"))
    return bool(client.info("errorstats").get("errorstat_TRYAGAIN"))


def _keys(server: Server, key: bytes) -> Any:
    """Return the keys that a server has in a key's slot."""
    with server.client() as client:
        return raw(client, "CLUSTER", "GETKEYSINSLOT", key_slot(key), 10)


def _bell_wakes(gateway: Any, target: Server) -> bool:
    """Return whether a wait on the slot's old node is woken by a wake-up on its new one."""
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(gateway.wait(Wait(QUEUE.wakeup, 20))))
    waiting.start()
    with target.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"], "somebody waits at the new place")
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("ASKING").lpush(QUEUE.wakeup, "1").execute()
    waiting.join(timeout=20)
    return heard == [True]
