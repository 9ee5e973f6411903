"""Depth and peek: counts by state at every stage, read-only, at the same cost whatever the size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import Depth, RedisGateway, RedisMessageQueue
from sluicegate.errors import MalformedStoredMessageError
from tests.support import state

MakeQueue = Callable[..., RedisMessageQueue]
EMPTY = {
    "ready": 0, "pending": 0, "returned": 0, "delayed": 0, "due": 0, "in_flight": 0, "leases": 0, "expired": 0,
    "dead": 0, "oldest_ready_age_seconds": None, "paused": False, "published_total": 0, "claimed_total": 0,
    "set_aside": 0, "next_due_seconds": None, "next_expiry_seconds": None,
}  # fmt: skip


def counts(depth: Depth) -> dict[str, object]:
    """Return what differs from an empty queue, without the age."""
    times = {"oldest_ready_age_seconds", "next_due_seconds", "next_expiry_seconds"}
    values = {name: getattr(depth, name) for name in EMPTY if name not in times}
    return {name: value for name, value in values.items() if value != EMPTY[name]}


def test_an_empty_queue(queue: RedisMessageQueue) -> None:
    assert queue.depth() == Depth(**EMPTY)  # type: ignore[arg-type]


def test_every_state_is_counted(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abcdefgh")
    assert counts(queue.depth()) == {"ready": 8, "pending": 8, "published_total": 8}
    lease = queue.claim(6)
    totals = {"published_total": 8, "claimed_total": 6}
    assert counts(queue.depth()) == {"ready": 2, "pending": 2, "in_flight": 6, "leases": 1, **totals}
    a, b, c, d, *_ = lease.messages
    lease.ack(a)
    lease.nack(b)
    lease.nack(c, delay_seconds=1000)
    lease.bury(d)
    after = {"pending": 2, "returned": 1, "delayed": 1, "in_flight": 2, "leases": 1, "dead": 1, **totals}
    assert counts(queue.depth()) == {"ready": 3, **after}
    state.fall_due(client, "orders")
    assert counts(queue.depth()) == {"ready": 4, "due": 1, **after}
    state.expire(client, "orders")
    assert counts(queue.depth()) == {"ready": 6, "due": 1, "expired": 2, **after}
    client.hset(queue.session.keys.counters, "paused", "1")
    assert queue.depth().paused


def test_a_depth_says_when_the_next_message_becomes_claimable(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab", delay_seconds=1000)
    queue.publish("c", delay_seconds=100)
    queue.publish("d")
    lease = queue.claim(1)
    lease.extend(50)
    depth = queue.depth()
    assert 90 < (depth.next_due_seconds or 0) <= 100.01  # the millisecond is rounded up
    assert 40 < (depth.next_expiry_seconds or 0) <= 50.01
    state.expire(client, "orders")
    state.fall_due(client, "orders")
    depth = queue.depth()
    assert (depth.next_due_seconds, depth.next_expiry_seconds, depth.expired, depth.due) == (0, 0, 1, 3)
    assert len(lease) == 1


def test_what_a_dead_drain_left_is_ready(queue: RedisMessageQueue, client: redis.Redis) -> None:
    """Nobody claims while the gate is closed: the gate must open for what only a claim would bring back."""
    queue.publish_many(str(number) for number in range(2000))
    while queue.claim(100):
        pass
    assert queue.depth().ready == 0
    state.expire(client, "orders")
    depth = queue.depth()
    assert (depth.ready, depth.pending, depth.in_flight, depth.expired, depth.leases) == (2000, 0, 2000, 2000, 20)
    assert depth.oldest_ready_age_seconds is not None


def test_more_expired_leases_than_a_page_names_are_all_ready(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many(str(number) for number in range(1001))
    leases = [queue.claim(1) for _ in range(1001)]
    now = client.time()[0] * 1000
    client.zadd(queue.session.keys.leases, dict.fromkeys(client.zrange(queue.session.keys.leases, 0, -1), now - 1000))
    depth = queue.depth()
    assert (depth.ready, depth.expired, depth.in_flight, depth.leases) == (1001, 1001, 1001, 1001)
    for lease in leases:
        lease.ack()


def test_a_reap_under_way_is_counted_once(queue: RedisMessageQueue, client: redis.Redis) -> None:
    from sluicegate.core.transitions.reap import reap_call

    queue.publish_many("abcde")
    lease = queue.claim(5)
    state.expire(client, "orders")
    RedisGateway(redis_client=client).execute(
        reap_call(queue.session.keys, queue.session.rules, lease._batch.claim.request.name, step=2)
    )
    depth = queue.depth()
    assert (depth.ready, depth.returned, depth.expired, depth.in_flight) == (5, 2, 3, 3)


@pytest.mark.parametrize("where", ["pending", "returned", "due", "expired"])
def test_the_oldest_ready_message_tells_its_age(queue: RedisMessageQueue, client: redis.Redis, where: str) -> None:
    key = queue.session.keys.pending
    if queue.session.keys.group:
        past = client.time()[0] * 1000 - 5000
        client.xadd(key, {"data": "old"}, id=f"{past}-0")
    else:
        queue.publish("old")
        entry = client.lrange(key, 0, -1)[0]
        past = int(entry[13:25], 16) - 5000
        client.lset(key, 0, entry[:13] + b"%012x" % past + entry[25:])
    queue.publish("young")
    match where:
        case "returned":
            queue.claim(1).release()
        case "due":
            queue.claim(1).nack(delay_seconds=1000)
            assert queue.depth().oldest_ready_age_seconds < 4, "what is not due is not ready"  # type: ignore[operator]
            members = client.zrange(queue.session.keys.delayed, 0, -1)
            client.zadd(queue.session.keys.delayed, {members[0]: past})
        case "expired":
            queue.claim(1)
            assert queue.depth().oldest_ready_age_seconds < 4  # type: ignore[operator]
            state.expire(client, "orders")
    assert 5 <= queue.depth().oldest_ready_age_seconds < 9  # type: ignore[operator]


def test_looking_changes_nothing(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abcdef")
    lease = queue.claim(4)
    lease.nack(lease.messages[0])
    lease.nack(lease.messages[1], delay_seconds=1)
    lease.bury(lease.messages[2])
    state.fall_due(client, "orders")
    state.expire(client, "orders")
    before = state.dumps(client)
    queue.depth()
    for where in ("pending", "returned", "delayed", "dead"):
        queue.peek(state=where)  # type: ignore[call-overload]
    assert state.dumps(client) == before


def test_depth_costs_the_same_at_any_size(queue: RedisMessageQueue, client: redis.Redis) -> None:
    def cost() -> tuple[int, int]:
        client.config_resetstat()
        queue.depth()
        stats = client.info("commandstats")
        return stats["cmdstat_evalsha"]["calls"], sum(stat["calls"] for stat in stats.values())

    queue.publish("a")
    queue.depth()
    small = cost()
    queue.publish_many(str(number) for number in range(20_000))
    queue.claim(10_000)
    assert cost() == small == (1, small[1])


# ---------------------------------------------------------------------- peek


def test_peek_shows_the_next_first(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcdefg")
    lease = queue.claim(6)
    lease.nack(lease.messages[3:1:-1])
    lease.nack(lease.messages[0], delay_seconds=200)
    lease.nack(lease.messages[1], delay_seconds=100)
    lease.bury(lease.messages[4], reason="r")
    lease.bury(lease.messages[5], reason="s")
    queue.publish_many("hijklmnopqrst")

    def shown(where: str, count: int = 10) -> str:
        return "".join(message.text() for message in queue.peek(count, state=where))  # type: ignore[call-overload]

    assert shown("pending") == "ghijklmnop"
    assert shown("pending", 2) == "gh"
    assert shown("returned") == "cd"
    assert shown("delayed") == "ba"
    assert shown("delayed", 1) == "b"
    dead = queue.peek(state="dead")
    assert [letter.message and letter.message.text() for letter in dead] == ["e", "f"]
    assert [letter.reason for letter in dead] == ["r", "s"]
    assert [message.delivery_count for message in queue.peek(2)] == [0, 0], "finished deliveries"
    assert [message.delivery_count for message in queue.peek(state="returned")] == [1, 1]


def test_peek_at_a_foreign_value(queue: RedisMessageQueue, client: redis.Redis) -> None:
    client.lpush(queue.session.keys.pending, b"hello")
    (message,) = queue.peek()
    assert message.size == 5
    with pytest.raises(MalformedStoredMessageError):
        _ = message.id


def test_key_names_for_people(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue("a:b")
    queue.publish({"n": 1})
    assert queue.key.pending == "sluicegate:{a%3Ab}:pending"
    assert client.lrange(queue.key.pending, 0, -1)[0].endswith(b'\x1f\x1f\x1f{"n":1}')
    assert client.hget(queue.key.counters, "published") == b"1"
    assert queue.key.returned == "sluicegate:{a%3Ab}:returned"
