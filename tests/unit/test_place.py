"""A place is what a URL or the parameters of an adapter name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import ConfigurationError, Place, QueueSpec, RedisMessageQueue, open_spec, open_url

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)


@pytest.mark.parametrize(
    ("url", "redis_url", "place"),
    [
        ("redis+sluicegate://h:6379/0?queue=orders", "redis://h:6379/0", Place("orders")),
        ("rediss+sluicegate://h/1?stream=orders", "rediss://h/1", Place("orders", stream=True)),
        (
            "redis+sluicegate://user@h:6379/0?password_env=SECRET&stream=orders&group=billing",
            "redis://user@h:6379/0?password_env=SECRET",
            Place("orders", stream=True, group="billing"),
        ),
        ("unix+sluicegate:///run/redis.sock?queue=a%20b", "unix:///run/redis.sock", Place("a b")),
        ("embedded+sluicegate:///var/lib/q?queue=orders", "embedded:///var/lib/q", Place("orders")),
        (
            "redis+sentinel+sluicegate://a:1,b:2/main/0?queue=orders",
            "redis+sentinel://a:1,b:2/main/0",
            Place("orders"),
        ),
        ("redis+cluster+sluicegate://a:1,b:2?queue=orders", "redis+cluster://a:1,b:2", Place("orders")),
    ],
)
def test_a_url_names_its_redis_and_its_place(url: str, redis_url: str, place: Place) -> None:
    """A URL of each topology is split into the URL of the Redis and the place."""
    assert Place.parse_url(url) == (redis_url, place)
    assert Place.parse_url(place.url_on(redis_url)) == (redis_url, place)


@given(NAMES, NAMES)
def test_every_name_survives_a_url(name: str, group: str) -> None:
    """The URL of any stream and group is read as that stream and group."""
    place = Place(name, stream=True, group=group)
    assert Place.parse_url(place.url_on("redis://h:6379/0?password_env=SECRET")) == (
        "redis://h:6379/0?password_env=SECRET",
        place,
    )


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h:6379/0?queue=orders", "names no queue or stream"),
        ("redis+sluicegate://h:6379/0", "neither is given"),
        ("redis+sluicegate://h:6379/0?queue=a&stream=b", "both are given"),
        ("redis+sluicegate://h:6379/0?queue=a&group=b", "needs a stream"),
        ("redis+sluicegate://h:6379/0?queue=a&queue=b", "queue more than once"),
        ("redis+sluicegate://h:6379/0?queue=", "blank"),
        ("redis+sluicegate://h:6379/0?stream=a&group=%20", "group is blank"),
    ],
)
def test_a_url_that_names_no_single_place_is_refused(url: str, says: str) -> None:
    """The error of a URL says what is missing or too much in it."""
    with pytest.raises(ConfigurationError, match=says):
        Place.parse_url(url)


def test_a_url_opens_the_queue_that_it_names() -> None:
    """A queue is made without a connection, with its options."""
    with open_url("redis+sluicegate://localhost:1/0?queue=orders", max_delivery_count=3) as queue:
        assert isinstance(queue, RedisMessageQueue)
        assert queue.name == "orders"
        assert queue.session.config.max_delivery_count == 3
        assert open_spec(queue.spec()).spec() == queue.spec()


def test_the_spec_of_a_queue_is_as_older_versions_read_it() -> None:
    """The JSON of a queue's spec has no new fields, so that an older version on an executor reads it."""
    spec = RedisMessageQueue("orders", url="redis://localhost:1/0").spec()
    assert set(spec.to_dict()) == {"name", "url", "options"}
    group = QueueSpec("orders", "redis://localhost:1/0", {}, "group", "billing")
    assert QueueSpec.from_json(group.to_json()) == group


@pytest.mark.parametrize(
    ("kind", "group", "says"), [("table", None, "of a kind in"), ("group", None, "group=None"), ("queue", "a", "'a'")]
)
def test_a_spec_of_an_unknown_kind_is_refused(kind: str, group: str | None, says: str) -> None:
    """A spec names a known kind, and a group where there is one."""
    values = {"name": "orders", "url": "redis://localhost:1/0", "options": {}, "kind": kind, "group": group}
    with pytest.raises(ConfigurationError, match=says):
        QueueSpec.from_dict(values)


def test_a_queue_is_not_made_from_the_spec_of_a_group() -> None:
    """`RedisMessageQueue.from_spec` names the function that makes a group."""
    with pytest.raises(ConfigurationError, match="open_spec"):
        RedisMessageQueue.from_spec(QueueSpec("orders", "redis://localhost:1/0", {}, "group", "billing"))
