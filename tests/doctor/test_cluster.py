"""A cluster's slots, nodes and queues on every primary are examined."""

from __future__ import annotations

import pytest

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.doctor import examine
from sluicegate.doctor.cluster_rules import check_cluster
from sluicegate.doctor.server_facts import ServerFacts
from tests.doctor.conftest import of
from tests.support.servers import PROGRAMS
from tests.support.topologies import ClusterServers, raw

NODES = """
a 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-8191
b 10.0.0.2:6379@16379 master,fail - 0 0 2 connected 8192-16383
c 10.0.0.3:6379@16379 slave a 0 0 1 connected
""".strip().splitlines()


def seen(nodes: list[str] = NODES, **info: str) -> ServerFacts:
    """Return what one node says."""
    whole = {"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_slots_fail": "0"}
    return ServerFacts(
        "10.0.0.1:6379",
        {"cluster_enabled": "1"},
        cluster={**whole, **info},
        nodes=[line.split() for line in nodes],
    )


def test_a_whole_cluster_is_in_order() -> None:
    whole = [NODES[0].replace("8191", "16383"), NODES[2]]
    assert [(each.severity, each.what) for each in check_cluster([seen(whole)])] == [
        ("ok", "all 16,384 slots have a server")
    ]


def test_slots_without_a_server_and_failed_nodes_are_errors() -> None:
    facts = seen(cluster_state="fail", cluster_slots_assigned="16380", cluster_slots_fail="8192")
    found = list(check_cluster([facts, facts]))
    assert [(each.severity, each.what.split(":")[0]) for each in found] == [
        ("error", "4 slots of 16,384 have no server"),
        ("error", "the server of 8,192 slots failed, and no replica has taken over"),
        ("warning", "node 10.0.0.2"),
    ]
    (finding,) = check_cluster([seen(cluster_state="fail", nodes=[NODES[0], NODES[2]])])
    assert (finding.severity, finding.what) == ("error", "its state is fail")


def test_moving_slots_and_primaries_without_a_replica() -> None:
    nodes = [f"{NODES[0]} [8191->-b]", NODES[1].replace(",fail", "")]
    found = list(check_cluster([seen(nodes)]))
    assert [(each.severity, each.what.split(" ")[0]) for each in found] == [
        ("note", "1"),
        ("warning", "10.0.0.1:6379,"),
        ("ok", "all"),
    ]


def test_a_cluster_that_may_not_be_looked_at() -> None:
    facts = ServerFacts("s", {"cluster_enabled": "1"}, refused={"CLUSTER INFO": "NOPERM"})
    (finding,) = check_cluster([facts])
    assert (finding.severity, finding.what) == ("note", "could not look: NOPERM")


@pytest.mark.full
def test_a_real_cluster() -> None:
    with ClusterServers(PROGRAMS[0]) as servers:
        gateway = RedisGateway(url=servers.url)
        for name in ("orders", "bills", "events"):
            with RedisMessageQueue(name, url=servers.url, get_deduplication_key=str) as queue:
                queue.publish_many(["a", "b"])
        found = examine(gateway, sample_seconds=0)
        assert of(found, "cluster", "error") == of(found, "rights", "error") == of(found, "reachable") == []
        assert {each.where for each in of(found, "stored", "ok")} == {
            "queue 'orders'",
            "queue 'bills'",
            "queue 'events'",
        }
        assert "has no replica" in of(found, "cluster", "warning")[0].what or "have no replica" in str(found)
        assert len(of(found, "version", "ok")) == 3
        assert {each.severity for each in of(found, "clock", "ok", "warning")} == {"ok"}
        with servers.servers[0].client() as client:
            raw(client, "CLUSTER", "DELSLOTS", 0, 1)
        found = examine(gateway, sample_seconds=0)
        assert "2 slots of 16,384 have no server" in of(found, "cluster", "error")[0].what
        gateway.close()
