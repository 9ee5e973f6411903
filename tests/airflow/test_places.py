"""A queue, or a stream and group: every class names them alike, and says what to do about names that do not fit."""

from __future__ import annotations

import json
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.sdk.module_loading import import_string

from airflow_provider_sluicegate.assets.redis_queue import convert_asset_to_openlineage, create_asset
from airflow_provider_sluicegate.cli import commands
from airflow_provider_sluicegate.compat import has_shared_streams
from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier
from airflow_provider_sluicegate.operators.administration import RedisQueuePurgeOperator, RedisQueueRedriveOperator
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator
from airflow_provider_sluicegate.places import named_place, value_of
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger
from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place
from tests.airflow.conftest import Connect

pytestmark = pytest.mark.airflow

CONSUMERS: dict[type, dict[str, Any]] = {
    RedisQueueConsumeOperator: {},
    RedisQueueDrainOperator: {"process": print},
    RedisQueueClaimOperator: {},
    RedisQueueRedriveOperator: {},
    RedisQueuePurgeOperator: {"state": "dead"},
    SparkRedisQueueDrainOperator: {"process": print},
    RedisQueueSensor: {},
}
PUBLISHERS: dict[type, dict[str, Any]] = {RedisQueuePublishOperator: {"messages": []}}
OPERATORS = CONSUMERS | PUBLISHERS

consumers = pytest.mark.parametrize("kind", CONSUMERS, ids=lambda kind: kind.__name__)
operators = pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)


def made(kind: type, **names: Any) -> Any:
    return kind(task_id="task", **OPERATORS[kind], **names)


@operators
def test_an_operator_names_exactly_one_of_queue_and_stream(kind: type) -> None:
    with pytest.raises(ConfigurationError, match="give queue_name, the name of a queue, or stream, the name of a"):
        made(kind)
    with pytest.raises(ConfigurationError, match="queue_name='a' and stream='b' are both given; leave out the one"):
        made(kind, queue_name="a", stream="b")


@consumers
def test_a_consumer_names_the_group_of_a_stream_and_no_group_of_a_queue(kind: type) -> None:
    with pytest.raises(ConfigurationError, match="stream='orders' is read by its groups; give group, the name of one"):
        made(kind, stream="orders")
    with pytest.raises(ConfigurationError, match="group='billing' is of a stream, and queue_name='orders' names a q"):
        made(kind, queue_name="orders", group="billing")

    named = made(kind, stream="orders", group="billing")
    assert named.place == Place("orders", stream=True, group="billing")


def test_a_publisher_takes_no_group() -> None:
    assert made(RedisQueuePublishOperator, stream="orders").place == Place("orders", stream=True)
    with pytest.raises(TypeError, match="group"):
        made(RedisQueuePublishOperator, stream="orders", group="billing")


@operators
@pytest.mark.parametrize("is_stream", [True, False])
def test_parameters_of_a_run_decide_between_queue_and_stream(kind: type, is_stream: bool) -> None:
    names = {"queue_name": "{{ params.queue }}", "stream": "{{ params.stream }}"}
    if kind in CONSUMERS:
        names["group"] = "{{ params.group }}"
    operator = made(kind, **names, redis_conn_id="{{ params.conn }}")
    params = {"queue": None, "stream": "orders", "group": "billing"} if is_stream else {"queue": "orders"}

    operator.render_template_fields({"params": {"stream": None, "group": "", **params, "conn": "cache"}})

    group = "billing" if is_stream and kind in CONSUMERS else None
    assert operator.place == Place("orders", stream=is_stream, group=group)
    assert operator.redis_conn_id == "cache"


@operators
def test_a_template_that_renders_to_nothing_is_found_when_the_task_runs(kind: type) -> None:
    operator = made(kind, stream="{{ params.stream }}")

    operator.render_template_fields({"params": {"stream": None}})

    with pytest.raises(ConfigurationError, match="give queue_name, the name of a queue, or stream"):
        _ = operator.place


@consumers
def test_the_names_come_from_default_arguments_and_from_tasks(kind: type) -> None:
    with DAG("names", default_args={"stream": "orders", "redis_conn_id": "cache"}):
        before = BashOperator(task_id="before", bash_command="echo billing")
        operator = made(kind, group=before.output)

    assert (operator.stream, operator.redis_conn_id) == ("orders", "cache")
    assert operator.upstream_task_ids == {"before"}


@consumers
def test_a_task_is_mapped_over_the_groups_of_a_stream(kind: Any) -> None:
    with DAG("mapped"):
        mapped = kind.partial(task_id="each", stream="orders", **OPERATORS[kind]).expand(group=["billing", "audit"])

    assert mapped.expand_input.value == {"group": ["billing", "audit"]}
    assert mapped.unmap({"group": "audit"}).place == Place("orders", stream=True, group="audit")


def test_a_decorated_drain_takes_a_group() -> None:
    with DAG("decorated"):

        @task.redis_queue(stream="orders", group="billing")
        def store(batch: list[Any]) -> None: ...

        operator = store().operator

    assert operator.place == Place("orders", stream=True, group="billing")
    assert {"queue_name", "stream", "group", "redis_conn_id", "op_kwargs"} <= set(operator.template_fields)


def test_a_notifier_renders_the_stream() -> None:
    notifier = RedisQueueNotifier(stream="{{ params.stream }}", message="x")

    notifier.render_template_fields({"params": {"stream": "failures"}})  # type: ignore[typeddict-item]

    assert notifier._place == Place("failures", stream=True)
    with pytest.raises(ConfigurationError, match="give queue_name"):
        _ = RedisQueueNotifier()._place


@pytest.mark.parametrize(
    ("names", "value", "shown"),
    [
        ({"queue_name": "orders"}, {"queue": "orders"}, "queue 'orders'"),
        ({"stream": "orders"}, {"stream": "orders"}, "stream 'orders'"),
        (
            {"stream": "orders", "group": "billing"},
            {"stream": "orders", "group": "billing"},
            "group 'billing' of stream 'orders'",
        ),
    ],
)
def test_xcoms_and_logs_name_what_it_is(names: dict[str, str], value: dict[str, str], shown: str) -> None:
    place = named_place(**names)  # type: ignore[arg-type]

    assert value_of(place) == value
    assert str(place) == shown


# ---------------------------------------------------------------------- triggers


def delivery(**names: Any) -> Any:
    from airflow_provider_sluicegate.triggers.delivery import RedisQueueDeliveryTrigger

    return RedisQueueDeliveryTrigger(**names)


# Airflow below 3.3 does not say when an event is stored, and has no such trigger.
MADE_FOR_EVENTS = [RedisQueueEventTrigger, *([delivery] if has_shared_streams() else [])]


@pytest.mark.parametrize("make", [RedisQueueTrigger, *MADE_FOR_EVENTS])
def test_a_trigger_of_a_group_is_rebuilt_from_plain_values(make: Callable[..., Any]) -> None:
    trigger = make(stream="orders", group="billing", redis_conn_id="cache")

    path, arguments = trigger.serialize()

    assert {name: arguments[name] for name in ("stream", "group", "redis_conn_id")} == {
        "stream": "orders", "group": "billing", "redis_conn_id": "cache",
    }  # fmt: skip
    assert "queue_name" not in arguments
    assert import_string(path)(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)


@pytest.mark.parametrize("make", [RedisQueueTrigger, *MADE_FOR_EVENTS])
def test_a_trigger_of_a_queue_is_stored_as_before_there_were_streams(make: Callable[..., Any]) -> None:
    arguments = make(queue_name="orders").serialize()[1]

    assert next(iter(arguments)) == "queue_name"
    assert {"stream", "group"}.isdisjoint(arguments)


@pytest.mark.parametrize("make", MADE_FOR_EVENTS)
def test_a_watcher_that_cannot_work_is_refused_when_the_dag_is_read(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="is read by its groups; give group"):
        make(stream="orders")
    with pytest.raises(ConfigurationError, match="are both given"):
        make(stream="orders", queue_name="orders", group="billing")


def test_watchers_of_two_groups_are_two_watchers() -> None:
    assets = [
        Asset(name, watchers=[AssetWatcher(name="gate", trigger=RedisQueueEventTrigger(stream="orders", group=name))])
        for name in ("billing", "audit")
    ]

    assert len({json.dumps(asset.watchers[0].trigger.serialize()) for asset in assets}) == 2


def by_url(url: str, **arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow prefers the scheme with arguments
        return MessageQueueTrigger(queue=url, **arguments).trigger


def test_a_url_names_a_watched_queue_or_group() -> None:
    group = by_url("redis+sluicegate://cache?stream=orders&group=billing", min_ready=5)
    queue = by_url("redis+sluicegate://my%2Fcache?queue=a%26b")

    assert (
        group.serialize()
        == RedisQueueEventTrigger(stream="orders", group="billing", min_ready=5, redis_conn_id="cache").serialize()
    )
    assert queue.serialize() == RedisQueueEventTrigger(queue_name="a&b", redis_conn_id="my/cache").serialize()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sluicegate://cache:6379/0?queue=orders", "write the id of an Airflow connection in their place"),
        ("redis+sluicegate://someone@cache?queue=orders", "names a server, a user or a path"),
        ("redis+sluicegate://?queue=orders", "write the id of an Airflow connection"),
        ("redis+sluicegate://cache?queue=orders&min_ready=5", "give the rest as arguments"),
        ("redis+sluicegate://cache?stream=orders", "is read by its groups; give group"),
        ("redis+sluicegate://cache", "give exactly one of queue and stream"),
    ],
)
def test_a_url_that_names_something_else_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        by_url(url)


# ---------------------------------------------------------------------- assets


@pytest.mark.parametrize("name", ["orders", "größe:1 %2F?x#y@z", "a+b&c=d", "..", "a\\b\n"])
@pytest.mark.parametrize("group", [None, "billing", "a+b&c=d/e"])
def test_names_of_streams_and_groups_survive_the_way_through_an_asset(
    name: str, group: str | None, connect: Connect
) -> None:
    connect("cache.eu", host="cache")

    asset = create_asset(stream=name, group=group, redis_conn_id="cache.eu")

    assert asset.normalized_uri == asset.uri == Asset(uri=asset.uri).uri
    dataset = convert_asset_to_openlineage(asset, None)
    assert (dataset.namespace, dataset.name) == ("redis://cache:6379", f"stream:{name}")


def test_the_uri_names_the_stream_and_the_group() -> None:
    assert create_asset(stream="orders").uri == "sluicegate://sluicegate_default/?stream=orders"
    assert (
        create_asset(stream="a b", group="c/d", redis_conn_id="x:1/y").uri
        == "sluicegate://x%3A1%2Fy/?group=c%2Fd&stream=a+b"
    )
    with pytest.raises(ConfigurationError, match="give queue_name"):
        create_asset()


@pytest.mark.parametrize(
    "uri",
    [
        "sluicegate://cache?group=billing",
        "sluicegate://cache?stream=orders&stream=returns",
        "sluicegate://cache?stream=%20",
        "sluicegate://cache/orders?stream=orders",
        "sluicegate://cache/orders?group=billing",
        "sluicegate://cache?stream=orders&db=1",
    ],
)
def test_other_queries_are_refused_by_airflow_with_the_form_of_the_uri(uri: str) -> None:
    with pytest.raises(ValueError, match=r"of a stream, which is sluicegate://<connection id>/\?stream=<stream>"):
        Asset(uri=uri)


# ---------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"stream": "orders"}, "is read by its groups; give group"),
        ({"queue": ["orders"], "stream": "orders", "group": ["billing"]}, "are both given"),
        ({"queue": ["orders", "returns"], "group": ["billing"]}, "group='billing' is of a stream"),
        ({}, "give queue_name"),
    ],
)
def test_a_command_says_what_to_name(words: dict[str, Any], says: str, connect: Connect) -> None:
    connect(host="127.0.0.1")
    given = {
        "queue": [],
        "stream": None,
        "group": None,
        "conn_id": "sluicegate_default",
        "output": "json",
        "verbose": False,
    }

    with pytest.raises(SystemExit, match=says):
        commands.pause(Namespace(**given | words))
