"""A lease shows which consumer holds it, through takeovers, partial ends and repairs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.bounds import MAX_ID_LENGTH
from sluicegate.core.keys import consumer_name
from sluicegate.errors import ConfigurationError, OptionTypeError
from tests.support import state

MakeQueue = Callable[..., RedisMessageQueue]


def consumers(queue: RedisMessageQueue) -> list[str | None]:
    """Return the consumers of the messages in flight."""
    return [held.consumer for held in queue.peek(state="in_flight")]


def test_a_lease_shows_the_consumer_that_claimed_it(queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    first_name = queue.session.consumer.decode() or None  # a group's consumer always has a name
    first = queue.claim(2, lease_seconds=50, heartbeat=False)
    queue.session.consumer = consumer_name("wörker 1")
    second = queue.claim(1, lease_seconds=100, heartbeat=False)
    assert consumers(queue) == [first_name, first_name, "wörker 1"]
    assert (len(first), len(second)) == (2, 1)


def test_a_takeover_shows_the_consumer_that_took_over(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.session.consumer = b"one"
    queue.claim(lease_id="l", heartbeat=False)
    queue.session.consumer = b"two"
    queue.claim(lease_id="l", heartbeat=False)
    assert consumers(queue) == ["one"]
    queue.claim(lease_id="l", take_over_after_seconds=0, heartbeat=False)
    assert consumers(queue) == ["two"]
    queue.session.consumer = b""
    queue.claim(lease_id="l", take_over_after_seconds=0, heartbeat=False)
    assert consumers(queue) == [None]


def test_the_consumer_is_no_message_of_its_lease(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.session.consumer = b"one"
    queue.publish_many("abcd")
    lease = queue.claim(4, heartbeat=False)
    lease.ack(lease.messages[1])
    assert queue.repair().in_flight == 0
    assert queue.depth().in_flight == 3
    state.expire(client, "orders")
    again = queue.claim(4, heartbeat=False)
    assert [message.text() for message in again.messages] == ["a"]  # after a failure, batches are smaller
    assert (queue.depth().in_flight, queue.depth().returned) == (1, 2)
    again.ack()
    assert queue.depth().in_flight == 0
    assert client.keys("*:lease:*") == []


@pytest.mark.parametrize("name", ["", "  ", "x" * (MAX_ID_LENGTH + 1), "\ud800"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="consumer"):
        consumer_name(name)


def test_a_name_is_a_text() -> None:
    with pytest.raises(OptionTypeError, match="consumer must be a str, not int"):
        consumer_name(7)  # type: ignore[arg-type]
