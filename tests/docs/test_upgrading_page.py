"""What the page on upgrading says about a newer layout is so: when it may be removed, and what happens otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import ConfigurationError, RedisMessageQueue
from tests.support.snippets import snippet

NEWER_LAYOUT = 4


@pytest.fixture
def remove_layout() -> Callable[[redis.Redis, str], None]:
    """Return the function of the page."""
    names: dict[str, Any] = {}
    exec(compile(snippet("layout-back"), "upgrading.md", "exec", dont_inherit=True), names)  # noqa: S102  (it is ours)
    remove: Callable[[redis.Redis, str], None] = names["remove_layout"]
    return remove


@pytest.fixture
def queue(client: redis.Redis) -> RedisMessageQueue:
    """Return a queue with a block of 20 messages."""
    queue = RedisMessageQueue("orders", client=client, message_wait_interval_seconds=0)
    queue.publish_many({"n": number} for number in range(20))
    assert client.llen(queue.key.pending) == 1
    return queue


def test_the_field_is_removed_from_a_drained_queue_alone(
    client: redis.Redis, queue: RedisMessageQueue, remove_layout: Callable[[redis.Redis, str], None]
) -> None:
    with pytest.raises(SystemExit, match="orders has 20 pending messages and 0 leases: drain it first"):
        remove_layout(client, "orders")
    lease = queue.claim(20)
    with pytest.raises(SystemExit, match="orders has 0 pending messages and 1 leases"):
        remove_layout(client, "orders")
    assert client.hget(queue.key.counters, "layout") == b"3"
    lease.ack()

    remove_layout(client, "orders")

    assert client.hexists(queue.key.counters, "layout") is False
    assert queue.publish_many({"n": number} for number in range(8)).accepted == 8
    assert client.hget(queue.key.counters, "layout") == b"3", "the next block sets it again"


def test_an_older_client_reads_a_drained_queue_once_the_field_is_removed(
    client: redis.Redis, queue: RedisMessageQueue
) -> None:
    queue.claim(20).ack()
    client.hset(queue.key.counters, "layout", NEWER_LAYOUT)
    with pytest.raises(ConfigurationError, match="was written by a newer Sluicegate"):
        queue.claim()

    client.hdel(queue.key.counters, "layout")
    queue.publish({"n": 20})

    assert [message.json() for message in queue.claim(9).messages] == [{"n": 20}]
    assert (queue.stats().acked, queue.depth().dead) == (20, 0)


@pytest.mark.parametrize(
    ("kind", "dead", "set_aside"), [(b"3", 1, 0), (b"Z", 0, 1)], ids=["of a known kind", "of an unknown kind"]
)
def test_without_the_field_a_block_of_another_layout_is_one_dead_letter_or_set_aside(
    client: redis.Redis, queue: RedisMessageQueue, kind: bytes, dead: int, set_aside: int
) -> None:
    block = client.lindex(queue.key.pending, 0)
    assert isinstance(block, bytes)
    head, _, rest = block.partition(b"\x1f")
    client.lset(queue.key.pending, 0, kind + head[1:] + b"\x1fzstd\x1f" + rest)
    client.hset(queue.key.counters, "layout", NEWER_LAYOUT)
    client.hdel(queue.key.counters, "layout")

    assert len(queue.claim(20).messages) == 0

    depth = queue.depth()
    assert (depth.pending, depth.dead, depth.set_aside) == (0, dead, set_aside)
    assert [letter.reason for letter in queue.peek(9, state="dead")] == ["foreign"] * dead
