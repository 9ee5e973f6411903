"""A look at a lease: what it says in each state of the lease, and that it changes nothing."""

from __future__ import annotations

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.errors import LeaseLostError
from sluicegate.spark import _access
from tests.conformance import state
from tests.conformance.servers import RedisServer


def test_an_open_lease_shows_its_messages_and_stays_as_it_is(queue: RedisMessageQueue, server: RedisServer) -> None:
    ids = queue.publish_many([{"n": n} for n in range(5)]).ids
    lease = queue.claim(5, lease_id="job/0", lease_seconds=60)
    with server.client() as client:
        before = state.dumps(client)
    seen = _access.look(queue, "job/0", 2, 4)
    assert [message.id for message in seen.messages] == ids[1:4]
    assert [message.slot for message in seen.messages] == [2, 3, 4]
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
    seen = _access.look(queue, "job/0", 1, 2)
    assert seen.takeovers == 1
    assert [message.delivery_count for message in seen.messages] == [2, 2] == [m.delivery_count for m in taken.messages]


def test_an_ended_lease_tells_how(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b", "c", "d"])
    lease = queue.claim(4, lease_id="job/0")
    first, second, third, fourth = lease.messages
    lease.ack(first, second)
    lease.bury(third)
    lease.nack(fourth)
    seen = _access.look(queue, "job/0")
    assert (seen.state, seen.how, seen.opening) == ("ended", "acked", lease.opening)
    assert (seen.acked, seen.buried, seen.returned, seen.messages) == (2, 1, 1, [])


def test_an_unknown_lease_and_a_remembered_empty_answer_are_unknown(queue: RedisMessageQueue) -> None:
    assert not queue.claim(1, lease_id="job/1", remember_empty=True)
    assert _access.look(queue, "job/0").state == _access.look(queue, "job/1").state == "unknown"


def test_slots_are_read_in_pages_that_together_are_the_range(queue: RedisMessageQueue) -> None:
    payloads = [f"{n}:" + "x" * 900_000 for n in range(12)]
    queue.publish_many(payloads)
    lease = queue.claim(12, lease_id="job/0")
    pages = list(_access.read_slots(queue, "job/0", lease.opening, 2, 11))
    assert len(pages) > 1
    assert [message.text() for page in pages for message in page] == payloads[1:11]


def test_what_has_its_verdict_cannot_be_read_again(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(3, lease_id="job/0")
    lease.ack(lease.messages[1])
    assert [m.text() for page in _access.read_slots(queue, "job/0", lease.opening, 1, 1) for m in page] == ["a"]
    with pytest.raises(LeaseLostError, match="message 2 of lease 'job/0'") as lost:
        list(_access.read_slots(queue, "job/0", lease.opening, 1, 3))
    assert lost.value.lost == (2,)


def test_the_last_slots_with_a_verdict_are_missed_too(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(3, lease_id="job/0")
    lease.ack(lease.messages[2])
    with pytest.raises(LeaseLostError, match="message 3 of lease"):
        list(_access.read_slots(queue, "job/0", lease.opening, 2, 3))


def test_another_opening_is_refused(queue: RedisMessageQueue, server: RedisServer) -> None:
    queue.publish_many(["a", "b"])
    first = queue.claim(2, lease_id="job/0")
    with server.client() as client:
        state.expire(client, queue.name, "job/0")
    second = queue.claim(2, lease_id="job/0")
    assert second.opening != first.opening
    with pytest.raises(LeaseLostError, match="opened anew"):
        list(_access.read_slots(queue, "job/0", first.opening, 1, 2))
    second.ack()
    with pytest.raises(LeaseLostError, match="it ended: acked"):
        list(_access.read_slots(queue, "job/0", second.opening, 1, 2))
