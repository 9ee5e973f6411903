"""The slot of a queue is moved to another node, key by key, while messages are published and consumed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from sluicegate import RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.core.keys import QueueKeys
from tests.support import state
from tests.support.flavours import Blocking, Loop
from tests.support.servers import programs
from tests.support.topologies import ClusterServers, Server, raw
from tests.support.waiting import wait_until

KEY = QueueKeys("orders").pending
SLOT = key_slot(KEY)


@pytest.fixture
def servers() -> Iterator[ClusterServers]:
    with ClusterServers(programs()[0]) as running:
        yield running


@pytest.fixture(params=["sync", "asyncio"])
def make(request: pytest.FixtureRequest, servers: ClusterServers, loop: Loop) -> Iterator[Callable[[], Any]]:
    made: list[Any] = []

    def make_queue() -> Any:
        options: dict[str, Any] = {"url": servers.url, "retry_budget_seconds": 60, "retry_max_delay_seconds": 0.2}
        asynchronous = request.param == "asyncio"
        queue = Blocking(AsyncQueue("orders", **options), loop) if asynchronous else None
        made.append(queue or RedisMessageQueue("orders", **options))
        return made[-1]

    yield make_queue
    for queue in made:
        queue.close()


def move(source: Server, target: Server, others: list[Server], between: Callable[[], Any]) -> None:
    """Move the queue's slot; `between` is called a few times while some keys are here and some there."""
    with source.client() as here, target.client() as there:
        names = {server: raw(client, "CLUSTER", "MYID") for server, client in ((source, here), (target, there))}
        raw(there, "CLUSTER", "SETSLOT", SLOT, "IMPORTING", names[source])
        raw(here, "CLUSTER", "SETSLOT", SLOT, "MIGRATING", names[target])
        for most in (1, 1, 1, 1, 100_000):
            for key in raw(here, "CLUSTER", "GETKEYSINSLOT", SLOT, most):
                raw(here, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            between()
        assert raw(here, "CLUSTER", "COUNTKEYSINSLOT", SLOT) == 0
        for client in (there, here):
            raw(client, "CLUSTER", "SETSLOT", SLOT, "NODE", names[target])
    for server in others:
        with server.client() as client:
            raw(client, "CLUSTER", "SETSLOT", SLOT, "NODE", names[target])


def test_a_slot_on_its_way(servers: ClusterServers, make: Callable[[], Any]) -> None:
    published: list[str] = []
    consumed: Counter[str] = Counter()
    stop = threading.Event()

    def publish() -> None:
        queue = make()
        while not stop.is_set():
            queue.publish(str(len(published)))
            published.append(str(len(published)))

    def consume() -> None:
        queue = make()
        while not (stop.is_set() and not publishing.is_alive() and len(consumed) == len(published)):
            with queue.claim(5, wait_seconds=0.5) as lease:
                texts = [message.text() for message in lease]
            consumed.update(texts)

    def published_more() -> None:
        before = len(published)
        wait_until(lambda: len(published) > before + 20, "the publisher is at work")

    publishing, consuming = (threading.Thread(target=work, daemon=True) for work in (publish, consume))
    publishing.start()
    consuming.start()
    try:
        for _ in range(2):
            published_more()
            source = servers.owner(KEY)
            assert source is not None
            target, *others = [server for server in servers.servers if server is not source]
            move(source, target, others, lambda: stop.wait(0.05))
            published_more()
            assert servers.owner(KEY) is target
    finally:
        stop.set()
    publishing.join(timeout=30)
    consuming.join(timeout=30)
    assert not publishing.is_alive()
    assert not consuming.is_alive()
    assert consumed == Counter(published)
    with servers.primary(KEY) as client:
        state.check(client)
