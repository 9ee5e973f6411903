"""Places are found on every primary, whichever way Redis is reached."""

from __future__ import annotations

from typing import Any

import sluicegate.asyncio
from sluicegate import RedisGateway
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, Snapshot, find_places, read_snapshots
from tests.support import access_rights
from tests.support.flavours import Loop
from tests.support.topologies import AclCluster, AclServer, ClusterServers, Topology
from tests.topologies.ways import QueueMaker

NAMES = sorted(f"queue-{number}" for number in range(12))


def test_places_are_found_on_every_server(make: QueueMaker, topology: Topology, loop: Loop) -> None:
    for name in NAMES:
        make(name).publish("x")
    usual = (*access_rights.RULE, *(access_rights.FOR_CLUSTER if isinstance(topology, AclCluster) else ()))
    if isinstance(topology, AclServer | AclCluster):
        topology.allow(*usual, "+scan")
    client = topology.client()
    gateway = RedisGateway(redis_client=client)
    assert find_places(gateway) == [FoundPlace(Place(name), "queue") for name in NAMES]
    states = read_snapshots(gateway, [Place(name) for name in NAMES])
    assert [each.depth.ready for each in states.values() if isinstance(each, Snapshot)] == [1] * len(NAMES)
    answers = gateway.ask([("PING",), ("NONSENSE",)])
    client.close()

    async def ask() -> dict[str, list[Any]]:
        async with topology.async_client() as client:
            return await sluicegate.asyncio.RedisGateway(redis_client=client).ask([("PING",), ("NONSENSE",)])

    answers_async = loop.run(ask)
    if isinstance(topology, AclServer | AclCluster):
        topology.allow(*usual)
    assert len(answers) == (3 if isinstance(topology, ClusterServers) else 1)
    assert answers.keys() == answers_async.keys()
    for pong, error in (*answers.values(), *answers_async.values()):
        assert pong in (b"PONG", "PONG")
        assert isinstance(error, Exception)
