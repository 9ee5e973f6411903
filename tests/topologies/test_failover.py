"""A primary goes while messages are published and consumed: what a replica confirmed is delivered all the same."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sluicegate import LeaseLostError, NotDurableError, RedisMessageQueue, replicated
from sluicegate.core.keys import QueueKeys
from tests.support.flavours import Blocking, Loop
from tests.support.servers import programs
from tests.support.topologies import ClusterServers, SentinelServers, Topology
from tests.support.waiting import wait_until

KEY = QueueKeys("orders").pending
OPTIONS = {"retry_budget_seconds": 60, "retry_max_delay_seconds": 0.3}


@pytest.fixture(params=["sentinel", "cluster"])
def servers(request: pytest.FixtureRequest) -> Iterator[Topology]:
    program = programs()[0]
    made: Topology
    # Two replicas, so that one is left to confirm when the other has become the primary.
    made = (
        SentinelServers(program, replicas=2) if request.param == "sentinel" else ClusterServers(program, replicas=True)
    )
    with made:
        yield made


@pytest.fixture(params=["sync", "asyncio"])
def make(request: pytest.FixtureRequest, servers: Topology, loop: Loop) -> Iterator[Callable[[], Any]]:
    made: list[Any] = []

    def make_queue() -> Any:
        if request.param == "sync":
            made.append(RedisMessageQueue("orders", url=servers.url, **OPTIONS))
        else:
            from sluicegate.asyncio import RedisMessageQueue as AsyncQueue

            made.append(Blocking(AsyncQueue("orders", url=servers.url, **OPTIONS), loop))
        return made[-1]

    yield make_queue
    for queue in made:
        queue.close()


class Traffic:
    """A publisher and a consumer, each a loop that nothing but `stop` may end."""

    def __init__(self, make: Callable[[], Any], replicas: int) -> None:
        self.replicas = replicas  # that must have a message: any of them may become the primary
        self.confirmed: list[str] = []
        self.consumed: set[str] = set()
        self.lost_leases: list[LeaseLostError] = []
        self.unexpected: list[BaseException] = []
        self._numbers = itertools.count()
        self._no_more, self._enough = threading.Event(), threading.Event()
        loops = ((self._publish, self._no_more), (self._consume, self._enough))
        self._threads = [
            threading.Thread(target=self._repeat, args=(partial(step, make()), end), daemon=True) for step, end in loops
        ]
        for thread in self._threads:
            thread.start()

    def goes_on(self, what: str) -> None:
        """Return once messages that were published from now on are confirmed, and consumed."""
        past = len(self.confirmed) + 20
        wait_until(lambda: len(self.confirmed) > past, f"{what}: publishes are confirmed")
        wait_until(lambda: self.consumed.issuperset(self.confirmed[:past]), f"{what}: what is confirmed is consumed")

    def stop(self) -> None:
        """End the publisher, and the consumer when it has had everything."""
        publisher, consumer = self._threads
        self._no_more.set()
        publisher.join(timeout=60)
        assert not publisher.is_alive()
        try:
            wait_until(lambda: self.consumed.issuperset(self.confirmed), "everything confirmed is consumed")
        finally:
            self._enough.set()
            consumer.join(timeout=60)
        assert not consumer.is_alive()

    def _repeat(self, step: Callable[[], None], end: threading.Event) -> None:
        try:
            while not end.is_set():
                step()
        except BaseException as error:
            self.unexpected.append(error)

    def _publish(self, queue: Any) -> None:
        text = str(next(self._numbers))
        try:
            queue.publish(text, durability=replicated(self.replicas, timeout_seconds=0.5))
        except NotDurableError:
            return  # stored perhaps, confirmed not: not counted on
        self.confirmed.append(text)

    def _consume(self, queue: Any) -> None:
        try:
            with queue.claim(10, wait_seconds=0.5, lease_seconds=5) as lease:
                self.consumed.update(message.text() for message in lease)
        except LeaseLostError as error:
            self.lost_leases.append(error)  # with the primary; its messages are delivered again


@pytest.mark.parametrize("how", ["failover", "crash"])
def test_what_was_confirmed_survives_the_primary(servers: Any, make: Callable[[], Any], how: str) -> None:
    traffic = Traffic(make, replicas=2 if isinstance(servers, SentinelServers) else 1)
    try:
        traffic.goes_on("before")
        getattr(servers, how)(KEY)
        traffic.replicas = 1
        traffic.goes_on("after")
    finally:
        traffic.stop()
    assert traffic.unexpected == []
    if isinstance(servers, ClusterServers) and how == "failover":
        assert traffic.lost_leases == [], "a cluster's own failover hands everything over"
