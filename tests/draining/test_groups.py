"""`sluicegate.drain` of a group of a stream, whose worker processes make it from its spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate import DrainFailedError, drain
from sluicegate.opening import open_spec
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.draining.handlers import Traces, written
from tests.support.flavours import MakeStream
from tests.support.servers import RedisServer


@pytest.fixture
def stream(server: RedisServer, make_stream: MakeStream) -> RedisStreamQueue:
    """Return a stream of the numbers below 40."""
    made = make_stream(url=server.url)
    made.publish_many({"n": n} for n in range(40))
    return made


def group_of(stream: RedisStreamQueue, name: str) -> ConsumerGroup:
    """Return a group as another process gets it."""
    made = open_spec(stream.group(name, start="beginning", max_delivery_count=1).spec())
    assert isinstance(made, ConsumerGroup)
    return made


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_group_is_drained_by_workers_and_a_failing_message_dies_in_it_alone(
    stream: RedisStreamQueue, tmp_path: Path, kind: str
) -> None:
    billing, shipping = group_of(stream, "billing"), group_of(stream, "shipping")
    with pytest.raises(DrainFailedError, match="the handler failed on 1 of 40 messages"):
        drain(billing, Traces(tmp_path, raise_on=17), batch_size=10, workers=2, worker_kind=kind)  # type: ignore[arg-type]
    assert written(tmp_path) == [n for n in range(40) if n != 17]
    (dead,) = billing.peek(state="dead")
    assert dead.message is not None
    assert (dead.message.json(), dead.error_type) == ({"n": 17}, "ValueError")
    assert (billing.lag(), billing.stats().acked, billing.depth().leases) == (0, 39, 0)
    assert (shipping.lag(), shipping.depth().dead) == (40, 0)
    assert billing.redrive().redriven == 1
    again = drain(billing, Traces(tmp_path), batch_size=10, workers=2, worker_kind=kind)  # type: ignore[arg-type]
    assert (again.queue, again.claimed, again.acked) == ("orders", 1, 1)
    assert written(tmp_path) == list(range(40))
    for group in (billing, shipping):
        group.close()
