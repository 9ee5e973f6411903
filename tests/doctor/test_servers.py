"""Each rule about a server finds what it is there for, on a server that is configured so."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.doctor import Severity, examine, worst
from sluicegate.doctor.cluster_rules import check_clocks_together
from sluicegate.doctor.server_facts import ServerFacts, read_servers
from sluicegate.doctor.server_rules import check_clock, check_persistence, check_replicas
from sluicegate.doctor.versions import check_version
from sluicegate.errors import ConfigurationError
from tests.doctor.conftest import Examine, of, one
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.topologies import ReplicatedServers
from tests.support.waiting import wait_until


def test_a_healthy_server_has_no_finding_worse_than_a_note(
    server: RedisServer, look: Examine, bare_client: redis.Redis
) -> None:
    bare_client.config_set("appendonly", "yes")
    with RedisMessageQueue("orders", url=server.url) as queue:
        queue.publish_many(["a", "b"])
    bare_client.config_set("maxmemory", "1gb")
    found = look()
    assert worst(found) == "note"
    assert {finding.check for finding in found if finding.severity == "ok"} >= {
        *("version", "eviction", "persistence", "memory", "connections", "clock", "rights", "stored", "client"),
        "orphans",
    }
    assert bare_client.keys("*published:*") == [
        key for key in bare_client.keys("*published:*") if bare_client.pttl(key) > 1000
    ], "the examination leaves no spare key"


@pytest.mark.parametrize(("limit", "severity"), [("0", "warning"), ("100mb", "error")])
def test_an_eviction_policy_is_an_error_once_it_can_take_effect(
    look: Examine, bare_client: redis.Redis, limit: str, severity: str
) -> None:
    bare_client.config_set("maxmemory-policy", "volatile-lru")
    bare_client.config_set("maxmemory", limit)
    finding = one(look(), "eviction")
    assert (finding.severity, "volatile-lru" in finding.what) == (severity, True)
    assert "CONFIG SET maxmemory-policy noeviction" in finding.advice


def test_evicted_keys_are_an_error_even_if_the_policy_was_mended(look: Examine, bare_client: redis.Redis) -> None:
    bare_client.config_set("maxmemory-policy", "allkeys-random")
    for number in range(50):
        bare_client.set(number, "x" * 100_000)
    bare_client.config_set("maxmemory", bare_client.info("memory")["used_memory"] - 2_000_000)
    bare_client.set("one more", "x")
    wait_until(lambda: bare_client.info("stats")["evicted_keys"] > 0, "keys were evicted")
    bare_client.config_set("maxmemory", "0")
    bare_client.config_set("maxmemory-policy", "noeviction")
    finding = one(look(), "eviction")
    assert (finding.severity, "evicted since the server started" in finding.what) == ("error", True)


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        (["off", "-@all"], True),
        (["off", "resetkeys", "~cache:*"], True),
        (["off", "~*", "&*", "+@all"], False),
        (["on"], False),
    ],
)
def test_a_default_user_without_rights_loses_everything_at_a_restart(
    server: RedisServer, rules: list[str], is_found: bool
) -> None:
    own = RedisServer(server.program, "--appendonly", "yes").start()
    try:
        with own.client() as client:
            is_old = client.info("server")["redis_version"].startswith("6.")
            client.execute_command("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", *rules)
        url = f"unix://admin:secret@{own.socket}"
        with RedisMessageQueue("orders", url=url) as queue:
            queue.publish("x")
        found = [finding for finding in examine(RedisGateway(url=url), sample_seconds=0) if finding.check == "replay"]
        assert [finding.severity for finding in found] == (["error"] if is_found and not is_old else [])
    finally:
        own.remove()


@pytest.mark.parametrize(
    ("settings", "severity", "words"),
    [
        ({"save": "", "appendonly": "no"}, "warning", "a restart of the server loses every message"),
        ({"save": "900 1", "appendonly": "no"}, "warning", "only snapshots are saved (save 900 1)"),
        ({"appendonly": "yes", "appendfsync": "no"}, "warning", "appendfsync no"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "ok", "about the last two seconds"),
        ({"appendonly": "yes", "appendfsync": "always"}, "ok", "nothing that was acknowledged"),
    ],
)
def test_what_a_restart_loses_is_said(
    look: Examine, bare_client: redis.Redis, settings: dict[str, str], severity: str, words: str
) -> None:
    for name, value in settings.items():
        bare_client.config_set(name, value)
    (finding,) = [each for each in look() if each.check == "persistence"]
    assert (finding.severity, words in finding.what) == (severity, True)


def test_a_failed_save_that_stops_writes_is_an_error() -> None:
    """Its folder is gone, so the server cannot save, and refuses every write from then on."""
    server = RedisServer(PROGRAMS[0], "--save", "900 1")
    folder = server.folder / "data"
    folder.mkdir()
    server._options = (*server._options, "--dir", str(folder))
    try:
        server.start()
        with server.client() as client:
            client.set("a", "b")
            shutil.rmtree(folder)
            client.bgsave()
            wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the save failed")
            gateway = RedisGateway(url=server.url)
            findings = examine(gateway, sample_seconds=0)
            gateway.close()
            client.config_set("save", "")  # else it would not end
    finally:
        server.remove()
    assert findings[0].severity == "error"
    assert "BGSAVE failed" in findings[0].what
    assert "MISCONF" in findings[0].what
    assert of(findings, "rights", "error") == [], "a server that refuses writes says nothing about rights"


def test_failed_writes_to_the_append_only_file_are_an_error() -> None:
    facts = ServerFacts("s", {"aof_enabled": "1", "aof_last_write_status": "err", "aof_last_bgrewrite_status": "err"})
    found = list(check_persistence(facts))
    assert [finding.severity for finding in found] == ["error", "warning", "note"]
    assert "MISCONF" in found[0].what


def test_replicas_and_what_a_failover_would_lose() -> None:
    with ReplicatedServers(PROGRAMS[0]) as servers:
        primary, replica = servers.servers
        with primary.client() as client:
            wait_until(lambda: client.info("replication")["slave0"]["state"] == "online", "the primary knows it, too")
            gateway = RedisGateway(url=servers.url)
            finding = one(examine(gateway, sample_seconds=0), "replication")
            assert finding.severity == "warning"
            assert "min-replicas-to-write 0" in finding.what
            client.config_set("min-replicas-to-write", "1")
            assert of(examine(gateway, sample_seconds=0), "replication") == []
            client.config_set("min-replicas-to-write", "2")
            wait_until(lambda: client.info("replication")["min_slaves_good_slaves"] == 1, "the primary counts it")
            finding = one(examine(gateway, sample_seconds=0), "replication", "error")
            assert "NOREPLICAS" in finding.what
            gateway.close()
        gateway = RedisGateway(url=replica.url)
        finding = one(examine(gateway, sample_seconds=0), "replication")
        assert (finding.severity, "READONLY" in finding.what) == ("error", True)
        gateway.close()


def test_a_replica_that_is_not_in_step_is_named() -> None:
    info = {"role": "master", "connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=wait_bgsave,lag=0"}
    (finding, _) = check_replicas(ServerFacts("s", info, {"min-replicas-to-write": "0"}))
    assert finding.severity == "warning"
    assert "replica 10.0.0.2:6379 is wait_bgsave" in finding.what


def test_memory_that_is_nearly_used_up(look: Examine, bare_client: redis.Redis) -> None:
    bare_client.mset(dict.fromkeys(range(200), "x" * 100000))
    look()
    used = bare_client.info("memory")["used_memory"]
    for share, severity in ((0.97, "error"), (0.8, "warning"), (0.4, "ok")):
        bare_client.config_set("maxmemory", int(used / share))
        (finding,) = [each for each in look() if each.check == "memory"]
        assert finding.severity == severity
    bare_client.config_set("maxmemory", "0")
    finding = one(look(), "memory", "note")
    assert "maxmemory is not set" in finding.what


def test_connections(look: Examine, bare_client: redis.Redis) -> None:
    look()  # opens the connections that it needs
    bare_client.config_set("maxclients", bare_client.info("clients")["connected_clients"])
    bare_client.config_set("timeout", "30")
    findings = look()
    bare_client.config_set("maxclients", "10000")
    assert "connections are in use" in of(findings, "connections", "warning")[0].what
    assert "timeout is 30 s" in one(findings, "timeout", "warning").what


def test_a_clock_that_is_wrong(gateway: RedisGateway) -> None:
    (facts,) = read_servers(gateway, clock=lambda: time.time() - 100)
    (finding,) = check_clock(facts)
    assert finding.severity == "warning"
    assert "100 s ahead of this machine's" in finding.what
    (facts,) = read_servers(gateway)
    (finding,) = check_clock(facts)
    assert finding.severity == "ok"
    apart = [ServerFacts(f"s{number}", clock_offset=number * 5.0) for number in range(2)]
    (finding,) = check_clocks_together(apart)
    assert (finding.severity, finding.where, "5 s apart" in finding.what) == ("warning", "s0 and s1", True)


@pytest.mark.parametrize(
    ("info", "severity", "words"),
    [
        ({"redis_version": "6.0.16"}, "error", "Redis 6.0.16 is too old"),
        ({"redis_version": "6.2.21"}, "ok", "Redis 6.2.21; it has no WAITAOF"),
        ({"redis_version": "7.0.15"}, "note", "CVE-2025-49844"),
        ({"redis_version": "8.2.2"}, "ok", "Redis 8.2.2"),
        ({"redis_version": "8.0.3"}, "note", "CVE-2025-49844"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.4"}, "ok", "Valkey 8.1.4"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, "note", "CVE-2025-49844"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.30.0"}, "warning", "Dragonfly"),
        ({}, "note", "could not look"),
    ],
)
def test_versions(info: dict[str, str], severity: str, words: str) -> None:
    found = list(check_version(ServerFacts("s", info)))
    assert (worst(found), words in found[-1].what) == (severity, True)


def test_a_client_without_a_timeout(server: RedisServer, bare_client: redis.Redis) -> None:
    for seconds, severity in ((None, "warning"), (0.2, "warning"), (5.0, "ok")):
        with server.client(socket_timeout=seconds) as client:
            gateway = RedisGateway(redis_client=client, retry_budget_seconds=0)
            findings = examine(gateway, [], sample_seconds=0)
            assert {each.severity for each in findings if each.check == "client"} == {severity, "note"}
            gateway.close()


def test_a_server_that_does_not_answer_is_a_finding() -> None:
    gateway = RedisGateway(url=f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    (finding,) = examine(gateway)
    assert (finding.severity, finding.check) == (Severity.ERROR, "reachable")
    assert "s3cret" not in str(finding)


def test_a_wrong_password_is_a_finding(bare_client: redis.Redis, server: RedisServer) -> None:
    gateway = RedisGateway(url=f"unix://{server.socket}?username=nobody&password=s3cret")
    (finding,) = examine(gateway)
    assert (finding.severity, finding.check) == (Severity.ERROR, "reachable")
    assert "s3cret" not in str(finding)
    gateway.close()


def test_a_name_that_nothing_may_have_is_an_error_of_the_caller(gateway: RedisGateway) -> None:
    with pytest.raises(ConfigurationError, match="sample_seconds"):
        examine(gateway, sample_seconds=-1)


def test_a_hosted_service_without_config_is_examined_all_the_same() -> None:
    running = RedisServer(PROGRAMS[0], "--rename-command", "CONFIG", "", "--rename-command", "SADD", "")
    try:
        gateway = RedisGateway(url=running.start().url)
        found = examine(gateway, sample_seconds=0)
        gateway.close()
    finally:
        running.remove()
    assert "the server does not know sadd" in one(found, "rights", "error").what
    assert "could not look: appendonly is off" in one(found, "persistence").what
    assert of(found, "eviction") == [], "INFO has the policy, too"


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parts[-3])
def test_every_server_program_is_examined_without_an_error(program: Path) -> None:
    running = RedisServer(program)
    try:
        gateway = RedisGateway(url=running.start().url)
        assert of(examine(gateway, sample_seconds=0), "rights") == []
        gateway.close()
    finally:
        running.remove()
