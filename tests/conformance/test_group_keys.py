"""With `until_acked`, a stream's key is held until every group that existed at its publish has ended the message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support import markers, state
from tests.support.flavours import MakeGroup, MakeStream


@pytest.fixture
def stream(make_stream: MakeStream) -> RedisStreamQueue:
    """Return a stream that holds a key until its message is acked."""
    return make_stream(get_deduplication_key="id", deduplication_policy="until_acked")


@pytest.fixture
def groups(make_group: MakeGroup) -> list[ConsumerGroup]:
    """Return two groups at the stream's beginning; one has an awkward name."""
    made = [make_group(group=name, max_delivery_count=1) for name in ("one", "one\x1fg:two")]
    for group in made:
        group.create("beginning")
    return made


def is_held(stream: RedisStreamQueue) -> bool:
    """Return whether the key refuses a message; if not, delete the message that was published."""
    report = stream.publish_many([{"id": 7}])
    if report.accepted:
        stream.cancel(report.ids)
    return not report.accepted


def ack(group: ConsumerGroup, client: redis.Redis) -> None:
    group.claim(9).ack()


def ack_by_parts(group: ConsumerGroup, client: redis.Redis) -> None:
    lease = group.claim(9)
    for message in lease.messages:
        lease.ack(message)


def bury(group: ConsumerGroup, client: redis.Redis) -> None:
    group.claim(9).bury(reason="bad")


def let_it_die(group: ConsumerGroup, client: redis.Redis) -> None:
    for _ in range(3):
        if not group.claim(9, heartbeat=False):
            break
        state.expire(client, "orders", group=group.group_name)
    assert group.depth().dead == 1


def purge_unread(group: ConsumerGroup, client: redis.Redis) -> None:
    assert group.purge("pending") == 1


def purge_returned(group: ConsumerGroup, client: redis.Redis) -> None:
    group.claim(9).release()
    assert group.purge("returned") == 1


def cancel(group: ConsumerGroup, client: redis.Redis) -> None:
    lease = group.claim(9)
    lease.release()
    assert group.cancel([message.id for message in lease.messages])


ENDS = [ack, ack_by_parts, bury, let_it_die, purge_unread, purge_returned, cancel]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_the_key_is_free_once_both_groups_have_ended_the_message(
    stream: RedisStreamQueue,
    groups: list[ConsumerGroup],
    client: redis.Redis,
    end: Callable[[ConsumerGroup, redis.Redis], None],
) -> None:
    stream.publish({"id": 7})
    assert is_held(stream)
    end(groups[0], client)
    assert is_held(stream)
    end(groups[1], client)
    assert not is_held(stream)


def test_a_group_that_was_made_later_or_is_deleted_does_not_hold_the_key(
    stream: RedisStreamQueue, groups: list[ConsumerGroup], make_group: MakeGroup
) -> None:
    stream.publish({"id": 7})
    make_group(group="late").create("end")
    groups[0].delete()
    assert is_held(stream)
    groups[1].claim(9).ack()
    assert not is_held(stream)


def test_a_message_that_comes_back_keeps_the_key(stream: RedisStreamQueue, groups: list[ConsumerGroup]) -> None:
    stream.publish({"id": 7})
    groups[0].claim(9).ack()
    groups[1].claim(9).release()
    assert is_held(stream)
    lease = groups[1].claim(9)
    assert is_held(stream)
    lease.ack()
    assert not is_held(stream)


def test_a_redriven_message_holds_its_key_again(stream: RedisStreamQueue, groups: list[ConsumerGroup]) -> None:
    stream.publish({"id": 7})
    for group in groups:
        group.claim(9).bury()
    assert groups[1].redrive().redriven == 1
    assert is_held(stream)
    groups[1].claim(9).ack()
    assert not is_held(stream)


def test_a_dead_message_whose_key_another_holds_is_redriven_and_frees_nothing(
    stream: RedisStreamQueue, groups: list[ConsumerGroup]
) -> None:
    stream.publish({"id": 7})
    for group in groups:
        group.claim(9).bury()
    stream.publish({"id": 7, "again": True})
    assert groups[0].redrive().redriven == 1
    assert [message.json() for message in groups[0].claim(1).messages] == [{"id": 7}]
    groups[0].claim(9).ack()
    assert is_held(stream)
    groups[1].claim(9).ack()
    assert not is_held(stream)


def test_many_messages_are_purged_with_their_keys(
    stream: RedisStreamQueue, groups: list[ConsumerGroup], client: redis.Redis
) -> None:
    stream.publish_many([{"id": n} for n in range(1203)])
    assert groups[0].purge("pending") == 1203
    assert len(markers.held(client, stream.session.keys)) == 1203
    assert groups[1].purge("pending") == 1203
    assert markers.held(client, stream.session.keys) == {}
