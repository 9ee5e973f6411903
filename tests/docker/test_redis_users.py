"""The users of the Redis in compose.yaml, on a real server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import RedisMessageQueueError
from tests.support.project import ROOT
from tests.support.servers import PROGRAMS, RedisServer, free_port

USERS = (ROOT / "docker/redis/users.acl").read_text()
PASSWORD = "a-password-of-this-test"


class GuardedServer(RedisServer):
    """A server with the users of compose.yaml and an append-only file, at whose start the test asks as `probe`."""

    def __init__(self, program: Path, users: str = USERS) -> None:
        super().__init__(program, "--appendonly", "yes", "--appendfsync", "always", port=free_port())
        hashed = hashlib.sha256(PASSWORD.encode()).hexdigest()
        lines = [line for line in users.replace("PASSWORD_HASH", hashed).splitlines() if line.startswith("user ")]
        (self.folder / "users").write_text("\n".join(lines) + "\n")
        self._options += ("--aclfile", str(self.folder / "users"))

    def client(self, **options: Any) -> redis.Redis:
        return super().client(username="probe", password="probe", **options)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Start a server with the users of compose.yaml."""
    started = GuardedServer(PROGRAMS[0])
    started.start()
    yield started
    started.remove()


def url(server: RedisServer) -> str:
    return f"redis://sluicegate:{PASSWORD}@127.0.0.1:{server.port}"


def test_the_queues_work_in_every_database(server: RedisServer) -> None:
    for database in (0, 1):
        queue = RedisMessageQueue("orders", url=f"{url(server)}/{database}", retry_budget_seconds=1)
        queue.publish({"order_id": 1})
        with queue.claim(limit=10) as lease:
            assert [message.json() for message in lease] == [{"order_id": 1}]
        assert queue.depth().ready == 0
        queue.repair()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_restart_replays_what_scripts_have_written(program: Path) -> None:
    """A user `default` without rights makes Redis 7.0 and 8.2 skip the transactions of its append-only file."""
    server = GuardedServer(program)
    try:
        server.start()
        queue = RedisMessageQueue("orders", url=url(server), retry_budget_seconds=1)
        queue.publish_many({"order_id": number} for number in range(10))
        queue.close()
        server.stop()
        server.start()
        assert RedisMessageQueue("orders", url=url(server), retry_budget_seconds=1).depth().ready == 10
    finally:
        server.remove()


def test_the_page_the_exporter_and_the_doctor_may_ask_what_they_need(server: RedisServer) -> None:
    client = redis.Redis.from_url(url(server), decode_responses=True)

    assert client.info("memory")["used_memory"] > 0
    assert client.config_get("maxmemory-policy")
    assert isinstance(client.scan(0, match="sluicegate:*"), tuple)


@pytest.mark.parametrize(
    "command", ["FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1", "SHUTDOWN", "ACL LIST", "GET other"]
)
def test_the_queues_user_may_do_nothing_else(server: RedisServer, command: str) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        redis.Redis.from_url(url(server)).execute_command(*command.split())


def test_the_health_check_answers_without_a_secret_and_reads_nothing(server: RedisServer) -> None:
    client = redis.Redis(port=server.port, username="probe", password="probe")

    assert client.execute_command("PING") is True
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.get("sluicegate:{orders}:counters")


def test_nobody_comes_in_without_a_password(server: RedisServer) -> None:
    with pytest.raises(RedisMessageQueueError):
        RedisMessageQueue("orders", url=f"redis://127.0.0.1:{server.port}", retry_budget_seconds=0).publish("x")


def test_the_rights_are_those_of_the_page_about_permissions() -> None:
    (line,) = [line for line in USERS.splitlines() if line.startswith("user sluicegate ")]
    rules = set(line.split()[2:])
    page = (ROOT / "docs/access.md").read_text()
    base = page.split("```text")[1].split("```")[0].replace("\\\n", " ").split()

    assert {rule for rule in base if rule.startswith("+")} <= rules
    extra = {rule for rule in rules - set(base) if rule.startswith("+")}
    assert {rule for rule in extra if not re.search(re.escape(rule).replace(r"\|", r"\\?\|"), page)} == set()
