"""A look at a lease: what it says in each state of the lease, and that it changes nothing."""

from __future__ import annotations

from sluicegate import RedisMessageQueue
from sluicegate.spark import _access
from tests.support import state
from tests.support.servers import RedisServer


def test_an_open_lease_shows_its_messages_and_stays_as_it_is(queue: RedisMessageQueue, server: RedisServer) -> None:
    ids = queue.publish_many([{"n": n} for n in range(5)]).ids
    lease = queue.claim(5, lease_id="job/0", lease_seconds=60)
    with server.client() as client:
        before = state.dumps(client)
    seen = _access.read_lease(queue, "job/0", 2, 4)
    assert [message.id for message in _access.messages_in(seen)] == ids[1:4]
    assert [message.slot for message in _access.messages_in(seen)] == [2, 3, 4]
    assert (seen.state, seen.opening, seen.size, seen.held, seen.takeovers) == ("open", lease.opening, 5, 5, 0)
    assert 55 < seen.left_seconds <= 60
    with server.client() as client:
        assert state.dumps(client) == before
    lease.ack()
    assert lease.counts.acked == 5


def test_a_takeover_shows_in_the_delivery_count(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b"])
    queue.claim(2, lease_id="job/0")
    taken = queue.claim(2, lease_id="job/0", take_over_after_seconds=0)
    seen = _access.read_lease(queue, "job/0", 1, 2)
    assert seen.takeovers == 1
    assert (
        [message.delivery_count for message in _access.messages_in(seen)]
        == [2, 2]
        == [m.delivery_count for m in taken.messages]
    )


def test_an_ended_lease_tells_how(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b", "c", "d"])
    lease = queue.claim(4, lease_id="job/0")
    first, second, third, fourth = lease.messages
    lease.ack(first, second)
    lease.bury(third)
    lease.nack(fourth)
    seen = _access.read_lease(queue, "job/0")
    assert (seen.state, seen.how, seen.opening) == ("ended", "acked", lease.opening)
    assert (seen.acked, seen.buried, seen.returned, seen.entries) == (2, 1, 1, [])


def test_an_unknown_lease_and_a_remembered_empty_answer_are_unknown(queue: RedisMessageQueue) -> None:
    assert not queue.claim(1, lease_id="job/1", remember_empty=True)
    assert _access.read_lease(queue, "job/0").state == _access.read_lease(queue, "job/1").state == "unknown"
