"""The users of the Redis in compose.yaml, on a real server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import RedisMessageQueueError
from tests.support.project import ROOT
from tests.support.servers import PROGRAMS, RedisServer, free_port

USERS = (ROOT / "docker/redis/users.acl").read_text()
PASSWORD = "a-password-of-this-test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Start a server with the users of compose.yaml."""
    file: Path = tmp_path_factory.mktemp("acl") / "users"
    hashed = hashlib.sha256(PASSWORD.encode()).hexdigest()
    lines = [line for line in USERS.replace("PASSWORD_HASH", hashed).splitlines() if line.startswith("user ")]
    file.write_text("\n".join(lines) + "\n")
    started = RedisServer(PROGRAMS[-1], port=free_port())
    started.start()
    client = redis.Redis(port=started.port)
    for line in lines[::-1]:  # the default user, who does this, comes last
        _, name, *rules = line.split()
        client.execute_command("ACL", "SETUSER", name, "reset", *rules)
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
