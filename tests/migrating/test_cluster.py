"""On a cluster, source and target are in different slots, and often on different servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate import RedisGateway
from sluicegate.core.keys import QueueKeys
from sluicegate.jobs import RedisJobQueue
from sluicegate.migrating import JobQueueSource, MessageQueueSource, Migration, StreamSource
from sluicegate.streams import RedisStreamQueue
from tests.migrating.old_queues import OldMessageQueue
from tests.support import markers
from tests.support.servers import PROGRAMS
from tests.support.topologies import ClusterServers

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServers]:
    """Yield a cluster of three primaries."""
    with ClusterServers(PROGRAMS[0]) as running:
        yield running


def test_every_source_moves_across_slots(cluster: ClusterServers) -> None:
    client = cluster.client()
    gateway = RedisGateway(redis_client=client)
    OldMessageQueue(client, "{orders}").publish(*map(str, range(30)))
    client.set("{orders}::deduplication::k", "", ex=99)
    ids = [f"job{number}" for number in range(30)]
    for number, job_id in enumerate(ids):
        client.hset(f"queue:jobs:job:{job_id}", mapping={"id": job_id, "payload": f"[{number}]"})
        client.lpush("queue:jobs:pending", job_id)
        client.xadd("events", {"data": str(number)}, id=f"{number + 1}-1")

    def move(source: MessageQueueSource | JobQueueSource | StreamSource, name: str) -> int:
        return Migration(source, name, source_gateway=gateway).run().moved

    assert move(MessageQueueSource("{orders}"), "new") == 30
    assert move(JobQueueSource(), "jobs") == 30
    assert move(StreamSource("events"), "stream") == 30
    assert [job.id for job in RedisJobQueue("jobs", client=client).list("waiting", 99)] == ids
    texts = [message.text() for message in RedisStreamQueue("stream", client=client).peek(99)]
    assert texts == [str(number) for number in range(30)]
    assert markers.owner(client, QueueKeys("new"), b"k") == b"moved-from-{orders}"
    assert (client.llen("{orders}::pending"), client.exists("queue:jobs:job:job0"), client.xlen("events")) == (0, 0, 0)
