"""Each right that a user lacks is named, and nothing else; the examination itself survives without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate import RedisGateway, RedisMessageQueue, RedisStreamQueue
from sluicegate.doctor import examine, rights
from sluicegate.place import Place
from tests.doctor.conftest import ORDERS, of, one
from tests.support import access_rights
from tests.support.axes import quick
from tests.support.servers import PROGRAMS
from tests.support.topologies import AclServer, raw

EXTRA = ("+info", "+config|get", "+scan", "+hscan", "+wait", "+waitaof", "+command|info")


@pytest.fixture(scope="module", params=quick(PROGRAMS, PROGRAMS[0]), ids=lambda path: path.parts[-3])
def server(request: pytest.FixtureRequest) -> Iterator[AclServer]:
    with AclServer(request.param) as running:
        yield running


@pytest.fixture(params=quick((2, 3), 2), ids=lambda protocol: f"resp{protocol}")
def gateway(server: AclServer, request: pytest.FixtureRequest) -> Iterator[RedisGateway]:
    made = RedisGateway(url=f"{server.url}&protocol={request.param}")
    yield made
    made.close()
    server.allow(*access_rights.RULE)


def test_the_table_is_that_of_the_documentation() -> None:
    assert set(rights.IN_SCRIPTS) == set(access_rights.IN_SCRIPTS)
    assert set(rights.SENT) == set(access_rights.SENT)
    needed = {f"+{name}" for need in rights.NEEDS for name in (*need.sent, *need.called)}
    assert needed >= {
        *access_rights.FOR_EVICTION,
        *access_rights.FOR_REPAIR,
        *access_rights.FOR_STREAMS,
        *access_rights.FOR_REPLICAS,
        *access_rights.FOR_FSYNC,
        *access_rights.FOR_CLUSTER,
    }


def test_the_rule_of_the_documentation_is_enough(server: AclServer, gateway: RedisGateway) -> None:
    found = examine(gateway, ORDERS, sample_seconds=0)
    assert of(found, "rights", "error", "warning") == []
    lacking = " ".join(finding.what for finding in of(found, "rights"))
    for need in ("repair()", "replicated(n)", "maxmemory-policy", "large messages"):
        assert need in lacking
    assert {finding.check for finding in of(found, "eviction") + of(found, "persistence") + of(found, "version")} == {
        *("eviction", "persistence", "version")
    }
    assert all("could not look" in finding.what for finding in of(found, "eviction") + of(found, "persistence"))


@pytest.mark.parametrize(
    "name",
    quick((*access_rights.SENT, *access_rights.IN_SCRIPTS), "evalsha", "blpop", "ping", "lpush", "set", "time", "del"),
)
def test_a_missing_command_is_named(server: AclServer, gateway: RedisGateway, name: str) -> None:
    server.allow(*access_rights.RULE, *(right for right in EXTRA if _is_known(server, right)), f"-{name}")
    with server.servers[0].client() as admin:
        admin.flushall()
        found = of(examine(gateway, ORDERS, sample_seconds=0), "rights", "error")
        assert admin.keys() == [], "nothing is left"
    assert [finding.what.split(";")[0] for finding in found] == [f"this user may not use {name}"]
    assert f"+{name};" in found[0].advice


def test_several_missing_commands_are_one_finding(server: AclServer, gateway: RedisGateway) -> None:
    server.allow(*access_rights.RULE, "-zadd", "-lpush")
    finding = one(examine(gateway, ORDERS, sample_seconds=0), "rights", "error")
    assert "may not use lpush, zadd; every queue needs them" in finding.what
    assert "+lpush +zadd" in finding.advice


def test_what_streams_need_is_an_error_only_where_there_is_one(server: AclServer, gateway: RedisGateway) -> None:
    server.allow(*access_rights.RULE)
    assert "xgroup" in " ".join(each.what for each in of(examine(gateway, ORDERS, sample_seconds=0), "rights", "note"))
    group = [Place("events", stream=True, group="billing")]
    finding = one(examine(gateway, group, sample_seconds=0), "rights", "error")
    assert "xack, xdel, xgroup, xinfo, xpending, xrange, xtrim, needed for streams" in finding.what
    server.allow(*access_rights.RULE, *access_rights.FOR_STREAMS)
    assert of(examine(gateway, group, sample_seconds=0), "rights", "error") == []


def test_a_user_of_one_queue_lacks_the_keys_of_another(server: AclServer, gateway: RedisGateway) -> None:
    server.allow(*access_rights.RULE, "resetkeys", "~sluicegate:{orders}:*")
    found = examine(gateway, [*ORDERS, Place("bills")], sample_seconds=0)
    finding = one(found, "rights", "error")
    assert (finding.where, "none of its keys" in finding.what) == ("queue 'bills'", True)
    assert "~sluicegate:{bills}:*" in finding.advice
    assert "queue 'bills'" in one(found, "readable", "error").where


def test_single_keys_that_a_rule_leaves_out_are_named(server: AclServer, gateway: RedisGateway) -> None:
    server.allow(*access_rights.RULE, "resetkeys", "~sluicegate:{orders}:[^dl]*")
    finding = one(examine(gateway, ORDERS, sample_seconds=0), "rights", "error")
    assert "delayed, leases, dead, dead_records, lease:*" in finding.what


def test_without_scan_queues_must_be_named(server: AclServer, gateway: RedisGateway) -> None:
    with server.servers[0].client() as admin:
        RedisMessageQueue("orders", client=admin).publish("a")
        RedisStreamQueue("events", client=admin).publish("a")
    found = examine(gateway, sample_seconds=0)
    finding = one(found, "queues")
    assert (finding.severity, "could not look" in finding.what) == ("note", True)
    assert "SCAN is refused" in one(found, "orphans").what


def _is_known(server: AclServer, right: str) -> bool:
    with server.servers[0].client() as admin:
        return any(raw(admin, "COMMAND", "INFO", right[1:].partition("|")[0]))
