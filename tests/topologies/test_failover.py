"""A primary goes while messages are published and consumed: what a replica confirmed is delivered all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluicegate import RedisMessageQueue, RedisMessageQueueError, replicated
from sluicegate.core.keys import QueueKeys
from tests.conformance.flavours import Blocking, Loop
from tests.conformance.servers import programs
from tests.conformance.waiting import wait_until
from tests.topologies.servers import ClusterServers, SentinelServers, Topology

KEY = QueueKeys("orders").pending


@pytest.fixture(params=["sentinel", "cluster"])
def servers(request: pytest.FixtureRequest) -> Iterator[Topology]:
    program = programs()[0]
    made: Topology = SentinelServers(program) if request.param == "sentinel" else ClusterServers(program, replicas=True)
    try:
        yield made.start()
    finally:
        made.remove()


@pytest.fixture(params=["sync", "asyncio"])
def make(request: pytest.FixtureRequest, servers: Topology, loop: Loop) -> Iterator[Callable[[], Any]]:
    made: list[Any] = []

    def make_queue() -> Any:
        if request.param == "sync":
            made.append(RedisMessageQueue("orders", url=servers.url, retry_budget_seconds=60))
        else:
            from sluicegate.asyncio import RedisMessageQueue as AsyncQueue

            made.append(Blocking(AsyncQueue("orders", url=servers.url, retry_budget_seconds=60), loop))
        return made[-1]

    yield make_queue
    for queue in made:
        queue.close()


@pytest.mark.parametrize("how", ["failover", "crash"])
def test_what_was_confirmed_survives_the_primary(servers: Any, make: Callable[[], Any], how: str) -> None:
    confirmed: list[str] = []
    consumed: set[str] = set()
    stop = threading.Event()
    errors: list[BaseException] = []

    def publish() -> None:
        queue = make()
        for number in range(100_000):
            if stop.is_set():
                return
            try:
                queue.publish(str(number), durability=replicated(1, timeout_seconds=1))
                confirmed.append(str(number))
            except RedisMessageQueueError:
                stop.wait(0.05)  # stored perhaps, confirmed not: not counted on

    def consume() -> None:
        queue = make()
        while not (stop.is_set() and consumed.issuperset(confirmed)):
            try:
                with queue.claim(10, wait_seconds=1) as lease:
                    texts = [message.text() for message in lease]
                consumed.update(texts)
            except RedisMessageQueueError as error:
                errors.append(error)  # a lease that was lost with the primary is delivered again

    def publisher_is_past(count: int) -> Callable[[], bool]:
        return lambda: len(confirmed) > count

    publishing, consuming = (threading.Thread(target=work, daemon=True) for work in (publish, consume))
    publishing.start()
    consuming.start()
    try:
        wait_until(publisher_is_past(20), "the publisher is at work")
        change = getattr(servers, how)
        change(KEY) if isinstance(servers, ClusterServers) else change()
        if how == "failover":
            wait_until(publisher_is_past(len(confirmed) + 20), "it goes on with the new primary", 40)
    finally:
        stop.set()
    publishing.join(timeout=70)
    wait_until(lambda: consumed.issuperset(confirmed), "everything confirmed is consumed", 40)
    consuming.join(timeout=10)
    assert not consuming.is_alive()
    assert not publishing.is_alive()
