"""What every way of reaching Redis must give: thirty behaviours, written once."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import redis

from sluicegate import LeaseLostError, LeaseState, NotDurableError, QueueBackpressureError, replicated
from sluicegate.core.keys import QueueKeys
from tests.support import state
from tests.support.waiting import wait_until
from tests.topologies.ways import QueueMaker, Way


@pytest.fixture
def queue(make: QueueMaker) -> Any:
    return make()


def texts(lease: Any) -> list[str]:
    return [message.text() for message in lease.messages]


def held(queue: Any) -> int:
    """Return how many messages the queue has that are not dead."""
    depth = queue.depth()
    return int(depth.ready + depth.delayed + depth.in_flight)


# ---------------------------------------------------------------------- publish


def test_a_published_message_is_claimed_and_acked(queue: Any) -> None:
    assert queue.publish({"id": 1, "name": "Grüße"}, headers={"trace": "t1"}) is True
    with queue.claim(5) as lease:
        assert [message.json() for message in lease] == [{"id": 1, "name": "Grüße"}]
        assert lease.messages[0].headers == {"trace": "t1"}
    assert lease.counts.acked == 1
    assert held(queue) == 0


def test_a_duplicate_is_refused_until_its_key_is_forgotten(make: QueueMaker) -> None:
    queue = make(get_deduplication_key="id")
    assert [queue.publish({"id": 7}) for _ in range(2)] == [True, False]
    assert queue.forget("7") is True
    assert queue.publish({"id": 7}) is True


def test_many_messages_in_several_calls_keep_their_order(queue: Any) -> None:
    numbers = [str(number) for number in range(2500)]
    assert queue.publish_many(numbers).accepted == 2500
    with queue.claim(3000) as lease:
        assert texts(lease) == numbers


def test_a_key_held_until_its_message_ends(make: QueueMaker) -> None:
    queue = make(get_deduplication_key="id", deduplication_policy="until_acked")
    assert [queue.publish({"id": 7}) for _ in range(2)] == [True, False]
    queue.claim().ack()
    assert queue.publish({"id": 7}) is True


def test_bytes_come_back_as_they_went(queue: Any) -> None:
    queue.publish(bytes(range(256)))
    with queue.claim() as lease:
        assert lease.messages[0].payload == bytes(range(256))


def test_a_full_queue_refuses(make: QueueMaker) -> None:
    queue = make(max_pending_length=2)
    queue.publish_many(["a", "b"])
    with pytest.raises(QueueBackpressureError):
        queue.publish("c")
    assert queue.depth().ready == 2


def test_replicas_that_are_not_there_confirm_nothing(queue: Any) -> None:
    with pytest.raises(NotDurableError):
        queue.publish("a", durability=replicated(5, timeout_seconds=0.05))
    assert queue.depth().ready == 1, "it is stored all the same"


# ---------------------------------------------------------------------- leases


def test_an_empty_queue_gives_an_empty_lease(queue: Any) -> None:
    lease = queue.claim(5)
    assert (bool(lease), lease.state) == (False, LeaseState.EMPTY)


def test_a_repeated_claim_finds_its_own_lease_in_another_hand(queue: Any) -> None:
    queue.publish("a")
    assert texts(queue.claim(lease_id="job")) == ["a"]
    assert queue.claim(lease_id="job").state is LeaseState.HELD


def test_a_takeover_leaves_the_first_holder_without(queue: Any) -> None:
    queue.publish("a")
    first = queue.claim(lease_id="job")
    second = queue.claim(lease_id="job", take_over_after_seconds=0)
    assert (texts(second), second.messages[0].delivery_count) == (["a"], 2)
    with pytest.raises(LeaseLostError):
        first.ack()
    second.ack()
    assert queue.claim(lease_id="job").state is not LeaseState.OPEN


def test_an_expired_lease_is_delivered_again_and_refused_to_its_holder(queue: Any, inside: redis.Redis) -> None:
    queue.publish("a")
    late = queue.claim()
    state.expire(inside, "orders")
    again = queue.claim()
    assert (texts(again), again.messages[0].delivery_count) == (["a"], 2)
    with pytest.raises(LeaseLostError):
        late.ack()
    again.ack()


def test_an_extension_moves_the_deadline(queue: Any, inside: redis.Redis) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=30)
    key = QueueKeys("orders").leases
    before = inside.zrange(key, 0, -1, withscores=True)[0][1]
    lease.extend(3000)
    assert inside.zrange(key, 0, -1, withscores=True)[0][1] > before + 2_000_000
    lease.ack()


def test_heartbeats_keep_a_lease(queue: Any, inside: redis.Redis) -> None:
    queue.publish("a")
    key = QueueKeys("orders").leases
    with queue.claim(lease_seconds=30) as lease:
        lease.start_heartbeat(0.1)
        first = inside.zrange(key, 0, -1, withscores=True)[0][1]
        wait_until(lambda: inside.zrange(key, 0, -1, withscores=True)[0][1] > first + 600, "several beats")


# ---------------------------------------------------------------------- verdicts


def test_a_nacked_message_comes_back_counted(queue: Any) -> None:
    queue.publish("a")
    queue.claim().nack(error="no luck")
    assert [message.delivery_count for message in queue.claim().messages] == [2]


def test_a_released_message_comes_back_uncounted(queue: Any) -> None:
    queue.publish("a")
    queue.claim().release()
    assert [message.delivery_count for message in queue.claim().messages] == [1]


def test_a_buried_message_is_a_dead_letter_with_its_error(queue: Any) -> None:
    queue.publish("a")
    queue.claim().bury(error=ValueError("bad"))
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("buried", "ValueError", "bad")


def test_the_last_delivery_buries(make: QueueMaker) -> None:
    queue = make(max_delivery_count=2)
    queue.publish("a")
    for _ in range(2):
        queue.claim().nack()
    assert (queue.depth().dead, held(queue)) == (1, 0)


def test_messages_of_one_lease_with_several_verdicts(queue: Any) -> None:
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(3)
    done, failed, hopeless = lease.messages
    lease.ack(done)
    lease.nack(failed)
    lease.bury(hopeless)
    assert (queue.depth().returned, queue.depth().dead, queue.depth().in_flight) == (1, 1, 0)


def test_a_dead_letter_is_redriven(queue: Any) -> None:
    queue.publish("a")
    queue.claim().bury()
    assert queue.redrive().redriven == 1
    assert texts(queue.claim()) == ["a"]


def test_a_poison_message_in_a_batch_is_buried_alone(make: QueueMaker, inside: redis.Redis) -> None:
    queue = make(max_delivery_count=3)
    queue.publish_many(["poison", *"abcdefgh"])
    for _ in range(60):
        lease = queue.claim(100)
        if not lease:
            break
        if "poison" in texts(lease):
            state.expire(inside, "orders")  # its worker crashed
        else:
            lease.ack()
    assert [(dead.message.text(), dead.reason) for dead in queue.peek(state="dead")] == [
        ("poison", "max_delivery_count")
    ]
    assert held(queue) == 0


# ---------------------------------------------------------------------- time


def test_a_delayed_message_waits_until_it_is_due(queue: Any, inside: redis.Redis) -> None:
    queue.publish("a", delay_seconds=600)
    assert not queue.claim()
    assert queue.depth().delayed == 1
    state.fall_due(inside, "orders")
    assert texts(queue.claim()) == ["a"]


def test_a_nack_with_a_delay_waits_too(queue: Any, inside: redis.Redis) -> None:
    queue.publish("a")
    queue.claim().nack(delay_seconds=600)
    assert not queue.claim()
    state.fall_due(inside, "orders")
    assert texts(queue.claim()) == ["a"]


def test_a_publish_wakes_who_waits(make: QueueMaker, inside: redis.Redis) -> None:
    waiting, publishing = make(), make()
    got: list[list[str]] = []
    thread = threading.Thread(target=lambda: got.append(texts(waiting.claim(wait_seconds=60))))
    started = time.monotonic()
    thread.start()
    wait_until(lambda: inside.info("clients")["blocked_clients"], "somebody waits")
    publishing.publish("a")
    thread.join(timeout=30)
    assert (got, time.monotonic() - started < 20) == ([["a"]], True)


def test_a_wait_ends_when_its_time_is_up(queue: Any) -> None:
    started = time.monotonic()
    assert not queue.claim(wait_seconds=0.3)
    assert 0.25 < time.monotonic() - started < 10


# ---------------------------------------------------------------------- handlers, looking and stopping


def test_process_message_acks_what_succeeds(make: QueueMaker, way: Way) -> None:
    queue = make(message_wait_interval_seconds=0)
    queue.publish("a")
    with queue.process_message() as payload:
        assert payload == way.flavour.shown(b"a")
    with queue.process_message() as payload:
        assert payload is None


def test_process_message_returns_what_fails(make: QueueMaker) -> None:
    queue = make(message_wait_interval_seconds=0)
    queue.publish("a")
    with pytest.raises(ZeroDivisionError), queue.process_message():
        1 / 0  # noqa: B018
    assert queue.depth().delayed == 1


def test_history_and_counters(make: QueueMaker) -> None:
    queue = make(enable_completed_queue=True, enable_failed_queue=True)
    queue.publish("a")
    queue.claim().nack(error=ValueError("bad"))
    queue.claim().ack()
    assert [record.message.text() for record in queue.peek(state="completed")] == ["a"]
    assert [record.error_type for record in queue.peek(state="failed")] == ["ValueError"]
    assert queue.stats().acked == 1


def test_peek_shows_and_takes_nothing(queue: Any) -> None:
    queue.publish_many(["a", "b"])
    assert [message.text() for message in queue.peek(1, state="pending")] == ["a"]
    assert queue.depth().ready == 2


def test_cancel_and_purge(queue: Any) -> None:
    first, *_ = queue.publish_many(["a", "b", "c"]).ids
    assert queue.cancel([first]) == [first]
    assert queue.purge("pending") == 2
    assert held(queue) == 0


def test_repair_finds_nothing_to_mend_where_all_agrees(queue: Any) -> None:
    queue.publish_many(["a", "b", "c"])
    queue.claim(2)
    report = queue.repair()
    assert (report.mended, report.recounted) == (0, True)
    assert held(queue) == 3
    assert queue.depth().in_flight == 2


def test_a_paused_queue_gives_nothing_until_it_is_resumed(queue: Any) -> None:
    queue.publish("a")
    queue.pause()
    assert not queue.claim()
    queue.resume()
    assert texts(queue.claim()) == ["a"]


def test_close_releases_what_is_held(queue: Any, make: QueueMaker) -> None:
    queue.publish("a")
    lease = queue.claim()
    queue.close()
    assert lease.lost is False
    assert texts(make().claim()) == ["a"]


# ---------------------------------------------------------------------- batches


def test_a_batch_is_waited_for_until_its_last_message_ends(queue: Any, inside: redis.Redis) -> None:
    batch = queue.batch([str(number) for number in range(1200)], batch_id="load")
    assert queue.batch([str(number) for number in range(1200)], batch_id="load").report == batch.report
    ended: list[Any] = []
    waiter = threading.Thread(target=lambda: ended.append(batch.wait(60)))
    waiter.start()
    wait_until(lambda: any(one["cmd"] == "xread" for one in inside.client_list()), "somebody waits")
    begun = time.monotonic()
    while lease := queue.claim(500):
        lease.ack()
    waiter.join(60)
    assert time.monotonic() - begun < 8, "it was woken, and did not find out later"
    assert (ended[0].total, ended[0].done, ended[0].is_complete) == (1200, 1200, True)
