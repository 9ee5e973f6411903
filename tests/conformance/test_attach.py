"""A lease continues under its handle: in another object, process or task, at no further delivery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
import redis

from sluicegate import (
    AlreadySettledError,
    ConfigurationError,
    EventOperation,
    Lease,
    LeaseEndedError,
    LeaseHandle,
    LeaseLostError,
    QueueDrainedError,
    QueueEvent,
    RedisMessageQueue,
)
from sluicegate.asyncio import Lease as AsyncLease
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from tests.support import state
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]


def texts(lease: Lease) -> list[str]:
    return [message.text() for message in lease.messages]


def handed_on(queue: RedisMessageQueue, count: int = 3, **claim: object) -> LeaseHandle:
    queue.publish_many([str(number) for number in range(count)])
    lease = queue.claim(count, **claim)  # type: ignore[arg-type]
    return LeaseHandle.from_json(lease.detach().to_json())


def test_the_same_messages_uncounted_in_another_object(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(3, lease_id="daily", lease_seconds=90)
    lease.ack(lease.messages[1])
    handle = lease.detach()
    attached = make_queue("orders").attach(handle)
    assert texts(attached) == ["a", "c"], "the slots without a verdict"
    assert [message.delivery_count for message in attached.messages] == [1, 1]
    assert (attached.id, attached.opening, attached.token) == (lease.id, lease.opening, lease.token)
    assert (attached.takeovers, attached.key) == (0, lease.key)
    with attached:
        pass
    depth = queue.depth()
    assert (depth.in_flight, depth.ready, depth.claimed_total) == (0, 0, 3)


def test_the_handle_is_small_text_that_opens_nothing_else(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    queue.publish_many(["a secret", "b"])
    lease = queue.claim(1, lease_seconds=90)
    handle = lease.detach(120)
    values = handle.to_dict()
    place = "orders/billing" if queue.session.keys.group else "orders"
    assert values == {"queue": place, "id": lease.id, "token": lease.token.decode(), "lease_seconds": "120.0"}
    assert LeaseHandle.from_dict(json.loads(json.dumps(values))) == handle
    assert handle.token not in repr(handle)
    queue.attach(handle).ack()
    with pytest.raises(LeaseEndedError):
        queue.attach(handle)
    assert queue.depth().ready == 1, "an attachment never opens anything"


@pytest.mark.parametrize("end", ["close", "shutdown", "block", "failing block"])
def test_nothing_of_the_old_object_releases_a_detached_lease(make_queue: MakeQueue, end: str) -> None:
    queue = make_queue("orders")
    queue.publish("a")
    lease = queue.claim(1, heartbeat=end != "close")
    if end in ("block", "failing block"):
        try:
            with lease:
                handle = lease.detach()
                if end == "failing block":
                    raise RuntimeError
        except RuntimeError:
            pass
    else:
        handle = lease.detach()
    assert queue.shutdown(0) is True, "it holds nothing any more"
    if end == "close":
        queue.close()
    other = make_queue("orders")
    assert other.depth().in_flight == 1
    other.attach(handle).ack()


def test_the_detached_object_beats_no_more_and_its_methods_raise(make_queue: MakeQueue) -> None:
    beats: list[QueueEvent] = []
    queue = make_queue(
        "orders", on_event=lambda event: beats.append(event) if event.operation is EventOperation.EXTEND else None
    )
    queue.publish("a")
    lease = queue.claim(1, lease_seconds=0.6)
    lease.start_heartbeat(0.05)
    wait_until(lambda: len(beats) > 1, "the heartbeat runs")
    lease.detach(30)
    del beats[:]
    for use in (lease.ack, lease.nack, lease.release, lease.bury, lease.extend, lease.start_heartbeat, lease.detach):
        with pytest.raises(AlreadySettledError, match=r"was detached from this object; continue with queue\.attach"):
            use()
    assert lease.lost is False
    assert not lease._heartbeat.is_running  # type: ignore[union-attr]
    assert beats == []


def test_an_attachment_is_extended_in_the_background(make_queue: MakeQueue) -> None:
    beats: list[QueueEvent] = []
    queue = make_queue(
        "orders", on_event=lambda event: beats.append(event) if event.operation is EventOperation.EXTEND else None
    )
    handle = handed_on(queue, lease_seconds=0.3)
    del beats[:]
    attached = queue.attach(handle)
    wait_until(lambda: len(beats) > 3, "it lives longer than its lease")
    attached.ack()
    quiet = handed_on(queue, lease_seconds=30)
    assert queue.attach(quiet, heartbeat=False)._heartbeat is None


def test_a_keeper_extends_without_reading_messages(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue, lease_seconds=30)
    queue.extend(handle, 500)
    assert 490 < (queue.depth().next_expiry_seconds or 0) <= 500
    queue.extend(handle)
    assert 20 < (queue.depth().next_expiry_seconds or 0) <= 30
    queue.attach(handle).ack()
    with pytest.raises(LeaseEndedError, match="cannot be extended: it has ended: 3 messages acked") as caught:
        queue.extend(handle)
    assert (caught.value.acked, caught.value.operation) == (3, "extend")


# ---------------------------------------------------------------------- what became of it


def test_a_lease_whose_work_is_done_says_so_with_its_counts(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue, 4)
    attached = queue.attach(handle)
    first, second, *_ = attached.messages
    attached.bury(first)
    attached.nack(second)
    attached.ack()
    with pytest.raises(LeaseEndedError, match="2 messages acked, 1 returned, 1 buried") as caught:
        make_queue("orders").attach(handle)
    assert (caught.value.acked, caught.value.returned, caught.value.buried) == (2, 1, 1)
    assert (caught.value.queue, caught.value.lease_id, caught.value.operation) == ("orders", handle.id, "attach")


def test_one_message_under_an_id_of_the_library_is_remembered_too(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue, 1)
    queue.attach(handle).ack()
    with pytest.raises(LeaseEndedError, match="1 messages acked"):
        queue.attach(handle)


def expire(queue: RedisMessageQueue, client: redis.Redis) -> str:
    state.expire(client, "orders")
    assert queue.claim(3)
    return "has expired, and its messages are or will be delivered again"


def take_over(queue: RedisMessageQueue, client: redis.Redis) -> str:
    assert queue.claim(3, lease_id="daily", take_over_after_seconds=0).takeovers == 1
    return "another consumer has taken it over"


def open_anew(queue: RedisMessageQueue, client: redis.Redis) -> str:
    state.expire(client, "orders")
    assert queue.claim(3, lease_id="daily")
    return "has ended or expired, and its id was claimed anew"


def delete(queue: RedisMessageQueue, client: redis.Redis) -> str:
    client.flushall()
    return "has expired, or its end is no longer remembered"


@pytest.mark.parametrize("happens", [expire, take_over, open_anew, delete])
def test_a_lost_lease_says_why_and_nothing_is_opened(
    make_queue: MakeQueue, client: redis.Redis, happens: Callable[[RedisMessageQueue, redis.Redis], str]
) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue, lease_id="daily")
    why = happens(queue, client)
    before = queue.depth().claimed_total
    for use in (queue.attach, queue.extend):
        with pytest.raises(LeaseLostError, match=why) as caught:
            use(handle)
        assert not isinstance(caught.value, LeaseEndedError)
    assert queue.depth().claimed_total == before


def test_an_expired_lease_that_nobody_reaped_goes_on(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue)
    state.expire(client, "orders")
    with queue.attach(handle) as lease:
        assert len(lease) == 3
    assert queue.depth().ready == 0


def test_a_lease_over_its_longest_life_cannot_be_detached_or_attached(make_queue: MakeQueue) -> None:
    queue = make_queue("orders", max_lease_seconds=300)
    handle = handed_on(queue)
    short = make_queue("orders", visibility_timeout_seconds=0.01, heartbeat_interval_seconds=0, max_lease_seconds=0.01)
    wait_until(lambda: _refuses(short, handle), "its longest life is over")


def _refuses(queue: RedisMessageQueue, handle: LeaseHandle) -> bool:
    try:
        queue.extend(handle)
    except LeaseLostError as error:
        return "longest life" in str(error)
    return False


# ---------------------------------------------------------------------- two at once


def test_two_attachments_converge_on_the_first_verdict_of_each_message(make_queue: MakeQueue) -> None:
    queue, other = make_queue("orders"), make_queue("orders")
    handle = handed_on(queue)
    one, two = queue.attach(handle), other.attach(handle)
    assert texts(one) == texts(two) == ["0", "1", "2"]
    one.ack(one.messages[0])
    one.nack(one.messages[1])
    two.ack(two.messages[0])  # the same verdict again counts as done
    with pytest.raises(LeaseLostError) as caught:
        two.ack(two.messages[1])
    assert caught.value.lost == (2,)
    two.ack(two.messages[2])
    one.ack(one.messages[2])
    depth = queue.depth()
    assert (depth.in_flight, depth.returned, queue.stats().acked) == (0, 1, 2)


# ---------------------------------------------------------------------- what cannot work


def test_what_cannot_be_detached_says_so(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue("orders")
    with pytest.raises(AlreadySettledError, match=r"holds no message without a verdict \(empty\)"):
        queue.claim(1).detach()
    queue.publish_many(["a", "b"])
    done = queue.claim(1)
    done.ack()
    with pytest.raises(AlreadySettledError, match="holds no message without a verdict"):
        done.detach()
    lost = queue.claim(1)
    state.expire(client, "orders")
    assert len(queue.claim(1)) == 1
    with pytest.raises(LeaseLostError, match="it is lost"):
        lost.detach()


def test_what_cannot_be_attached_says_so(make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    handle = handed_on(queue)
    with pytest.raises(
        ConfigurationError, match=r"the handle is of queue 'orders(/billing)?', and this is queue 'other(/billing)?'"
    ):
        make_queue("other").attach(handle)
    with pytest.raises(ConfigurationError, match="attach takes a LeaseHandle, not a dict"):
        queue.attach(handle.to_dict())  # type: ignore[arg-type]
    at_most_once = make_queue("orders", visibility_timeout_seconds=None, max_delivery_count=None)
    with pytest.raises(ConfigurationError, match="so nothing stays in a lease to attach"):
        at_most_once.attach(handle)
    closed = make_queue("orders")
    closed.close()
    with pytest.raises(QueueDrainedError, match="make a new object to attach a lease"):
        closed.attach(handle)


def test_an_event_reports_each_attachment(make_queue: MakeQueue) -> None:
    events: list[QueueEvent] = []
    queue = make_queue("orders", on_event=events.append)
    handle = handed_on(queue)
    queue.attach(handle).ack()
    with pytest.raises(LeaseEndedError):
        queue.attach(handle)
    told = [(str(event.outcome), event.count) for event in events if event.operation is EventOperation.ATTACH]
    assert told == [("success", 3), ("lost", 0)]


def test_a_detach_cancelled_half_way_leaves_the_lease_to_its_block(
    server: RedisServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody got the handle, so the messages are released at once instead of waiting for the lease to expire."""

    async def detached_in_a_block(lease: AsyncLease) -> None:
        async with lease:
            await lease.detach()

    async def cancelled() -> None:
        monkeypatch.undo()
        raise asyncio.CancelledError

    async def main() -> None:
        async with AsyncQueue("orders", url=server.url) as queue:
            await queue.publish("a")
            lease = await queue.claim(1)
            monkeypatch.setattr(lease, "stop_heartbeat", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await detached_in_a_block(lease)
            depth = await queue.depth()
            assert (depth.ready, depth.in_flight) == (1, 0)

    asyncio.run(main())
