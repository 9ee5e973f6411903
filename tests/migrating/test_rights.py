"""A user with the rights that the documentation lists can move every kind of source."""

from __future__ import annotations

import re

import pytest
import redis

from sluicegate import RedisGateway
from sluicegate.migrating import JobQueueSource, MessageQueueSource, Migration, StreamSource
from tests.migrating.old_queues import OldJobQueue, OldMessageQueue
from tests.support import access_rights
from tests.support.project import ROOT
from tests.support.servers import programs
from tests.support.topologies import AclServer

SOURCES = {"new": MessageQueueSource("orders"), "jobs": JobQueueSource(), "stream": StreamSource("old")}


def documented() -> list[str]:
    """Return the rights that the page lists for the user of a source."""
    page = (ROOT / "docs" / "migration.md").read_text()
    (block,) = re.findall(r"```text\n(\+evalsha.*?)```", page, re.DOTALL)
    return [right for right in block.split() if right != "\\"]


def fill(client: redis.Redis) -> None:
    old = OldMessageQueue(client)
    old.publish("a", "b")
    old.claim(deadline_in_ms=-1)
    old.end("dlq", "d")
    old.hold("k")
    OldJobQueue(client).enqueue([[1]])
    client.xadd("old", {"data": "1"})
    client.xgroup_create("old", "g", "0")
    client.xreadgroup("g", "one", {"old": ">"})


RIGHTS = {
    "source": ("resetchannels", "allkeys", *documented()),
    "target": (*access_rights.RULE, *access_rights.FOR_STREAMS, "+xclaim"),
}


@pytest.mark.full
@pytest.mark.parametrize("side", RIGHTS)
def test_the_documented_rights_suffice(side: str) -> None:
    with AclServer(programs()[0]) as server:
        server.allow(*RIGHTS[side])
        with server.servers[0].client() as admin, server.client() as limited:
            fill(admin)
            users = {"source": admin, "target": admin, side: limited}
            gateways = {name: RedisGateway(redis_client=user) for name, user in users.items()}
            for name, source in SOURCES.items():
                Migration(
                    source,
                    name,
                    source_gateway=gateways["source"],
                    target_gateway=gateways["target"],
                    live_seconds=0,
                ).run()
            assert server.refused() == set()
            assert admin.xlen("sluicegate:{stream}:stream") == 1
