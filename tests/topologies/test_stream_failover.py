"""A primary goes while a stream is published to and consumed: what was acked just before may be delivered again.

Redis replicates asynchronously, so a new primary may lack the last claims and acks of a group. The repeats are bounded
by them, and each has the id that it had before.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sluicegate import LeaseLostError, NotDurableError, RedisStreamQueue, replicated
from sluicegate.core.keys import StreamKeys
from tests.support.axes import quick
from tests.support.flavours import Blocking, Loop
from tests.support.servers import programs
from tests.support.topologies import ClusterServers, SentinelServers, Topology
from tests.support.waiting import wait_until

KEY = StreamKeys("orders").stream
OPTIONS = {"retry_budget_seconds": 60, "retry_max_delay_seconds": 0.3}
BATCH = 10


@pytest.fixture(params=quick(["sentinel", "cluster"], "sentinel"))
def servers(request: pytest.FixtureRequest) -> Iterator[Topology]:
    program = programs()[0]
    made: Topology
    # Two replicas, so that one is left to confirm when the other has become the primary.
    made = (
        SentinelServers(program, replicas=2) if request.param == "sentinel" else ClusterServers(program, replicas=True)
    )
    with made:
        yield made


@pytest.fixture(params=quick(["sync", "asyncio"], "sync"))
def make(request: pytest.FixtureRequest, servers: Topology, loop: Loop) -> Iterator[Callable[[], Any]]:
    made: list[Any] = []

    def make_stream() -> Any:
        if request.param == "sync":
            made.append(RedisStreamQueue("orders", url=servers.url, **OPTIONS))
        else:
            from sluicegate.asyncio import RedisStreamQueue as AsyncStream

            made.append(Blocking(AsyncStream("orders", url=servers.url, **OPTIONS), loop))
        return made[-1]

    yield make_stream
    for stream in made:
        stream.close()


class Traffic:
    """A publisher and a consumer of a group, each a loop that nothing but `stop` may end."""

    def __init__(self, make: Callable[[], Any], replicas: int) -> None:
        self.replicas = replicas  # that must have a message: any of them may become the primary
        self.confirmed: list[str] = []
        self.acked: Counter[tuple[str, str]] = Counter()  # by payload and id, as the consumer counts its acks
        self.unexpected: list[BaseException] = []
        self._numbers = itertools.count()
        self._no_more, self._enough = threading.Event(), threading.Event()
        publisher, consumer = make(), make()
        group = consumer.group("g", start="beginning", visibility_timeout_seconds=2)
        steps = ((partial(self._publish, publisher), self._no_more), (partial(self._consume, group), self._enough))
        self._threads = [threading.Thread(target=self._repeat, args=each, daemon=True) for each in steps]
        for thread in self._threads:
            thread.start()

    def consumed(self) -> set[str]:
        return {text for text, _ in list(self.acked)}

    def goes_on(self, what: str) -> None:
        """Return once messages that were published from now on are confirmed, and consumed."""
        past = len(self.confirmed) + 20
        wait_until(lambda: len(self.confirmed) > past, f"{what}: publishes are confirmed")
        wait_until(lambda: self.consumed() >= set(self.confirmed[:past]), f"{what}: what is confirmed is consumed")

    def stop(self) -> None:
        """End the publisher, and the consumer when it has had everything."""
        publisher, consumer = self._threads
        self._no_more.set()
        publisher.join(timeout=60)
        try:
            wait_until(lambda: self.consumed() >= set(self.confirmed), "everything confirmed is consumed")
        finally:
            self._enough.set()
            consumer.join(timeout=60)
        assert not publisher.is_alive()
        assert not consumer.is_alive()

    def _repeat(self, step: Callable[[], None], end: threading.Event) -> None:
        try:
            while not end.is_set():
                step()
        except BaseException as error:
            self.unexpected.append(error)

    def _publish(self, stream: Any) -> None:
        text = str(next(self._numbers))
        try:
            stream.publish(text, durability=replicated(self.replicas, timeout_seconds=0.5))
        except NotDurableError:
            return  # stored perhaps, confirmed not: not counted on
        self.confirmed.append(text)

    def _consume(self, group: Any) -> None:
        try:
            lease = group.claim(BATCH, wait_seconds=0.5, heartbeat=False)
            messages = list(lease.messages)
            lease.ack()
        except LeaseLostError:
            return  # with the primary; its messages are delivered again
        self.acked.update((message.text(), message.id) for message in messages)


@pytest.mark.parametrize("how", quick(["failover", "crash"], "crash"))
def test_acked_messages_may_come_again_after_a_failover_under_their_ids_and_none_is_lost(
    servers: Any, make: Callable[[], Any], how: str
) -> None:
    traffic = Traffic(make, replicas=2 if isinstance(servers, SentinelServers) else 1)
    try:
        traffic.goes_on("before")
        getattr(servers, how)(KEY)
        traffic.replicas = 1
        traffic.goes_on("after")
    finally:
        traffic.stop()
    assert traffic.unexpected == []
    again = sum(count - 1 for count in traffic.acked.values())
    assert again <= 20 * BATCH, "only what the replica had not received yet comes again"
    ids = dict[str, set[str]]()
    for text, name in traffic.acked:
        ids.setdefault(text, set()).add(name)
    # The publish that was under way is repeated on the new primary, which may lack it: then it gets another id there.
    assert len([text for text in traffic.confirmed if len(ids[text]) > 1]) <= 1
