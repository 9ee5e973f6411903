"""What a group has not been delivered, read in parts by ids: each message once, whoever publishes or claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate import ConsumerGroup, RedisStreamQueue
from sluicegate.spark import options
from sluicegate.spark.browsing import unread
from sluicegate.spark.browsing.unread import Stretch
from sluicegate.spark.datasource import SluicegateDataSource
from tests.spark.harness import Load

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(60)]


@pytest.fixture
def stream(server: RedisServer, client: redis.Redis) -> Iterator[RedisStreamQueue]:
    """Yield a stream on an empty server."""
    with RedisStreamQueue("events", url=server.url) as made:
        yield made


@pytest.fixture
def group(stream: RedisStreamQueue) -> Iterator[ConsumerGroup]:
    """Yield a group that is there before the first message."""
    with stream.group("billing") as made:
        made.create("beginning")
        yield made


def publish(stream: RedisStreamQueue, count: int, size: int = 0) -> list[str]:
    """Publish messages of about a size, and return their ids."""
    ids = stream.publish_many({"n": n, "ballast": "x" * size} for n in range(count)).ids
    assert len(ids) == count
    return ids


def browse(group: ConsumerGroup, **more: str) -> Load:
    return Load(SluicegateDataSource, {**options(group), **more})


def ids(load: Load) -> list[str]:
    found: list[str] = load.collect()["id"].to_pylist()
    return found


def test_parts_meet_at_ids_and_the_last_sees_what_arrives(stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    published = publish(stream, 23)
    load = browse(group, numPartitions="4", limit="30")

    assert load.plan() == [
        Stretch("", 0, published[5], 6),
        Stretch(published[5], 6, published[11], 6),
        Stretch(published[11], 12, published[17], 6),
        Stretch(published[17], 18, "", 12),
    ]
    assert ids(load) == published

    later = publish(stream, 20)

    assert ids(load) == (published + later)[:30], "up to the limit"
    assert load.collect()["sequence"].to_pylist() == list(range(1, 31))
    assert ids(browse(group, limit="3")) == published[:3]
    assert [len(load.read(at)) for at in range(4)] == [6, 6, 6, 12]


def test_a_read_shows_no_message_that_was_claimed_since_its_plan(
    stream: RedisStreamQueue, group: ConsumerGroup
) -> None:
    published = publish(stream, 20)
    load = browse(group, numPartitions="4")
    load.plan()

    lease = group.claim(7)

    assert ids(load) == published[7:]
    assert load.collect()["sequence"].to_pylist() == list(range(8, 21))
    assert [message.sequence for message in lease.messages] == list(range(1, 8))
    lease.ack()
    while lease := group.claim(10):
        lease.ack()
    assert ids(load) == []


def test_messages_that_were_deleted_where_parts_meet_lose_nothing_else(
    stream: RedisStreamQueue, group: ConsumerGroup
) -> None:
    published = publish(stream, 20)
    load = browse(group, numPartitions="4")
    borders = [stretch.last for stretch in load.plan()[:-1] if isinstance(stretch, Stretch)]
    assert len(borders) == 3

    assert sorted(stream.cancel(borders)) == sorted(borders)

    assert ids(load) == [one for one in published if one not in borders]


def test_a_part_is_read_in_pages_by_the_size_of_its_messages(
    stream: RedisStreamQueue, group: ConsumerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "_PAGE_BYTES", 10_000)
    monkeypatch.setattr(unread, "_LOOK_BYTES", 5_000)
    published = publish(stream, 200, size=950)
    counts: list[int] = []
    plain = unread._page

    def counting(*given: Any, **named: Any) -> Any:
        page = plain(*given, **named)
        counts.append(len(page.messages))
        return page

    monkeypatch.setattr(unread, "_page", counting)
    load = browse(group, numPartitions="2")

    assert ids(load) == published
    assert max(counts) <= 20
    assert load.plan() == [Stretch("", 0, published[99], 100), Stretch(published[99], 100, "", 99_900)]


def test_a_group_that_has_read_everything_is_one_empty_part(stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    for _ in range(2):
        load = browse(group, numPartitions="3")
        assert len(load.plan()) == 1
        assert ids(load) == []
        publish(stream, 5)
        while lease := group.claim(10):
            lease.ack()
