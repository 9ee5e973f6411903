"""Peek in pages: an offset passes messages over, in every state and in its order."""

from __future__ import annotations

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.support.flavours import MakeQueue


@pytest.fixture
def queue(make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue with five messages in every state."""
    queue = make_queue(enable_completed_queue=True, enable_failed_queue=True)
    queue.publish_many("abcdefghijklmnopqrstuvwxyz"[:25])
    lease = queue.claim(20)
    lease.ack(lease.messages[:5])
    lease.nack(lease.messages[5:10])
    for at, message in enumerate(lease.messages[10:15]):
        lease.nack(message, delay_seconds=100 + at)
    for message in lease.messages[15:]:
        lease.bury(message)
    return queue


def shown(queue: RedisMessageQueue, state: str, count: int, offset: int) -> str:
    found = queue.peek(count, state=state, offset=offset)  # type: ignore[call-overload]
    return "".join(getattr(one, "message", one).text() for one in found)


@pytest.mark.parametrize(
    ("state", "all_of_them"),
    [("pending", "uvwxy"), ("returned", "fghij"), ("delayed", "klmno"), ("dead", "pqrst"), ("completed", "edcba")],
)
def test_pages_of_a_state_follow_each_other(queue: RedisMessageQueue, state: str, all_of_them: str) -> None:
    whole = shown(queue, state, 9, 0)
    if state == "dead":  # those of one millisecond are in no order
        all_of_them = "".join(sorted(all_of_them, key=whole.find))
    assert whole == all_of_them
    pages = [shown(queue, state, 2, offset) for offset in (0, 2, 4, 5, 100)]
    assert pages == [whole[:2], whole[2:4], whole[4:], "", ""]


def test_pages_of_failed_attempts_follow_each_other(queue: RedisMessageQueue) -> None:
    whole = shown(queue, "failed", 99, 0)
    assert sorted(whole) == list("fghijklmnopqrst")
    assert shown(queue, "failed", 6, 0) + shown(queue, "failed", 99, 6) == whole


def test_a_page_of_many_dead_letters(queue: RedisMessageQueue) -> None:
    queue.purge("returned")
    queue.publish_many(str(n) for n in range(2500))
    lease = queue.claim(3000)
    lease.bury()
    whole = [letter.id for letter in queue.peek(3000, state="dead")]
    assert len(set(whole)) == 2510
    assert [letter.id for letter in queue.peek(2400, state="dead", offset=10)] == whole[10:2410]


def test_an_offset_below_0_is_refused(queue: RedisMessageQueue) -> None:
    with pytest.raises(ConfigurationError, match=r"offset must be an int from 0 to \d+, not -1"):
        queue.peek(offset=-1)
