"""The rights of a queue's user: enough, and nothing that is not needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sluicegate import DurabilityAccessError, NotDurableError, RedisAccessError, RedisMessageQueue, replicated
from sluicegate.core import scripts
from sluicegate.errors import EvictionPolicyError
from tests.support import access_rights
from tests.support.servers import programs
from tests.support.topologies import AclServer
from tests.topologies.ways import version

DOCUMENT = Path(__file__).parents[2] / "docs" / "access.md"


@pytest.fixture(scope="module")
def server() -> Iterator[AclServer]:
    with AclServer(programs()[0]) as running:
        yield running


def test_the_rule_names_what_the_scripts_call_and_no_more() -> None:
    called = {
        name.lower()
        for script in scripts.load_all().values()
        for name in re.findall(r"""call\(\s*['"]([A-Za-z]+)['"]""", _text(script))
    }
    assert {f"+{name}" for name in called - set(access_rights.IN_SCRIPTS)} == {
        *access_rights.FOR_EVICTION,
        *access_rights.FOR_REPAIR,
        *access_rights.FOR_STREAMS,
    }
    assert called > set(access_rights.IN_SCRIPTS)


def test_the_document_shows_the_rule() -> None:
    assert " ".join(access_rights.RULE) in " ".join(DOCUMENT.read_text().replace("\\\n", " ").split())


@pytest.mark.parametrize(
    "command", ["GET other", "KEYS *", "FLUSHALL", "CONFIG GET *", "SCAN 0", "PUBLISH c m", "ACL LIST"]
)
def test_everything_else_is_refused(server: AclServer, command: str) -> None:
    with server.client() as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command.split())


def test_a_user_of_one_queue_has_no_other(server: AclServer) -> None:
    server.allow(*access_rights.RULE, "resetkeys", "~sluicegate:{orders}:*")
    try:
        with server.client() as client:
            assert RedisMessageQueue("orders", client=client).publish("a") is True
            with pytest.raises(RedisAccessError):
                RedisMessageQueue("orders2", client=client).publish("a")
    finally:
        server.allow(*access_rights.RULE)


@pytest.mark.parametrize("given", [(), access_rights.FOR_REPAIR])
def test_repair_goes_without_what_only_a_scan_finds(server: AclServer, given: tuple[str, ...]) -> None:
    server.allow(*access_rights.RULE, *given)
    try:
        with server.servers[0].client() as admin, server.client() as client:
            admin.flushall()
            queue = RedisMessageQueue("orders", client=client)
            queue.publish("a")
            queue.claim(lease_id="l")
            admin.zrem("sluicegate:{orders}:leases", "l")
            admin.hincrby("sluicegate:{orders}:counters", "in_flight", 5)
            report = queue.repair()
            assert (report.leases, report.in_flight) == ((1, -5) if given else (0, -6))
    finally:
        server.allow(*access_rights.RULE)


@pytest.mark.parametrize("given", [(), access_rights.FOR_REPLICAS])
def test_durability_needs_rights_of_its_own(server: AclServer, given: tuple[str, ...]) -> None:
    server.allow(*access_rights.RULE, *given)
    try:
        with server.client() as client:
            queue = RedisMessageQueue("orders", client=client)
            with pytest.raises(NotDurableError) as raised:
                queue.publish("a", durability=replicated(1, timeout_seconds=0.05))
            assert raised.value.report.accepted == 1, "it is stored all the same"
            assert isinstance(raised.value, RedisAccessError) is (not given)
            assert ("+wait" in str(raised.value)) is (not given)
    finally:
        server.allow(*access_rights.RULE)


@pytest.mark.parametrize("missing", ["", "+waitaof", "+command|info"])
def test_fsync_needs_rights_of_its_own(missing: str) -> None:
    server = AclServer(next(program for program in programs() if _knows_waitaof(program)))
    server.options = ("--appendonly", "yes")
    with server:
        server.allow(*access_rights.RULE, *(right for right in access_rights.FOR_FSYNC if right != missing))
        with server.client() as client:
            queue = RedisMessageQueue("orders", client=client)
            if missing == "+waitaof":
                with pytest.raises(DurabilityAccessError, match=r"\+waitaof"):
                    queue.publish("a", durability="fsync")
            else:
                assert queue.publish("a", durability="fsync") is True
            assert queue.depth().ready == 1
        assert {"+" + name for name in server.refused() - {"client|setinfo", "info"}} == (
            {missing} if missing else set()
        )


@pytest.mark.parametrize("may_ask", [False, True])
def test_the_eviction_policy_is_looked_at_where_that_is_allowed(
    server: AclServer, may_ask: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the right the publish succeeds without a word; a queue that requires an answer says what it needs."""
    server.allow(*access_rights.RULE, *(access_rights.FOR_EVICTION if may_ask else ()))
    try:
        with server.servers[0].client() as admin, server.client() as client:
            admin.config_set("maxmemory-policy", "allkeys-lru")
            assert RedisMessageQueue("orders", client=client).publish("a") is True
            assert ("maxmemory-policy" in caplog.text) is may_ask
            strict = RedisMessageQueue("orders", client=client, require_noeviction=True)
            with pytest.raises(EvictionPolicyError, match="allkeys-lru" if may_ask else "cannot be read: grant INFO"):
                strict.publish("b")
            admin.config_set("maxmemory-policy", "noeviction")
            if may_ask:
                assert strict.publish("b") is True
    finally:
        server.allow(*access_rights.RULE)


@pytest.mark.parametrize("command", access_rights.SENT)
def test_each_command_that_is_sent_is_needed(server: AclServer, command: str) -> None:
    server.allow(*access_rights.RULE, f"-{command}")
    try:
        with server.servers[0].client() as admin, server.client() as client:
            admin.flushall()
            admin.script_flush()
            admin.acl_log_reset()
            queue = RedisMessageQueue("orders", client=client)
            _use(queue, admin)
            refused = {entry["object"].partition("|")[0] for entry in admin.acl_log()}
        assert command in refused
    finally:
        server.allow(*access_rights.RULE)


def _text(script: scripts.Script) -> str:
    return script.text if isinstance(script.text, str) else script.text.decode()


def _knows_waitaof(program: Path) -> bool:
    product, release = version(program).split()
    return product == "valkey" or tuple(map(int, release.split("."))) >= (7, 2)


def _use(queue: RedisMessageQueue, admin: redis.Redis) -> None:
    """Send every command: a publish, a wait for messages and one for a batch, a key of a wrong type."""
    steps = (
        lambda: queue.publish("a"),
        lambda: queue.claim().ack(),
        lambda: queue.claim(wait_seconds=0.05),
        lambda: queue.batch(["a"]).wait(0.3),
        lambda: queue.claim().ack(),
        lambda: admin.hset("sluicegate:{orders}:pending", "a", "b"),
        lambda: queue.publish("a"),
    )
    for step in steps:
        try:
            step()
        except redis.RedisError:
            continue
