"""Consumers of other libraries share a group: what they leave behind is adopted, and what anyone holds is shown."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from sluicegate.core.keys import GroupKeys
from sluicegate.core.transitions.adopt import adopt_call
from sluicegate.errors import LeaseLostError
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support import state
from tests.support.core_calls import Core
from tests.support.flavours import MakeGroup, MakeStream
from tests.support.waiting import wait_until

KEYS = GroupKeys("orders", "billing")
STREAM = KEYS.stream


@pytest.fixture
def stream(make_stream: MakeStream) -> RedisStreamQueue:
    """Return a stream with six messages, and the group `billing` at its beginning."""
    stream = make_stream()
    stream.publish_many("abcdef")
    return stream


@pytest.fixture
def group(make_group: MakeGroup, stream: RedisStreamQueue) -> ConsumerGroup:
    """Return that group, which adopts what is silent for 10 s."""
    made = make_group(visibility_timeout_seconds=10, consumer="ours", max_delivery_count=3)
    made.create("beginning")
    return made


def read(client: redis.Redis, consumer: str, count: int) -> list[str]:
    """Read as a client of another library; return the ids."""
    ((_, entries),) = client.xreadgroup("billing", consumer, {STREAM: ">"}, count=count)
    return [entry.decode() for entry, _ in entries]


def age(client: redis.Redis, consumer: str, ids: list[str], seconds: float, deliveries: int = 1) -> None:
    """Make entries of a consumer as old as that."""
    client.xclaim(STREAM, "billing", consumer, 0, ids, idle=int(seconds * 1000), retrycount=deliveries, justid=True)


def texts(lease: object) -> str:
    return "".join(message.text() for message in lease.messages)  # type: ignore[attr-defined]


def test_the_two_kinds_of_consumers_share_the_messages(group: ConsumerGroup, client: redis.Redis) -> None:
    ids = read(client, "node", 2)
    lease = group.claim(2)
    rest = read(client, "node", 9)
    assert texts(lease) == "cd"
    assert [*ids, *(message.id for message in lease.messages), *rest] == [
        entry.decode() for entry, _ in client.xrange(STREAM)
    ]
    assert group.lag() == 0
    assert client.xack(STREAM, "billing", lease.messages[0].id) == 0  # it is not with Redis's list
    lease.ack()
    assert client.xack(STREAM, "billing", *ids, *rest) == 4
    assert (group.depth().ready, group.pending()) == (0, [])


def test_what_a_dead_consumer_held_is_adopted_with_its_count(group: ConsumerGroup, client: redis.Redis) -> None:
    ids = read(client, "node", 3)
    age(client, "node", ids[:2], 11)
    lease = group.claim(9, heartbeat=False)
    assert texts(lease) == "ab"  # tried messages do not mix with others
    assert [message.delivery_count for message in lease.messages] == [2, 2]
    assert group.stats().claimed == 2
    assert texts(group.claim(9, heartbeat=False)) == "def"
    (left,) = client.xpending_range(STREAM, "billing", "-", "+", 9)
    assert left["message_id"].decode() == ids[2]


def test_an_adopted_poison_message_gets_its_last_delivery_alone(group: ConsumerGroup, client: redis.Redis) -> None:
    ids = read(client, "node", 2)
    age(client, "node", ids, 11, deliveries=70_000)
    lease = group.claim(9, heartbeat=False)
    assert texts(lease) == "a"
    assert lease.messages[0].delivery_count == 3
    state.expire(client, "orders", group="billing")
    assert texts(group.claim(9, heartbeat=False)) == "b"
    (dead,) = group.peek(state="dead")
    assert (dead.id, dead.reason) == (ids[0], "max_delivery_count")


def test_an_entry_that_was_deleted_meanwhile_leaves_the_list(group: ConsumerGroup, client: redis.Redis) -> None:
    ids = read(client, "node", 2)
    client.xdel(STREAM, ids[0])
    age(client, "node", ids, 11)
    assert texts(group.claim(9)) == "b"
    assert client.xpending(STREAM, "billing")["pending"] == 0


def test_an_adoption_looks_at_bounded_pages_and_comes_to_the_end(group: ConsumerGroup, client: redis.Redis) -> None:
    ids = read(client, "node", 5)
    age(client, "node", ids[4:], 11)
    core = Core(client, most=3, stale_seconds=10)
    core.keys = KEYS
    adopted = [core.do(adopt_call(KEYS, core.rules, step=2)) for _ in range(3)]
    assert [(one.returned, one.more) for one in adopted] == [(0, True), (0, True), (1, False)]
    age(client, "node", ids[:1], 11)
    again = core.do(adopt_call(KEYS, core.rules, step=2))  # begins anew
    assert (again.returned, again.more) == (1, True)
    assert group.repair().counters == 0


def test_a_group_that_delivers_at_most_once_adopts_nothing(
    make_group: MakeGroup, stream: RedisStreamQueue, client: redis.Redis
) -> None:
    group = make_group(visibility_timeout_seconds=None, max_delivery_count=None)
    group.create("beginning")
    age(client, "node", read(client, "node", 2), 1000)
    assert texts(group.claim(9)) == "cdef"
    assert client.xpending(STREAM, "billing")["pending"] == 2


def test_pending_shows_who_holds_what(group: ConsumerGroup, make_group: MakeGroup, client: redis.Redis) -> None:
    foreign = read(client, "node", 2)
    age(client, "node", foreign[:1], 4, deliveries=7)
    lease = group.claim(2, lease_id="run-1", lease_seconds=50)
    other = make_group(consumer="theirs").claim(1, lease_id="run-2", lease_seconds=100)

    listed = group.pending()

    ours = [*(message.id for message in lease.messages), other.messages[0].id]
    assert [one.id for one in listed] == [*ours, *foreign]
    assert [one.consumer for one in listed] == ["ours", "ours", "theirs", "node", "node"]
    assert [one.lease_id for one in listed] == ["run-1", "run-1", "run-2", None, None]
    assert [one.foreign for one in listed] == [False, False, False, True, True]
    assert [one.delivery_count for one in listed] == [1, 1, 1, 7, 1]
    assert 4 <= listed[3].idle_seconds < 9
    assert 0 <= listed[0].idle_seconds < 5
    assert [one.id for one in group.pending(4)] == [*ours, foreign[0]]
    assert [one.id for one in group.pending(consumer="node")] == foreign
    assert [one.id for one in group.pending(consumer="theirs")] == ours[2:]

    summary = group.pending_summary()
    assert (summary.count, summary.min_id, summary.max_id) == (5, foreign[0], other.messages[0].id)
    assert summary.by_consumer == {"ours": 2, "theirs": 1, "node": 2}
    assert [(one.name, one.pending, one.foreign) for one in group.consumers()] == [
        ("ours", 2, False),
        ("theirs", 1, False),
        ("node", 2, True),
    ]


def test_a_group_with_nothing_pending_says_so(group: ConsumerGroup) -> None:
    summary = group.pending_summary()
    assert (summary.count, summary.min_id, summary.max_id, summary.by_consumer) == (0, None, None, {})
    assert group.pending() == group.consumers() == []


def test_removing_a_consumer_loses_nothing_of_what_it_held(
    group: ConsumerGroup, make_group: MakeGroup, client: redis.Redis
) -> None:
    read(client, "node", 2)
    dead = make_group(consumer="dead").claim(2, heartbeat=False)
    alive = group.claim(1, heartbeat=False)
    assert group.remove_consumer("dead") == 2
    assert group.remove_consumer("node") == 2
    assert group.remove_consumer("unknown") == 0
    assert client.xinfo_consumers(STREAM, "billing") == []
    found = "".join(texts(lease) for lease in itertools.takewhile(bool, (group.claim(9) for _ in range(9))))
    assert sorted(found) == ["a", "b", "c", "d", "f"]
    assert texts(alive) == "e"
    alive.ack()
    with pytest.raises(LeaseLostError):
        dead.ack()


def test_a_waiting_claim_notices_what_another_client_appends(group: ConsumerGroup, client: redis.Redis) -> None:
    group.claim(9).ack()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(group.claim, wait_seconds=20)
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "it waits")
        began = time.monotonic()
        client.xadd(STREAM, {"data": "x"})
        assert texts(waiting.result(10)) == "x"
    assert time.monotonic() - began < 4
