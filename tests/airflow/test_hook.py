"""Queues and clients from an Airflow connection, on real servers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import redis
from airflow.exceptions import AirflowNotFoundException
from airflow.sdk import BaseHook

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.errors import ConfigurationError, QueueDrainedError, RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.servers import PasswordServer
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow


def test_nothing_is_looked_up_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conn_id: str) -> None:
        raise AssertionError(f"looked up {conn_id}")

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(refuse))

    hook = RedisQueueHook("nowhere")
    RedisQueuePublishOperator(task_id="publish", queue_name="orders", messages=[], redis_conn_id="nowhere")
    RedisQueueSensor(task_id="gate", queue_name="orders", redis_conn_id="nowhere")
    hook.close()
    with pytest.raises(AssertionError, match="looked up nowhere"):
        hook.get_conn()


def test_a_missing_connection_is_named_with_the_command_that_adds_it() -> None:
    with pytest.raises(AirflowNotFoundException, match="airflow connections add nowhere --conn-type sluicegate"):
        RedisQueueHook("nowhere").get_queue("orders")
    with pytest.raises(AirflowNotFoundException, match="airflow connections add nowhere --conn-type sluicegate"):
        asyncio.run(RedisQueueHook("nowhere").aconnection_url())


@pytest.mark.parametrize("conn_type", ["sluicegate", "redis"])
def test_a_queue_behind_host_port_and_password(
    conn_type: str, password_server: PasswordServer, connect: Connect, queue_name: str
) -> None:
    connect("orders", conn_type=conn_type, host="localhost", port=password_server.port, password=PASSWORD)

    with RedisQueueHook("orders") as hook:
        queue = hook.get_queue(queue_name, get_deduplication_key="id")
        assert queue.publish({"id": "1"}) is True
        assert queue.publish({"id": "1"}) is False
        assert hook.get_conn().llen(queue.key.pending) == 1


def test_a_connection_chooses_the_database(password_server: PasswordServer, connect: Connect, queue_name: str) -> None:
    connect("orders", host="localhost", port=password_server.port, password=PASSWORD, extra={"db": 5})

    with RedisQueueHook("orders") as hook, redis.Redis(port=password_server.port, password=PASSWORD, db=5) as client:
        queue = hook.get_queue(queue_name)
        queue.publish({"id": "1"})
        assert client.llen(queue.key.pending) == 1


def test_the_client_is_made_once_and_again_after_close(queue: RedisMessageQueue) -> None:
    hook = RedisQueueHook()
    first = hook.get_conn()

    assert hook.get_conn() is first
    assert first.ping()
    hook.close()
    assert hook.get_conn() is not first
    hook.close()


def test_leaving_the_block_gives_back_what_a_queue_still_holds(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})
    with RedisQueueHook() as hook:
        borrowed = hook.get_queue(queue.name)
        lease = borrowed.claim(10)
        assert (len(lease), queue.depth().in_flight) == (1, 1)

    assert (queue.depth().ready, queue.depth().in_flight) == (1, 0)
    with pytest.raises(QueueDrainedError):
        borrowed.publish({"id": 2})


def test_options_reach_the_queue_and_the_place_is_the_connections(queue: RedisMessageQueue) -> None:
    hook = RedisQueueHook()

    assert hook.get_queue("orders", max_delivery_count=3).spec().options == {"max_delivery_count": 3}
    with pytest.raises(ConfigurationError, match="url is not an option here: connection 'sluicegate_default'"):
        hook.get_queue("orders", url="redis://elsewhere")
    with pytest.raises(ConfigurationError, match="'max_deliveries'; did you mean max_delivery_count"):
        hook.get_queue("orders", max_deliveries=3)


def test_a_queue_with_a_literal_password_refuses_to_travel(password_server: PasswordServer, connect: Connect) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)

    with RedisQueueHook() as hook, pytest.raises(ConfigurationError, match="password_env=NAME") as refused:
        hook.get_queue("orders").spec()

    assert PASSWORD not in str(refused.value)


def test_a_queue_with_a_referenced_password_travels_without_it(
    password_server: PasswordServer, connect: Connect, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(host="localhost", port=password_server.port, extra={"password_env": "QUEUE_PASSWORD"})
    monkeypatch.setenv("QUEUE_PASSWORD", PASSWORD)
    with RedisQueueHook() as hook:
        queue = hook.get_queue(queue_name, get_deduplication_key="{id}")
        queue.publish({"id": 7})
        text = queue.spec().to_json()

    assert PASSWORD not in text
    arrived = RedisMessageQueue.from_spec(QueueSpec.from_json(text))
    with arrived.claim(10) as lease:
        assert [message.json() for message in lease] == [{"id": 7}]
    arrived.close()


def test_the_password_shows_nowhere(
    password_server: PasswordServer, connect: Connect, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)
    with caplog.at_level(logging.DEBUG), RedisQueueHook() as hook:
        queue = hook.get_queue(queue_name)
        queue.publish({"id": 1})
        shown = [repr(hook), repr(queue), str(queue), caplog.text]
    connect(host="localhost", port=free_port(), password=PASSWORD)
    with RedisQueueHook() as hook, pytest.raises(RedisUnavailableError) as away:
        hook.get_queue(queue_name).depth()

    assert "localhost:" in str(away.value)
    assert not [text for text in [*shown, str(away.value), repr(away.value)] if PASSWORD in text]


def test_a_password_within_a_url_is_masked_as_one_in_its_field_is(connect: Connect) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connect(extra={"url": "redis://user:s3cr%2Ft-in-url@localhost"})
    assert redact("it is s3cr/t-in-url") == "it is s3cr/t-in-url"

    RedisQueueHook().get_queue("orders")

    assert redact("it is s3cr/t-in-url") == "it is ***"


def test_queues_for_asyncio_are_closed_with_their_leases(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})

    async def claim() -> str:
        async with RedisQueueHook() as hook:
            borrowed = await hook.aget_queue(queue.name, max_delivery_count=3)
            lease = await borrowed.claim(10)
            assert (len(lease), (await borrowed.depth()).in_flight) == (1, 1)
            assert await hook.aget_queue("other") is not borrowed
            return await hook.aconnection_url()

    assert asyncio.run(claim()).startswith("embedded:///")
    assert (queue.depth().ready, queue.depth().in_flight) == (1, 0)


def test_a_lookup_on_an_event_loop_is_done_once_and_masks_the_password(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connect("orders", extra={"url": "redis://user:asyncio-s3cr%2Ft@localhost"})
    hook = RedisQueueHook("orders")

    async def twice() -> str:
        first = await hook.aconnection_url()
        monkeypatch.delenv("AIRFLOW_CONN_ORDERS")
        assert await hook.aconnection_url() == first
        return first

    assert asyncio.run(twice()) == "redis://user:asyncio-s3cr%2Ft@localhost"
    assert redact("it is asyncio-s3cr/t") == "it is ***"


def test_the_hook_of_the_documentation_gives_a_task_its_queue(queue: RedisMessageQueue) -> None:
    names: dict[str, Any] = {}
    exec(compile(snippet("airflow-hook").replace('"orders"', repr(queue.name)), "airflow-hook", "exec"), names)  # noqa: S102
    queue.publish({"id": 1})

    assert names["count_orders"].function() == 1
