"""A batch as a unit: it completes when all of its messages have ended, whoever handled them and however often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from sluicegate import BatchChangedError, BatchStatus, RedisMessageQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError, QueueBackpressureError
from tests.support import markers, state
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

MakeQueue = Callable[..., Any]
KEYS = QueueKeys("orders")


class Stopped(Exception):
    pass


def counts(status: BatchStatus) -> tuple[int, int, int, int, int, int, int]:
    return (
        status.total, status.waiting, status.delayed, status.in_flight, status.done, status.dead, status.gone
    )  # fmt: skip


def numbers(count: int, stop_at: int | None = None) -> Iterator[dict[str, int]]:
    for number in range(count):
        if number == stop_at:
            raise Stopped
        yield {"id": number}


def test_it_counts_its_messages_and_completes(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id", max_delivery_count=None)
    queue.publish({"id": 1})
    before = datetime.now(UTC) - timedelta(seconds=60)
    batch = queue.batch(numbers(8), batch_id="load 2026-11-29")
    assert (batch.report.accepted, batch.report.duplicates) == (7, 1)
    assert counts(batch.status()) == (7, 7, 0, 0, 0, 0, 0)
    lease = queue.claim(8)
    assert counts(batch.status()) == (7, 0, 0, 7, 0, 0, 0)
    mine = [message for message in lease.messages if ":" in message.id]
    lease.ack(mine[0])
    lease.nack(mine[1])
    lease.nack(mine[2], delay_seconds=1000)
    lease.bury(mine[3])
    assert counts(batch.status()) == (7, 1, 1, 3, 1, 1, 0)
    assert queue.cancel([mine[1].id, mine[2].id]) == [mine[1].id, mine[2].id]
    assert counts(batch.status()) == (7, 0, 0, 3, 1, 1, 2)
    assert not batch.wait(0).is_complete
    lease.ack()
    status = batch.status()
    assert counts(status) == (7, 0, 0, 0, 4, 1, 2)
    assert status.ended == status.total
    assert status.is_complete
    assert status.completed_at is not None
    assert before < status.completed_at


def test_a_batch_without_messages_completes_at_once(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish({"id": 0})
    assert counts(queue.batch([]).wait()) == (0, 0, 0, 0, 0, 0, 0)
    of_duplicates = queue.batch([{"id": 0}])
    assert of_duplicates.wait().is_complete
    assert of_duplicates.id != queue.batch([]).id


def test_a_repeat_publishes_the_rest_and_seals(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with pytest.raises(Stopped) as stopped:
        queue.batch(numbers(2500, stop_at=1800), batch_id="b")
    assert "batch_id='b' publishes the rest" in stopped.value.__notes__[0]
    batch = queue.get_batch("b")
    assert counts(batch.status()) == (1000, 1000, 0, 0, 0, 0, 0)
    while lease := queue.claim(1000):
        lease.ack()
    assert not batch.status().sealed
    assert not batch.wait(0).is_complete, "all that was published has ended, but the publish has not"
    again = queue.batch(numbers(2500), batch_id="b")
    assert (again.report.accepted, len(set(again.report.ids))) == (2500, 2500)
    assert counts(again.status()) == (2500, 1500, 0, 0, 1000, 0, 0)
    report = queue.batch(numbers(2500), batch_id="b").report
    assert report == again.report
    assert queue.depth().published_total == 2500
    while lease := queue.claim(1000):
        lease.ack()
    assert counts(batch.wait(0)) == (2500, 0, 0, 0, 2500, 0, 0)


def test_a_repeat_after_the_end_starts_no_second_batch(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.batch(["a", "b"], batch_id="b")
    queue.claim(2).ack()
    ended = queue.get_batch("b").status()
    assert queue.batch(["a", "b"], batch_id="b").status() == ended
    assert queue.depth().ready == 0


@pytest.mark.parametrize("others", [["a"], ["a", "b", "c"], ["a"] * 1001, []], ids=len)
def test_a_repeat_with_other_messages_is_refused(make_queue: MakeQueue, others: list[str]) -> None:
    queue = make_queue()
    queue.batch(["a", "b"], batch_id="b")
    with pytest.raises(BatchChangedError, match="another batch_id"):
        queue.batch(others, batch_id="b")
    assert counts(queue.get_batch("b").status()) == (2, 2, 0, 0, 0, 0, 0)
    assert queue.depth().ready == 2


def test_a_sealed_batch_takes_no_further_call(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.batch(numbers(1000), batch_id="b")
    with pytest.raises(BatchChangedError):
        queue.batch(numbers(1001), batch_id="b")
    assert queue.depth().ready == 1000


def test_a_batch_that_the_cap_refused_can_be_repeated(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending_length=3)
    queue.publish_many("xy")
    with pytest.raises(QueueBackpressureError):
        queue.batch("ab", batch_id="b")
    assert counts(queue.get_batch("b").status()) == (0, 0, 0, 0, 0, 0, 0)
    assert not queue.get_batch("b").status().is_complete
    queue.claim(2).ack()
    assert queue.batch("ab", batch_id="b").status().waiting == 2


def test_a_batch_that_is_not_known(make_queue: MakeQueue) -> None:
    status = make_queue().get_batch("never").wait()
    assert status == BatchStatus("never", exists=False)
    assert not status.is_complete
    with pytest.raises(ConfigurationError, match="empty"):
        make_queue().get_batch("")


def test_a_redrive_reopens_it(make_queue: MakeQueue) -> None:
    queue = make_queue()
    batch = queue.batch("abc", batch_id="b")
    with queue.claim(3) as lease:
        lease.bury(lease.messages[1])
    first = batch.wait(0)
    assert counts(first) == (3, 0, 0, 0, 2, 1, 0)
    assert first.is_complete
    assert queue.redrive().redriven == 1
    assert counts(batch.status()) == (3, 1, 0, 0, 2, 0, 0)
    assert not batch.status().is_complete
    queue.claim(1).ack()
    again = batch.status()
    assert counts(again) == (3, 0, 0, 0, 3, 0, 0)
    assert again.completed_at is not None
    assert first.completed_at is not None
    assert again.completed_at >= first.completed_at


def test_batches_share_a_lease(make_queue: MakeQueue) -> None:
    queue = make_queue()
    one, other = queue.batch("ab", batch_id="one"), queue.batch("cd", batch_id="other")
    queue.publish("alone")
    queue.claim(3).release()
    assert (counts(one.status()), counts(other.status())) == ((2, 2, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0))
    queue.claim(5).ack()
    assert (counts(one.status()), counts(other.status())) == ((2, 0, 0, 0, 2, 0, 0), (2, 0, 0, 0, 2, 0, 0))


def test_a_crash_of_its_consumer_does_not_end_it(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(max_delivery_count=2)
    batch = queue.batch("ab", batch_id="b")
    lease = queue.claim(2)
    lease.ack(lease.messages[0])
    state.expire(client, "orders")
    assert counts(batch.status()) == (2, 0, 0, 1, 1, 0, 0)
    lease = queue.claim(2)
    assert counts(batch.status()) == (2, 0, 0, 1, 1, 0, 0)
    state.expire(client, "orders")
    assert not queue.claim(2)
    assert counts(batch.status()) == (2, 0, 0, 0, 1, 1, 0)
    assert batch.status().is_complete


def test_what_fails_after_an_ack_ahead_is_gone(make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout_seconds=None, max_delivery_count=None)
    batch = queue.batch("ab", batch_id="b")
    assert queue.process_message_callback(lambda payload: None)
    with pytest.raises(Stopped), queue.process_message():
        raise Stopped
    assert counts(batch.status()) == (2, 0, 0, 0, 1, 0, 1)


def test_messages_for_later_are_delayed(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    batch = queue.batch("ab", batch_id="b", delay_seconds=1000)
    assert counts(batch.status()) == (2, 0, 2, 0, 0, 0, 0)
    state.fall_due(client, "orders")
    queue.claim(1)
    assert counts(batch.status()) == (2, 1, 0, 1, 0, 0, 0)


def test_until_acked_keys_are_freed_as_before(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="id", deduplication_policy="until_acked")
    batch = queue.batch(numbers(3), batch_id="b")
    assert len(markers.held(client, queue.session.keys)) == 3
    queue.claim(3).ack()
    assert markers.held(client, queue.session.keys) == {}
    assert batch.status().is_complete


@pytest.mark.parametrize("state_of", ["pending", "delayed", "dead"])
def test_a_purge_ends_its_messages(make_queue: MakeQueue, state_of: str) -> None:
    queue = make_queue()
    batch = queue.batch("ab", batch_id="b", delay_seconds=1000 if state_of == "delayed" else 0)
    if state_of == "dead":
        queue.claim(2).bury()
    assert queue.purge(state_of) == 2
    assert counts(batch.status()) == (2, 0, 0, 0, 0, 0, 2)
    assert batch.status().is_complete


def test_caps_that_drop_count_as_gone(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(
        max_pending_length=3, pending_overload_policy="drop_oldest", max_dead_length=1, max_delivery_count=None
    )
    batch = queue.batch("abc", batch_id="b")
    queue.publish("d")
    assert counts(batch.status()) == (3, 2, 0, 0, 0, 0, 1)
    queue.claim(2).bury()
    assert counts(batch.status()) == (3, 0, 0, 0, 0, 1, 2)
    then = _milliseconds(client)
    wait_until(lambda: _milliseconds(client) > then, "the next dead letter is a later one")
    queue.claim(1).bury()
    assert counts(batch.status()) == (3, 0, 0, 0, 0, 0, 3)


def _milliseconds(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


# ---------------------------------------------------------------------- retention


def outdate(client: redis.Redis, *batch_ids: str) -> None:
    for batch_id in batch_ids:
        assert client.zadd(KEYS.tracking_ended, {f"b:{batch_id}": 1}, xx=True, ch=True) == 1


def test_an_ended_batch_is_known_for_its_retention(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.batch(numbers(2500), batch_id="old", retention_seconds=60)
    queue.batch("x", batch_id="open")
    while len(lease := queue.claim(500)) > 1:
        lease.ack()
    ((_, score),) = client.zrange(KEYS.tracking_ended, 0, -1, withscores=True)
    assert 50 < score / 1000 - float(client.time()[0]) < 70
    outdate(client, "old")
    lease.ack()
    assert not queue.get_batch("old").status().exists
    assert queue.get_batch("open").status().is_complete
    left = {field.split(b":")[1] for field in client.hkeys(KEYS.tracking) if field != b"news"}
    assert left == {b"open"}, "outcomes of calls go as well"
    assert client.zrange(KEYS.tracking_ended, 0, -1) == [b"b:open"]
    assert queue.batch("y", batch_id="old").status().waiting == 1, "a new batch of that name"


def test_a_batch_of_very_many_calls_is_removed_in_steps(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.batch([], batch_id="old")
    client.hset(KEYS.tracking, "b:old:calls", 2500)
    client.hset(KEYS.tracking, mapping={f"c:old:{call}": "[1]" for call in range(2500)})
    left = []
    for number in range(3):
        client.zadd(KEYS.tracking_ended, {"b:old": 1})
        queue.batch([], batch_id=f"other {number}")
        left.append(sum(field.startswith(b"c:old") for field in client.hkeys(KEYS.tracking)))
    assert left == [1500, 500, 0]
    assert not queue.get_batch("old").status().exists


def test_many_outdated_batches_are_removed_as_others_end(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    for number in range(40):
        queue.batch([], batch_id=f"old{number}")
    outdate(client, *(f"old{number}" for number in range(40)))
    sizes = []
    for number in range(3):
        queue.batch([], batch_id=f"new{number}")
        sizes.append(client.zcard(KEYS.tracking_ended))
    assert sizes == [24, 8, 3]


def test_late_verdicts_recreate_no_record(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.batch("ab", batch_id="b")
    lease = queue.claim(2)
    client.delete(KEYS.tracking)
    lease.nack(lease.messages[0])
    lease.ack()
    assert client.hkeys(KEYS.tracking) == []


# ---------------------------------------------------------------------- waiting


def test_a_wait_ends_when_the_last_message_does(make_queue: MakeQueue) -> None:
    queue = make_queue()
    batch = queue.batch("ab", batch_id="b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batch.wait, 60)
        queue.claim(1).ack()
        assert not waiting.done()
        begun = time.monotonic()
        queue.claim(1).ack()
        assert counts(waiting.result(AT_ONCE_SECONDS)) == (2, 0, 0, 0, 2, 0, 0)
        assert time.monotonic() - begun < 5, "it was woken, and did not find out later"


def test_a_wait_ends_after_its_time(make_queue: MakeQueue) -> None:
    batch = make_queue().batch("a", batch_id="b")
    begun = time.monotonic()
    assert counts(batch.wait(0.3)) == (1, 1, 0, 0, 0, 0, 0)
    assert 0.3 <= time.monotonic() - begun < AT_ONCE_SECONDS
    with pytest.raises(ConfigurationError, match="timeout_seconds"):
        batch.wait(-1)


def test_a_wait_ends_when_the_queue_object_stops(make_queue: MakeQueue) -> None:
    queue = make_queue()
    batch = queue.batch("a", batch_id="b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batch.wait)
        wait_until(lambda: queue.session.activity.stopping() or not waiting.done(), "the wait begins")
        assert queue.shutdown(0)
        assert not waiting.result(AT_ONCE_SECONDS).is_complete


def blocked(client: redis.Redis) -> int:
    """Count the connections on which somebody waits for notifications."""
    return sum("b" in one["flags"] and one["cmd"] == "xread" for one in client.client_list())


def test_hundreds_of_waiters_share_one_connection(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    batches = [queue.batch(["x"], batch_id=f"b{number}") for number in range(200)]
    with ThreadPoolExecutor(len(batches)) as pool:
        waiting = [pool.submit(batch.wait, 60) for batch in batches]
        wait_until(lambda: blocked(client) == 1, "somebody follows the notifications")
        while lease := queue.claim(30):
            lease.ack()
        assert all(done.result(AT_ONCE_SECONDS).is_complete for done in waiting)
        assert blocked(client) <= 1
    wait_until(lambda: blocked(client) == 0, "nobody follows the notifications any more")
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name == "sluicegate-notices"],
        "its thread ends",
    )


def test_more_may_end_at_once_than_a_notification_names(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    batches = [queue.batch(["x"], batch_id=f"b{number}") for number in range(300)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batches[77].wait, 60)
        wait_until(lambda: blocked(client) == 1, "somebody follows the notifications")
        begun = time.monotonic()
        queue.claim(300).ack()
        assert waiting.result(AT_ONCE_SECONDS).is_complete
        assert time.monotonic() - begun < 5
    ((_, fields),) = client.xrevrange(KEYS.tracking_news, count=1)
    assert fields[b"ended"] == b"*"


def test_a_notification_that_is_missed_is_noticed_by_its_number(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    one, other = queue.batch("a", batch_id="one"), queue.batch("b", batch_id="other")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.wait, 60)
        wait_until(lambda: blocked(client) == 1, "somebody follows the notifications")
        begun = time.monotonic()
        pipe = client.pipeline()
        pipe.zadd(KEYS.tracking_ended, {b"b:one": 1e15})  # as if its notification had been trimmed
        pipe.hset(KEYS.tracking, "b:one:ended", 1)
        pipe.hincrby(KEYS.tracking, "news", 1)
        pipe.execute()
        queue.batch([], batch_id="third")
        assert waiting.result(AT_ONCE_SECONDS).is_complete
        assert time.monotonic() - begun < 5
    assert not other.status().is_complete


def test_a_gateway_that_cannot_follow_is_asked_again_and_again(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    queue = make_queue()
    monkeypatch.setattr(type(queue.session.runner.gateway), "follow", None)
    batch = queue.batch("a", batch_id="b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batch.wait, 60)
        queue.claim(1).ack()
        assert waiting.result(AT_ONCE_SECONDS).is_complete
    assert blocked(client) == 0


def test_notifications_are_capped(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue: RedisMessageQueue = make_queue()
    queue.batch([], batch_id="b")
    client.hset(KEYS.tracking, "news", 1)
    pipe = client.pipeline()
    for number in range(5000):
        pipe.xadd(KEYS.tracking_news, {"n": number, "ended": "b:x"})
    pipe.execute()
    queue.batch([], batch_id="c")
    assert client.xlen(KEYS.tracking_news) < 1200
