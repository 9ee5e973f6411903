"""The rules about a cluster: slots without a server, nodes that failed, primaries without a replica, clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluicegate.doctor.finding import Finding, could_not_look, error, note, ok, warning
from sluicegate.doctor.server_facts import ServerFacts
from sluicegate.doctor.units import count, duration

__all__ = ["check_clocks_together", "check_cluster"]

_SLOTS = 16_384
_APART_SECONDS = 1.0


def check_cluster(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Yield how the cluster is, as each of its primaries sees it; equal findings of several are one."""
    yield from dict.fromkeys(finding for facts in servers if facts.is_cluster for finding in _of_one(facts))


def check_clocks_together(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Yield how far the clocks of several servers are apart."""
    known = [facts for facts in servers if facts.clock_offset is not None]
    if len(known) < 2:
        return
    known.sort(key=lambda facts: facts.clock_offset or 0.0)
    first, last = known[0], known[-1]
    apart = (last.clock_offset or 0.0) - (first.clock_offset or 0.0) - first.clock_error - last.clock_error
    where = f"{first.server} and {last.server}"
    if apart > _APART_SECONDS:
        yield warning(
            "clock",
            where,
            f"their clocks are {duration(apart)} apart: a slot that moves to another server takes leases, delays and "
            "markers with it, which then expire early or late by that much",
            "synchronize the servers by NTP",
        )
    else:
        yield ok("clock", where, "the clocks of the servers agree")


def _of_one(facts: ServerFacts) -> Iterator[Finding]:
    where = "cluster"
    if not facts.cluster:
        why = facts.refused.get("CLUSTER INFO", "the server shows nothing of it")
        yield could_not_look("cluster", where, why, "grant this user +cluster|info +cluster|nodes")
        return
    state, assigned = facts.cluster.get("cluster_state"), _number(facts, "cluster_slots_assigned")
    if assigned < _SLOTS:
        yield error(
            "cluster",
            where,
            f"{count(_SLOTS - assigned, 'slot')} of {_SLOTS:,} have no server: queues there cannot be used, and by "
            "default none in the whole cluster",
            "redis-cli --cluster fix, or bring back the nodes that had them",
        )
    failed = _number(facts, "cluster_slots_fail")
    if failed:
        yield error(
            "cluster",
            where,
            f"the server of {count(failed, 'slot')} failed, and no replica has taken over",
            "bring it back, or promote its replica (CLUSTER FAILOVER TAKEOVER)",
        )
    elif state != "ok" and assigned == _SLOTS:
        yield error("cluster", where, f"its state is {state}", "look at CLUSTER INFO and CLUSTER NODES there")
    yield from _nodes(facts, where)
    if state == "ok" and assigned == _SLOTS and not failed:
        yield ok("cluster", where, f"all {_SLOTS:,} slots have a server")


def _nodes(facts: ServerFacts, where: str) -> Iterator[Finding]:
    if not facts.nodes:
        why = facts.refused.get("CLUSTER NODES", "the server lists no nodes")
        yield could_not_look("cluster", where, why, "grant this user +cluster|nodes")
        return
    failing = [node for node in facts.nodes if len(node) > 7 and {"fail", "fail?"} & set(node[2].split(","))]
    for node in failing:
        yield warning(
            "cluster",
            where,
            f"node {node[1].partition('@')[0]} is {'failed' if 'fail' in node[2].split(',') else 'suspected to fail'}",
            "bring it back, or remove it (CLUSTER FORGET)",
        )
    for node in facts.nodes:
        moving = [word for word in node[8:] if word.startswith("[")]
        if moving:
            yield note(
                "cluster",
                where,
                f"{count(len(moving), 'slot')} of {node[1].partition('@')[0]} are being moved; calls wait for the move "
                "of a queue's last key",
                "finish the move (redis-cli --cluster fix)",
            )
    followed = {node[3] for node in facts.nodes if "slave" in node[2].split(",")}
    alone = [node[1].partition("@")[0] for node in facts.nodes if _serves(node) and node[0] not in followed]
    if alone:
        yield warning(
            "cluster",
            where,
            f"{', '.join(sorted(alone))} {'has' if len(alone) == 1 else 'have'} no replica: when such a node is down, "
            "its queues cannot be used",
            "add a replica for each (redis-cli --cluster add-node --cluster-slave)",
        )


def _serves(node: Sequence[str]) -> bool:
    """Return whether a node is a primary that has slots and works."""
    flags = node[2].split(",") if len(node) > 8 else []
    return "master" in flags and "fail" not in flags


def _number(facts: ServerFacts, name: str) -> int:
    value = facts.cluster.get(name, "0")
    return int(value) if value.isdigit() else 0
