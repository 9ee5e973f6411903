"""A queue, a stream and its groups are named alike everywhere, and no two of them are taken for one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import (
    QueueGate,
    QueuePartitions,
    RedisQueueResource,
    build_dead_letter_check,
    build_dead_letter_sensor,
    build_queue_age_check,
    build_queue_check_sensor,
    build_queue_depth_check,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_drain_op,
    build_queue_gates_sensor,
    build_queue_observation_sensor,
    build_queue_publish_asset,
    build_queue_source_asset,
    build_spark_queue_drain_asset,
)
from dagster_sluicegate.depths import identify
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import label_of, names_of
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

pytestmark = pytest.mark.dagster

SERVER = "redis://redis.example:6379/0"
BILLING = Place("orders", stream=True, group="billing")


@dg.asset
def target() -> None: ...


def nothing() -> list[int]:
    return []


def gates(**names: Any) -> Any:
    return build_queue_gates_sensor(name="gates", queues=[QueueGate(target=target, min_ready=1, **names)])


def check_sensor(**names: Any) -> Any:
    check = build_queue_depth_check(asset="orders", max_ready=1, **names)
    return build_queue_check_sensor(name="checks", checks=[check], **names)


DEFINITIONS: dict[str, Callable[..., Any]] = {
    "depth sensor": lambda **names: build_queue_depth_sensor(name="gate", target=target, min_ready=1, **names),
    "gates sensor": gates,
    "dead-letter sensor": lambda **names: build_dead_letter_sensor(name="dead", target=target, **names),
    "drain asset": lambda **names: build_queue_drain_asset(spec="drained", process=print, **names),
    "drain op": lambda **names: build_queue_drain_op(name="drained", process=print, **names),
    "Spark drain asset": lambda **names: build_spark_queue_drain_asset(spec="drained", process=print, **names),
    "depth check": lambda **names: build_queue_depth_check(asset="orders", max_ready=1, **names),
    "age check": lambda **names: build_queue_age_check(asset="orders", max_age_seconds=1, **names),
    "dead-letter check": lambda **names: build_dead_letter_check(asset="orders", **names),
    "check sensor": check_sensor,
    "observation sensor": lambda **names: build_queue_observation_sensor(
        name="observed", queue_asset="orders", min_ready=1, **names
    ),
    "source asset": lambda **names: build_queue_source_asset(spec="orders", **names),
}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_definition_names_a_queue_or_a_stream(definition: str) -> None:
    make = DEFINITIONS[definition]
    for names in ({}, {"queue_name": "orders"}, {"stream_name": "orders", "group": "billing"}, {"group": "billing"}):
        assert make(**names) is not None

    with pytest.raises(ConfigurationError, match="queue_name='a' and stream_name='b' are both given; leave one of"):
        make(queue_name="a", stream_name="b")
    with pytest.raises(ConfigurationError, match=r"group='c' needs a stream.*give stream_name instead of queue_name"):
        make(queue_name="a", group="c")
    with pytest.raises(ConfigurationError, match=r"stream_name: .* blank"):
        make(stream_name=" ", group="c")


def test_a_publish_asset_names_a_queue_or_a_stream() -> None:
    for names in ({}, {"queue_name": "orders"}, {"stream_name": "orders"}):
        build_queue_publish_asset(spec="published", produce=nothing, **names)  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match="'published': queue_name='a' and stream_name='b' are both given"):
        build_queue_publish_asset(spec="published", produce=nothing, queue_name="a", stream_name="b")


@pytest.mark.parametrize(
    ("own", "use", "place"),
    [
        (Names("orders"), Names(), Place("orders")),
        (Names("orders"), Names("returns"), Place("returns")),
        (Names("orders"), Names(stream_name="orders", group="billing"), BILLING),
        (Names(stream_name="orders", group="billing"), Names(), BILLING),
        (Names(stream_name="orders", group="audit"), Names(group="billing"), BILLING),
        (Names(stream_name="returns", group="billing"), Names(stream_name="orders"), BILLING),
        (Names(group="billing"), Names(stream_name="orders"), BILLING),
        (Names(stream_name="orders", group="billing"), Names("orders"), Place("orders")),
    ],
)
def test_a_use_overrides_the_resource_name_by_name(own: Names, use: Names, place: Place) -> None:
    resource = RedisQueueResource(url=SERVER, queue_name=own.queue_name, stream_name=own.stream_name, group=own.group)

    assert resource.resolve_consumed(use) == place


@pytest.mark.parametrize(
    ("own", "use", "words"),
    [
        ({}, Names(), "names no queue; set its queue_name, or its stream_name and group"),
        ({"stream_name": "orders"}, Names(), "stream 'orders' is consumed by groups; name one by group"),
        ({"queue_name": "orders"}, Names(group="billing"), "and the resource names the queue 'orders'; give stream_"),
        ({}, Names(group="billing"), "and the resource names no stream; give stream_name"),
    ],
)
def test_what_no_message_is_claimed_from_is_refused(own: dict[str, Any], use: Names, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        RedisQueueResource(url=SERVER, **own).resolve_consumed(use)


def test_a_url_names_the_queue_or_the_group() -> None:
    url = "redis+sluicegate://redis.example:6379/0?stream=orders&group=billing"
    resource = RedisQueueResource(url=url)

    assert resource.resolve_place() == BILLING
    assert resource.server_url == SERVER
    assert resource.resolve_place(Names("returns")) == Place("returns")
    queue = RedisQueueResource(url="redis+sluicegate://redis.example:6379/0?queue=orders")
    assert (queue.resolve_name(), queue.server_url) == ("orders", SERVER)
    assert identify(resource.server_url, Place("orders")) == identify(queue.server_url, Place("orders"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue_name": "a", "stream_name": "b"}, "queue_name='a' and stream_name='b' are both given"),
        ({"queue_name": "a", "group": "b"}, "group='b' needs a stream"),
        (
            {"url": "redis+sluicegate://redis.example/0?stream=a", "group": "b"},
            "the url names stream 'a'; leave queue_name, stream_name and group out",
        ),
        ({"url": "redis+sluicegate://redis.example/0?stream=a&queue=b"}, "exactly one of queue and stream"),
        ({"url": "redis+sluicegate://:secret@redis.example/0?stream=a"}, "carries a password as plain text"),
    ],
)
def test_names_that_contradict_each_other_are_refused_when_the_definitions_load(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        RedisQueueResource(**{"url": SERVER, **options}).get_resource_definition()
    assert "secret" not in str(refused.value)


def test_a_queue_a_stream_and_its_groups_never_share_an_id_a_label_or_tags() -> None:
    places = [
        Place("orders"),
        Place("orders", stream=True),
        BILLING,
        Place("orders", stream=True, group="audit"),
        Place("orders:billing", stream=True),
        Place("orders", stream=True, group="a:b"),
        Place("orders:a", stream=True, group="b"),
        Place("stream:orders"),
        Place("stream:orders:billing"),
        Place("queue:stream%3Aorders"),
        Place("queue:orders"),
    ]

    for text_of in (label_of, lambda place: identify(SERVER, place), lambda place: names_of(place)["sluicegate/queue"]):
        assert len({text_of(place) for place in places}) == len(places)
    assert label_of(Place("orders")) == "orders", "run keys of queues stay as they were"
    assert label_of(BILLING) == "stream:orders:billing"
    assert names_of(BILLING) == {
        "sluicegate/queue": "stream:orders:billing",
        "sluicegate/stream": "orders",
        "sluicegate/group": "billing",
    }


def test_partitions_have_a_stream_each() -> None:
    regions = QueuePartitions(keys=["eu", "us"], stream_name="orders", group="billing")

    assert regions.queue_of("eu") == "orders:eu"
    assert [(gate.stream_name, gate.group) for gate in regions.gates(target=target, min_ready=1)] == [
        ("orders:eu", "billing"),
        ("orders:us", "billing"),
    ]
    assert QueuePartitions.hashed(stream_name="orders", count=2).keys == ("0", "1")
    with pytest.raises(ConfigurationError, match="give queue_name, or stream_name and group"):
        QueuePartitions(keys=["eu"])
