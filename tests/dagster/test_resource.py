"""The resource: what it gives, what it closes, and where a password must not show."""

from __future__ import annotations

import os

import dagster as dg
import pytest
import redis
from dagster_shared.libraries import DagsterLibraryRegistry

import sluicegate
from dagster_sluicegate import RedisQueueResource, __version__
from dagster_sluicegate.resources import _impatient
from sluicegate import RedisMessageQueue
from sluicegate.embedded import EmbeddedServer
from sluicegate.errors import ConfigurationError, QueueDrainedError, RedisUnavailableError
from tests.dagster.helpers import resource_snapshot
from tests.support.servers import free_port, silent_port

pytestmark = pytest.mark.dagster

SECRET = "s3cr3t-of-the-queue"


@pytest.fixture
def guarded(server: EmbeddedServer, client: redis.Redis) -> str:
    """Return a URL whose user needs the password."""
    client.execute_command("ACL", "SETUSER", "guard", "reset", "on", f">{SECRET}", "~*", "+@all")
    return f"unix://guard@{server.socket_path}"


def test_a_queue_publishes_with_the_options_of_the_resource(url: str, queue: RedisMessageQueue) -> None:
    resource = RedisQueueResource(
        url=url, queue_name=queue.name, deduplication_key="{tenant}:{n}", max_delivery_count=None
    )
    with resource.get_queue() as given:
        report = given.publish_many([{"tenant": "a", "n": 1}, {"tenant": "a", "n": 1}, {"tenant": "b", "n": 1}])
        spec = given.spec()
    assert (report.accepted, report.duplicates) == (2, 1)
    assert spec.options == {"get_deduplication_key": "{tenant}:{n}", "max_delivery_count": None}
    assert resource.get_depth().ready == 2


def test_a_queue_is_closed_after_its_block_and_gives_back_what_it_holds(
    resource: RedisQueueResource, queue: RedisMessageQueue
) -> None:
    queue.publish_many([{"n": 1}, {"n": 2}])
    with resource.get_queue() as given:
        lease = given.claim(2)
        assert queue.depth().in_flight == 2
    assert (len(lease), queue.depth().ready) == (2, 2)
    with pytest.raises(QueueDrainedError):
        given.publish({"n": 3})


def test_nothing_connects_before_it_is_used() -> None:
    resource = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    assert dg.Definitions(resources={"queue": resource}).get_repository_def()
    with resource.get_queue() as queue:
        assert queue.name == "orders"


def test_every_option_is_described() -> None:
    assert [name for name, field in RedisQueueResource.model_fields.items() if not field.description] == []


def test_the_library_is_registered_with_its_own_version() -> None:
    assert DagsterLibraryRegistry.get()["dagster-sluicegate"] == __version__ == sluicegate.__version__


# ---------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    "url", [f"redis://:{SECRET}@localhost:6379/0", f"rediss://me:{SECRET}@host/1", f"redis://host/0?password={SECRET}"]
)
def test_a_password_as_plain_text_is_refused_before_the_ui_could_show_it(url: str) -> None:
    resource = RedisQueueResource(url=url, queue_name="orders")
    with pytest.raises(ConfigurationError, match=r"EnvVar.*password_env=NAME") as caught:
        dg.Definitions(resources={"queue": resource}).get_repository_def()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(resource)


def test_a_password_read_by_the_user_code_is_plain_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://:{SECRET}@localhost:6379/0")
    with pytest.raises(ConfigurationError, match="plain text"):
        dg.Definitions(
            resources={"queue": RedisQueueResource(url=os.environ["REDIS_URL"], queue_name="orders")}
        ).get_repository_def()


def test_a_url_by_envvar_works_in_a_step_and_does_not_show(
    guarded: str, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", f"{guarded}?password={SECRET}")
    resource = RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name=queue.name)
    seen: list[str] = []

    @dg.asset
    def published(queue: RedisQueueResource) -> None:
        seen.append(repr(queue))
        with queue.get_queue() as opened:
            opened.publish({"n": 1})
            seen.append(repr(opened))

    defs = dg.Definitions(assets=[published], resources={"queue": resource})
    assert dg.materialize([published], resources={"queue": resource}).success
    assert queue.depth().pending == 1
    snapshot = resource_snapshot(defs, "queue")
    assert "REDIS_URL" in repr(snapshot)
    captured = capfd.readouterr()
    assert len(seen) == 2
    for shown in (repr(snapshot), *seen, captured.out, captured.err):
        assert SECRET not in shown


def test_a_password_by_reference_works_and_may_travel(
    guarded: str, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", SECRET)
    resource = RedisQueueResource(url=f"{guarded}?password_env=QUEUE_PASSWORD", queue_name=queue.name)
    defs = dg.Definitions(resources={"queue": resource})
    assert SECRET not in repr(resource_snapshot(defs, "queue"))
    with resource.get_queue() as opened:
        assert opened.publish({"n": 1})
        assert "password_env=QUEUE_PASSWORD" in opened.spec().to_json()


def test_a_missing_password_variable_is_named(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUE_PASSWORD", raising=False)
    resource = RedisQueueResource(url=f"{guarded}?password_env=QUEUE_PASSWORD", queue_name="orders")
    with pytest.raises(ConfigurationError, match="QUEUE_PASSWORD, which is not set"):
        resource.get_depth()


# ---------------------------------------------------------------------------------------------------- looking


def test_looking_at_a_server_that_never_answers_ends_by_the_socket_timeout() -> None:
    with silent_port() as port:
        resource = RedisQueueResource(url=f"redis://127.0.0.1:{port}/0?socket_timeout=0.2", queue_name="orders")
        with pytest.raises(RedisUnavailableError, match=f"127.0.0.1:{port}"):
            resource.get_depth()


@pytest.mark.parametrize(
    ("url", "bounded"),
    [
        ("redis://host/0", "redis://host/0?socket_connect_timeout=4.0&socket_timeout=4.0"),
        ("unix:///x.sock?db=1", "unix:///x.sock?db=1&socket_connect_timeout=4.0&socket_timeout=4.0"),
        ("redis://h?socket_timeout=9", "redis://h?socket_timeout=9&socket_connect_timeout=4.0"),
        ("redis://h?socket_timeout=9&socket_connect_timeout=1", "redis://h?socket_timeout=9&socket_connect_timeout=1"),
        ("embedded:///data/orders", "embedded:///data/orders"),
    ],
)
def test_looking_is_bounded_unless_the_url_says_otherwise(url: str, bounded: str) -> None:
    assert _impatient(url) == bounded
