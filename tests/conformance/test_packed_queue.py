"""A consumer of a queue whose messages wait in blocks: whatever it does with them, they are messages as any others."""

from __future__ import annotations

import pytest
import redis

from sluicegate import LeaseState, Message, RedisMessageQueue, Verdict
from tests.support import state
from tests.support.blocks import pack_pending
from tests.support.flavours import MakeQueue

COUNT = 600


@pytest.fixture
def queue(make_queue: MakeQueue, client: redis.Redis) -> RedisMessageQueue:
    made = make_queue(get_deduplication_key="id", deduplication_policy="until_acked")
    made.publish_many(({"id": number} for number in range(COUNT)), headers={"from": "tests"})
    assert pack_pending(client, "orders") == 3
    return made


def numbers(messages: list[Message]) -> list[int]:
    return [message.json()["id"] for message in messages]


def test_messages_come_in_order_with_all_that_belongs_to_them(queue: RedisMessageQueue) -> None:
    lease = queue.claim(COUNT)
    assert numbers(lease.messages) == list(range(COUNT))
    message = lease.messages[300]
    assert (message.deduplication_key, message.headers, message.delivery_count) == ("300", {"from": "tests"}, 1)
    assert [message.sequence for message in lease.messages] == list(range(1, COUNT + 1))
    lease.ack()
    assert queue.publish({"id": 300}) is True, "its key is free"


def test_a_loop_over_single_messages_opens_a_block_and_ends(queue: RedisMessageQueue) -> None:
    got = []
    while lease := queue.claim(1):
        got += numbers(lease.messages)
        lease.ack()
        if len(got) == 20:
            break
    assert got == list(range(20))
    assert queue.depth().in_flight == 0


def test_each_verdict_takes_effect_on_its_messages(queue: RedisMessageQueue, client: redis.Redis) -> None:
    lease = queue.claim(COUNT)
    lease.nack(lease.messages[260])
    lease.bury(lease.messages[261])
    lease.release(lease.messages[400:410])
    lease.ack()
    counts = lease.counts
    assert (counts.acked, counts.returned, counts.buried) == (COUNT - 12, 11, 1)
    assert numbers(queue.claim(100).messages) == [260], "the failed one comes alone"
    assert numbers(queue.claim(100).messages) == list(range(400, 410))
    assert state.counters(client, "orders")["acked"] == COUNT - 12


def test_settle_takes_verdicts_of_all_kinds_in_one_call(queue: RedisMessageQueue) -> None:
    lease = queue.claim(COUNT)
    lease.settle(Verdict("nack", lease.messages[5]), Verdict("bury", lease.messages[599]), Verdict("ack"))
    assert (lease.counts.acked, lease.counts.returned, lease.counts.buried) == (COUNT - 2, 1, 1)


def test_a_takeover_and_a_release_keep_all_messages(queue: RedisMessageQueue) -> None:
    first = queue.claim(COUNT, lease_id="run-1")
    first.ack(first.messages[300])
    heir = queue.claim(COUNT, lease_id="run-1", take_over_after_seconds=0)
    assert heir.state is LeaseState.OPEN
    assert numbers(heir.messages) == [number for number in range(COUNT) if number != 300]
    heir.release()
    got: list[int] = []
    while lease := queue.claim(COUNT):  # the takeover counted, so they come in smaller batches
        got += numbers(lease.messages)
        lease.ack()
    assert got == [number for number in range(COUNT) if number != 300]


def test_what_expired_returns(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.claim(COUNT)
    state.expire(client, "orders")
    got: list[int] = []
    while lease := queue.claim(100):
        got += numbers(lease.messages)
        lease.ack()
    assert sorted(got) == list(range(COUNT))
