"""The resource: what it gives, what it closes, and where a password must not show."""

from __future__ import annotations

import asyncio
import os
import traceback
from typing import Any

import dagster as dg
import pytest
import redis
from dagster_shared.libraries import DagsterLibraryRegistry

import sluicegate
from dagster_sluicegate import QueuePublishIOManager, RedisQueueResource, __version__
from dagster_sluicegate.urls import impatient_url
from sluicegate import QueueEvent, RedisMessageQueue
from sluicegate.config import QueueConfig
from sluicegate.embedded import EmbeddedServer
from sluicegate.errors import ConfigurationError, QueueDrainedError, RedisUnavailableError
from sluicegate.options import OPTIONS
from tests.dagster.helpers import resource_snapshot
from tests.support.servers import free_port, silent_port
from tests.support.snippets import snippet

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


# ---------------------------------------------------------------------------------------------------- options

# What a field of config cannot hold: functions and objects, and what says nothing more.
NO_FIELDS = {"get_deduplication_key", "deduplication", "on_heartbeat_failure", "retry_backoff", "interrupt", "on_event"}
# One value per option that is neither its default nor in the way of another.
OTHER_VALUES: dict[str, Any] = {
    "deduplication_policy": "until_acked",
    "deduplication_window_seconds": 60.0,
    "visibility_timeout_seconds": 30.0,
    "heartbeat_interval_seconds": 5.0,
    "max_delivery_count": None,
    "max_lease_seconds": 90.0,
    "on_error": "discard",
    "max_pending_length": 7,
    "pending_overload_policy": "block",
    "pending_overload_block_timeout_seconds": 0.5,
    "enable_completed_queue": True,
    "max_completed_length": None,
    "enable_failed_queue": True,
    "max_failed_length": 3,
    "max_dead_length": 4,
    "strict_payload_types": False,
    "max_payload_bytes": 100,
    "max_payload_depth": 5,
    "sort_keys": True,
    "json_default": "iso",
    "strict_envelope_decoding": True,
    "require_noeviction": True,
    "message_wait_interval_seconds": 0.0,
    "retry_budget_seconds": 1.0,
    "retry_initial_delay_seconds": 0.5,
    "retry_max_delay_seconds": 0.75,
}


def test_the_fields_are_the_options_that_are_plain_values() -> None:
    fields = RedisQueueResource.model_fields
    names = {"url", "page_url", "queue_name", "stream_name", "group", "deduplication_key"}
    of_streams = {"start", "max_length", "max_age_seconds", "trim_unfinished"}
    assert set(fields) - names - of_streams == set(OPTIONS) - NO_FIELDS
    for name, option in OPTIONS.items():
        if name in fields:
            assert fields[name].default == option.default, name
            assert option.summary[1:] in (fields[name].description or ""), name
    assert [name for name, field in fields.items() if not field.description] == []


def test_every_option_reaches_the_queue_of_a_step(url: str) -> None:
    resource = RedisQueueResource(url=url, queue_name="options", deduplication_key="n", **OTHER_VALUES)
    seen: list[QueueConfig] = []

    @dg.asset
    def opened(queue: RedisQueueResource) -> None:
        with queue.get_queue() as given:
            seen.append(given.session.config)

    assert dg.materialize([opened], resources={"queue": resource}).success
    assert seen == [QueueConfig(get_deduplication_key="n", **OTHER_VALUES)]
    assert set(OTHER_VALUES) == set(OPTIONS) - NO_FIELDS


def test_a_queue_that_delivers_at_most_once_may_be_configured(url: str) -> None:
    resource = RedisQueueResource(
        url=url, queue_name="options", visibility_timeout_seconds=None, max_delivery_count=None
    ).process_config_and_initialize()
    with resource.get_queue() as given:
        assert given.session.config.at_most_once


def test_options_of_a_call_override_those_of_the_resource(resource: RedisQueueResource) -> None:
    events: list[QueueEvent] = []
    with resource.get_queue(
        get_deduplication_key=lambda payload: payload["n"], max_pending_length=1, on_event=events.append
    ) as given:
        assert [given.publish({"n": "1"}), given.publish({"n": "1"})] == [True, False]
        assert given.session.config.max_pending_length == 1
    assert len(events) == 2


def test_another_queue_of_the_server_is_named_where_it_is_used(url: str, queue: RedisMessageQueue) -> None:
    resource = RedisQueueResource(url=url)
    with resource.get_queue(queue.name) as given:
        given.publish({"n": 1})
    assert resource.get_depth(queue.name).ready == queue.depth().ready == 1
    assert RedisQueueResource(url=url, queue_name="another").get_depth(queue.name).ready == 1
    for use in (resource.get_depth, resource.resolve_name, resource.get_queue().__enter__):
        with pytest.raises(ConfigurationError, match=r"names no queue; set its queue_name.*get_queue\(\"orders\"\)"):
            use()


def test_an_async_asset_takes_the_asyncio_queue(resource: RedisQueueResource, queue: RedisMessageQueue) -> None:
    @dg.asset
    async def published(queue: RedisQueueResource) -> None:
        async with queue.get_async_queue(max_payload_bytes=100) as given:
            await given.publish_many({"n": number} for number in range(3))
            assert given.session.config.max_payload_bytes == 100
            held.append(await given.claim(2))
        with pytest.raises(QueueDrainedError):
            await given.publish({"n": 3})

    held: list[Any] = []
    assert dg.materialize([published], resources={"queue": resource}).success
    assert len(held[0]) == 2
    assert (queue.depth().ready, queue.depth().in_flight) == (3, 0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_pendng_length": 3}, "get_queue.*'max_pendng_length'; did you mean max_pending_length"),
        ({"deduplication_key": "n"}, "'deduplication_key'; did you mean get_deduplication_key"),
        ({"key_separator": ":"}, "get_queue has no option key_separator; leave it out"),
        ({"url": "redis://elsewhere"}, "url is no option of a queue here.*make another resource"),
        ({"client": object()}, "client is no option of a queue here.*make another resource"),
        ({"max_pending_length": 0}, "max_pending_length must be None"),
    ],
)
def test_an_option_that_a_queue_does_not_have_is_refused(
    resource: RedisQueueResource, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        resource.get_queue(**options).__enter__()
    with pytest.raises(ConfigurationError, match=error):
        asyncio.run(resource.get_async_queue(**options).__aenter__())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_pendng_length": 3}, "RedisQueueResource.*'max_pendng_length'; did you mean max_pending_length"),
        ({"get_deduplication_key": "n"}, "get_deduplication_key; a field or a template is deduplication_key here"),
        ({"on_event": print}, r"on_event; it is no plain value; give it to get_queue\(\)"),
        ({"name": "orders"}, "name; its name is queue_name"),
        ({"client": object()}, "client; give url"),
        ({"message_visibility_timeout_seconds": 3}, "its name is visibility_timeout_seconds"),
    ],
)
def test_a_field_that_the_resource_does_not_have_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        RedisQueueResource(url="redis://localhost", **options)
    with pytest.raises(ConfigurationError, match=error):
        RedisQueueResource.configure_at_launch(url="redis://localhost", **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_delivery_count": 0}, "max_delivery_count must be None or an int from 1"),
        ({"pending_overload_policy": "block"}, "needs max_pending_length"),
        ({"json_default": "text"}, "json_default must be None"),
        ({"deduplication_key": "{tenant"}, "unpaired"),
        ({"url": "localhost:6379"}, "url scheme 'localhost' is not known"),
        ({"url": dg.EnvVar("REDIS_URL"), "max_pending_length": -1}, "max_pending_length must be None"),
        ({"max_pending_length": dg.EnvVar.int("MOST"), "max_delivery_count": 0}, "max_delivery_count must be None"),
    ],
)
def test_options_that_cannot_work_are_refused_when_definitions_load(options: dict[str, Any], error: str) -> None:
    resource = RedisQueueResource(**{"url": "redis://localhost", "queue_name": "orders", **options})
    with pytest.raises(ConfigurationError, match=error):
        dg.Definitions(resources={"queue": resource}).get_repository_def()


def test_an_option_may_come_from_a_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOST", "3")
    resource = RedisQueueResource(
        url=url, queue_name="options", max_pending_length=dg.EnvVar.int("MOST"), pending_overload_policy="block"
    )
    assert dg.Definitions(resources={"queue": resource}).get_repository_def()
    with resource.process_config_and_initialize().get_queue() as given:
        assert given.session.config.max_pending_length == 3


def test_the_ui_shows_markdown(resource: RedisQueueResource) -> None:
    defs = dg.Definitions(resources={"queue": resource, "io": QueuePublishIOManager(queue=resource)})
    for key, first in (("queue", "A Sluicegate queue on Redis."), ("io", "Publishes each item")):
        description = resource_snapshot(defs, key).resource_snapshot.description or ""
        assert description.startswith(first)
        assert "Example" not in description
        assert not [line for line in description.splitlines() if line.startswith(" ") or ".. " in line]


def test_the_library_is_registered_with_its_own_version() -> None:
    assert DagsterLibraryRegistry.get()["dagster-sluicegate"] == __version__ == sluicegate.__version__


def test_the_documented_resource_works(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(snippet("dagster-resource"), "dagster-resource", "exec"), names)  # noqa: S102
    defs: dg.Definitions = names["defs"]
    assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert RedisQueueResource(url=url).get_depth("refunds").ready == 1


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


class Orders(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource of the user's own that contains ours."""

    queue: RedisQueueResource


def test_a_nested_resource_is_refused_and_works_like_any_other(
    guarded: str, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset
    def published(orders: dg.ResourceParam[Any]) -> None:
        with orders.queue.get_queue() as given:
            given.publish({"n": 1})
        assert SECRET not in repr(orders)

    plain = RedisQueueResource(url=f"{guarded}?password={SECRET}", queue_name=queue.name)
    with pytest.raises(ConfigurationError, match="plain text") as caught:
        dg.Definitions(assets=[published], resources={"orders": Orders(queue=plain)}).get_repository_def()
    assert SECRET not in shown(caught.value)
    monkeypatch.setenv("REDIS_URL", f"{guarded}?password={SECRET}")
    nested = Orders(queue=RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name=queue.name))
    defs = dg.Definitions(assets=[published], resources={"orders": nested})
    assert SECRET not in repr(resource_snapshot(defs, "orders"))
    assert dg.materialize([published], resources={"orders": nested}).success
    assert queue.depth().ready == 1


def launched(queue: RedisMessageQueue, url: object, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    @dg.op
    def publish(queue: RedisQueueResource) -> None:
        with queue.get_queue() as given:
            given.publish({"n": 1})

    @dg.job(resource_defs={"queue": RedisQueueResource.configure_at_launch()})
    def job() -> None:
        publish()

    config = {"resources": {"queue": {"config": {"url": url, "queue_name": queue.name}}}}
    return job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)


def test_a_password_as_text_in_the_run_config_is_refused(
    guarded: str,
    queue: RedisMessageQueue,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDIS_URL", f"{guarded}?password={SECRET}")
    result = launched(queue, f"{guarded}?password={SECRET}", instance)
    errors = [event.message or "" for event in result.all_events if event.is_failure] + [
        repr(event.event_specific_data) for event in result.all_events if event.is_failure
    ]
    assert not result.success
    assert any("plain text, which Dagster stores and shows" in error for error in errors)
    captured = capfd.readouterr()
    assert not any(SECRET in text for text in (*errors, captured.out, captured.err))
    assert launched(queue, {"env": "REDIS_URL"}, instance).success
    assert queue.depth().ready == 1


def test_a_default_with_a_password_is_refused_at_launch_configuration() -> None:
    with pytest.raises(ConfigurationError, match="plain text") as caught:
        RedisQueueResource.configure_at_launch(url=f"redis://:{SECRET}@localhost:6379/0")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"url": [f"redis://:{SECRET}@host"], "queue_name": "q"},
        {"ulr": f"redis://:{SECRET}@host", "queue_name": "q"},
        {"url": f"redis://:{SECRET}@host", "queue_name": 3},
        {"url": f"redis://:{SECRET}@host", "max_pending_length": "many"},
        {"url": f"redis://:{SECRET}@host", "max_pendng_length": 3},
    ],
)
def test_an_error_about_a_field_shows_no_password(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="RedisQueueResource") as caught:
        RedisQueueResource(**values)
    assert SECRET not in shown(caught.value)


def shown(error: BaseException) -> str:
    """Return what a log shows of an error: its text, and those of its causes."""
    return "".join(line for line in traceback.format_exception(error) if not line.lstrip().startswith("File "))


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
    assert impatient_url(url) == bounded
