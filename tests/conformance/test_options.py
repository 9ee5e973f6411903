"""What every option of a queue is for, seen from outside, in all four flavours."""

# ruff: noqa: PT012  (the blocks that raise are what is tested)

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
import tenacity

from sluicegate import RedisMessageQueue, replicated
from sluicegate.errors import (
    ConfigurationError,
    LeaseLostError,
    MalformedStoredMessageError,
    NotDurableError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    QueueBackpressureError,
)
from sluicegate.events import QueueEvent
from sluicegate.interrupts import EventDrivenInterruptHandler
from tests.support import state
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

MakeQueue = Callable[..., RedisMessageQueue]


class Boom(Exception):
    pass


def texts(queue: RedisMessageQueue, where: Any = "pending") -> list[str]:
    return [message.text() for message in queue.peek(100, state=where)]


def fail(queue: RedisMessageQueue) -> None:
    """Let the handler of the next message fail."""
    with pytest.raises(Boom, match="spoilt"), queue.process_message() as payload:
        assert payload is not None
        raise Boom("spoilt")


# ---------------------------------------------------------------------- delays


def test_a_delay_is_waited_for(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.core.transitions.claim._MAX_SLEEP_SECONDS", 60)
    queue.publish("much later", delay_seconds=1000)
    queue.publish("now")
    assert [message.text() for message in queue.claim(2).messages] == ["now"]
    assert not queue.claim()
    assert queue.depth().delayed == 1
    begun = time.monotonic()
    queue.publish("later", delay_seconds=0.3)
    (message,) = queue.claim(wait_seconds=60).messages
    assert message.text() == "later"
    assert 0.3 <= time.monotonic() - begun < AT_ONCE_SECONDS


def test_due_at_is_waited_for_and_a_naive_one_is_refused(queue: RedisMessageQueue, client: redis.Redis) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    assert queue.publish_many(["a", "b"], due_at=due).accepted == 2
    (_, score), _ = client.zrange(queue.session.keys.delayed, 0, -1, withscores=True)
    assert score / 1000 == pytest.approx(due.timestamp(), abs=0.002)
    with pytest.raises(ConfigurationError, match="naive"):
        queue.publish("c", due_at=datetime(2100, 1, 1))  # noqa: DTZ001
    with pytest.raises(ConfigurationError):
        queue.publish("c", due_at=due, delay_seconds=1)
    assert queue.publish("past", due_at=datetime(2000, 1, 1, tzinfo=UTC))
    assert texts(queue) == ["past"]


def test_chunks_fall_due_as_a_single_publish_does(queue: RedisMessageQueue, client: redis.Redis) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    reports = [*queue.publish_chunks("abc", batch_size=2, due_at=due)]
    reports += queue.publish_chunks("de", batch_size=1, delay_seconds=3600)
    assert [report.accepted for report in reports] == [2, 1, 1, 1]
    scores = [score for _, score in client.zrange(queue.session.keys.delayed, 0, -1, withscores=True)]
    assert [score / 1000 for score in scores] == pytest.approx([due.timestamp()] * 5, abs=AT_ONCE_SECONDS)
    with pytest.raises(ConfigurationError, match="not both"):
        next(iter(queue.publish_chunks("f", due_at=due, delay_seconds=1)))


# ---------------------------------------------------------------------- backpressure


def test_raise_refuses_what_does_not_fit(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending_length=2)
    queue.publish("a")
    with pytest.raises(QueueBackpressureError) as caught:
        queue.publish_many("bc")
    assert (caught.value.limit, caught.value.waiting, caught.value.count) == (2, 1, 2)
    assert queue.publish("b")
    with pytest.raises(QueueBackpressureError):
        queue.publish("c", delay_seconds=60)
    lease = queue.claim()
    queue.publish("c")
    lease.release()
    assert queue.depth().ready == 3, "what comes back is never refused"


def test_partial_publishes_what_fits(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending_length=2)
    report = queue.publish_many("abc", partial=True)
    assert (report.accepted, report.refused, report.refused_positions) == (2, 1, [2])
    assert texts(queue) == ["a", "b"]


def test_block_waits_for_room(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending_length=1, pending_overload_policy="block", pending_overload_block_timeout_seconds=60)
    queue.publish("a")
    taker = threading.Timer(0.2, queue.claim)
    begun = time.monotonic()
    taker.start()
    assert queue.publish("b")
    assert 0.2 <= time.monotonic() - begun < AT_ONCE_SECONDS
    taker.join()


def test_block_gives_up_in_time(make_queue: MakeQueue) -> None:
    queue = make_queue(
        max_pending_length=1, pending_overload_policy="block", pending_overload_block_timeout_seconds=0.2
    )
    queue.publish("a")
    begun = time.monotonic()
    with pytest.raises(QueueBackpressureError):
        queue.publish("b")
    assert 0.2 <= time.monotonic() - begun < AT_ONCE_SECONDS
    assert texts(queue) == ["a"]


def test_drop_oldest_makes_room_and_tells(make_queue: MakeQueue) -> None:
    reported: list[QueueEvent] = []
    queue = make_queue(
        max_pending_length=3, pending_overload_policy="drop_oldest", max_delivery_count=None, on_event=reported.append
    )
    queue.publish_many("abc")
    assert queue.publish_many("de").dropped == 2
    assert texts(queue) == ["c", "d", "e"]
    assert [event.count for event in reported if event.outcome == "dropped"] == [2]


# ---------------------------------------------------------------------- deduplication


def until_acked(make_queue: MakeQueue, **options: Any) -> RedisMessageQueue:
    return make_queue(get_deduplication_key="{id}", deduplication_policy="until_acked", **options)


ORDER = {"id": 7}


@pytest.mark.parametrize("end", ["ack", "bury", "discard", "count", "purge", "cancel", "forget", "late"])
def test_until_acked_frees_its_key_at_the_end_of_its_message(
    make_queue: MakeQueue, client: redis.Redis, end: str
) -> None:
    queue = until_acked(make_queue, on_error="discard", max_delivery_count=1 if end in ("count", "late") else 10)
    report = queue.publish_many([ORDER])
    assert queue.publish(ORDER) is False
    match end:
        case "purge":
            assert queue.purge("pending") == 1
        case "cancel":
            assert queue.cancel(report.ids) == report.ids
        case "forget":
            assert queue.forget("7")
            assert not queue.forget("7")
        case "discard":
            fail(queue)
        case "count":
            queue.claim().nack()
        case "late":
            queue.claim()
            state.expire(client, "orders")
            assert not queue.claim()
        case _:
            getattr(queue.claim(), end)()
    assert queue.publish(ORDER) is True


@pytest.mark.parametrize("back", ["nack", "nack later", "release", "reap", "held"])
def test_until_acked_keeps_its_key_while_its_message_is_under_way(
    make_queue: MakeQueue, client: redis.Redis, back: str
) -> None:
    queue = until_acked(make_queue)
    queue.publish(ORDER)
    lease = queue.claim()
    match back:
        case "reap":
            state.expire(client, "orders")
            assert queue.claim(lease_id="next").messages[0].delivery_count == 2
        case "nack later":
            lease.nack(delay_seconds=60)
        case "held":
            pass
        case _:
            getattr(lease, back)()
    assert queue.publish(ORDER) is False


def test_window_holds_its_key_for_its_time_whatever_becomes_of_the_message(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(get_deduplication_key=["id"], deduplication_window_seconds=0.3)
    begun = time.monotonic()
    queue.publish(ORDER)
    queue.claim().ack()
    refused = queue.publish(ORDER) is False
    assert refused or time.monotonic() - begun > 0.3
    wait_until(lambda: queue.publish(ORDER), "the window ends")
    assert time.monotonic() - begun >= 0.29


# ---------------------------------------------------------------------- history and caps


def test_completed_messages_are_kept_up_to_their_number(make_queue: MakeQueue) -> None:
    queue = make_queue(enable_completed_queue=True, max_completed_length=2)
    queue.publish_many("abc", headers={"trace": "t"})
    queue.claim(3).ack()
    assert [record.message.text() for record in queue.peek(state="completed")] == ["c", "b"]
    assert queue.peek(state="completed")[0].message.headers == {"trace": "t"}
    assert queue.purge("completed") == 2


def test_failed_attempts_are_kept_up_to_their_number(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(enable_failed_queue=True, max_failed_length=2, message_wait_interval_seconds=0)
    queue.publish("a")
    for _ in range(3):
        fail(queue)
        state.fall_due(client, "orders")
    attempts = queue.peek(state="failed")
    assert [(one.message.delivery_count, one.verb, one.error_type, one.error) for one in attempts] == [
        (3, "nack", "Boom", "spoilt"),
        (2, "nack", "Boom", "spoilt"),
    ]


def test_nothing_is_kept_unless_asked(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    queue.claim().ack()
    fail(queue)
    assert (queue.peek(state="completed"), queue.peek(state="failed")) == ([], [])


def test_the_oldest_dead_letters_go_for_the_cap(make_queue: MakeQueue) -> None:
    reported: list[QueueEvent] = []
    queue = make_queue(max_dead_length=2, on_event=reported.append)
    queue.publish_many("abc")
    for _ in range(3):
        queue.claim().bury()
    assert [letter.message.text() for letter in queue.peek(state="dead") if letter.message] == ["b", "c"]
    assert [(event.operation, event.count) for event in reported if event.outcome == "dropped"] == [("bury", 1)]


# ---------------------------------------------------------------------- payloads


def test_strict_types_name_what_json_would_change(make_queue: MakeQueue) -> None:
    with pytest.raises(TypeError, match=r"\$?.*points"):
        make_queue(strict_payload_types=True).publish({"points": (1, 2)})
    queue = make_queue()
    queue.publish({"points": (1, 2)})
    assert queue.claim().messages[0].json() == {"points": [1, 2]}


def test_payload_guards(make_queue: MakeQueue) -> None:
    queue = make_queue(max_payload_bytes=10, max_payload_depth=2)
    assert queue.publish("ä" * 5)
    with pytest.raises(PayloadTooLargeError) as large:
        queue.publish("ä" * 5 + "a")
    assert (large.value.size, large.value.limit) == (11, 10)
    assert queue.publish({"a": [1]})
    with pytest.raises(PayloadTooDeepError):
        queue.publish([[[1]]])
    with pytest.raises(PayloadTooLargeError):
        queue.publish_many(["x", "y" * 11])
    assert queue.depth().pending == 2, "nothing of a call with one such payload is stored"


def test_what_is_no_message_is_buried_or_with_strict_decoding_raised_and_left(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    strict, lenient = make_queue(strict_envelope_decoding=True), make_queue()
    client.lpush(strict.session.keys.pending, b"junk")
    strict.publish("a")
    assert strict.claim().messages[0].text() == "a", "it never blocks the queue"
    with pytest.raises(MalformedStoredMessageError):
        strict.claim()
    assert client.lrange(strict.session.keys.pending, 0, -1) == [b"junk"]
    assert not lenient.claim()
    assert [letter.reason for letter in lenient.peek(state="dead")] == ["foreign"]


# ---------------------------------------------------------------------- leases


def test_a_lease_lives_for_the_visibility_timeout(make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout_seconds=0.2)
    queue.publish("a")
    lease = queue.claim()
    again = queue.claim(wait_seconds=60)
    assert again.messages[0].delivery_count == 2
    assert lease.lost
    with pytest.raises(LeaseLostError):
        lease.ack()


def test_heartbeats_keep_a_lease_up_to_its_longest_life(make_queue: MakeQueue) -> None:
    failed = threading.Event()
    queue = make_queue(
        visibility_timeout_seconds=1.5,
        heartbeat_interval_seconds=0.1,
        max_lease_seconds=2.2,
        on_heartbeat_failure=failed.set,
    )
    queue.publish("a")
    begun = time.monotonic()
    with queue.process_message() as payload:
        assert payload is not None
        other = queue.claim(wait_seconds=60)
        assert other.messages[0].delivery_count == 2
        assert 2 < time.monotonic() - begun < AT_ONCE_SECONDS, "kept by heartbeats, and no longer than it may"
        assert failed.wait(60)


def test_at_most_once_loses_what_a_crash_interrupts_and_nothing_else(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(visibility_timeout_seconds=None, max_delivery_count=None, message_wait_interval_seconds=0)
    queue.publish_many("ab")
    with pytest.raises(Boom), queue.process_message():
        assert queue.depth().in_flight == 0, "acked before its handler starts"
        raise Boom
    with queue.process_message() as payload:
        assert payload in (b"b", "b")
    with queue.process_message() as payload:
        assert payload is None
    assert {name: len(found) for name, found in state.contents(client, "orders").ids().items() if found} == {}


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize(("on_error", "where"), [("retry", "delayed"), ("bury", "dead"), ("discard", "")])
def test_on_error_decides_what_becomes_of_a_message(
    make_queue: MakeQueue, client: redis.Redis, on_error: str, where: str
) -> None:
    queue = make_queue(on_error=on_error)
    queue.publish("a")
    fail(queue)
    found = state.contents(client, "orders").ids()
    assert [name for name, messages in found.items() if messages] == ([where] if where else [])
    if where == "dead":
        (letter,) = queue.peek(state="dead")
        assert (letter.error_type, letter.error) == ("Boom", "spoilt")


def test_the_backoff_is_waited_for(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(retry_backoff=tenacity.wait_incrementing(start=100, increment=50))
    queue.publish("a")
    waits = []
    for _ in range(2):
        fail(queue)
        (_, due), *_ = client.zrange(queue.session.keys.delayed, 0, -1, withscores=True)
        seconds, microseconds = client.time()
        waits.append(due / 1000 - seconds - microseconds / 1e6)
        state.fall_due(client, "orders")
    assert waits == [pytest.approx(100, abs=2), pytest.approx(150, abs=2)]


def test_the_delivery_cap_counts_failures(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=2, retry_backoff=tenacity.wait_none(), message_wait_interval_seconds=0)
    queue.publish("a")
    fail(queue)
    fail(queue)
    (letter,) = queue.peek(state="dead")
    assert (letter.reason, letter.delivery_count) == ("max_delivery_count", 2)


# ---------------------------------------------------------------------- durability and waiting


def test_memory_is_confirmed_by_the_script_alone(queue: RedisMessageQueue, client: redis.Redis) -> None:
    client.config_resetstat()
    assert queue.publish("a", durability="memory")
    assert not {"cmdstat_wait", "cmdstat_waitaof"} & client.info("commandstats").keys()
    with pytest.raises(ConfigurationError):
        queue.publish("a", durability="stone")


def test_each_chunk_waits_for_its_durability(queue: RedisMessageQueue, client: redis.Redis) -> None:
    chunks = queue.publish_chunks("abc", batch_size=2, durability=replicated(1, timeout_seconds=0.01))
    with pytest.raises(NotDurableError, match="0 of 1 replicas") as caught:
        next(chunks)
    assert caught.value.report.accepted == 2
    assert queue.depth().pending == 2


def test_an_interval_of_nothing_waits_for_nothing(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(message_wait_interval_seconds=0)
    client.config_resetstat()
    with queue.process_message() as payload:
        assert payload is None
    assert "cmdstat_blpop" not in client.info("commandstats")


def test_the_interval_is_how_long_a_message_is_waited_for(make_queue: MakeQueue) -> None:
    queue = make_queue(message_wait_interval_seconds=0.3)
    waited = []
    for _ in range(3):
        begun = time.monotonic()
        with queue.process_message() as payload:
            assert payload is None
        waited.append(time.monotonic() - begun)
    assert 0.25 <= min(waited) < 4, "the default is 5 s"


def test_an_interrupt_stops_a_waiting_claim_and_leaves_work_in_hand(make_queue: MakeQueue) -> None:
    stop = threading.Event()
    queue = make_queue(message_wait_interval_seconds=60, interrupt=EventDrivenInterruptHandler(stop))
    queue.publish("a")
    with queue.process_message():
        threading.Timer(0.1, stop.set).start()
        begun = time.monotonic()
        with queue.process_message() as payload:
            assert payload is None
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        queue.publish("b")
    with queue.process_message() as payload:
        assert payload is None
    assert (queue.depth().pending, queue.depth().in_flight) == (1, 0)


@pytest.mark.parametrize("seconds", [float(sys.maxsize), 1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("policy", ["window", "until_acked"])
def test_times_beyond_what_redis_counts_are_refused_before_anything_is_sent(
    make_queue: MakeQueue, policy: str, seconds: float
) -> None:
    queue = make_queue(get_deduplication_key="k", deduplication_policy=policy)
    queue.publish({"k": "a"})
    with pytest.raises(ConfigurationError, match="lease_seconds"):
        queue.claim(lease_seconds=seconds)
    with pytest.raises(ConfigurationError, match="retention_seconds"):
        queue.claim(retention_seconds=seconds)
    with queue.claim() as lease:
        with pytest.raises(ConfigurationError, match="delay_seconds"):
            lease.nack(delay_seconds=seconds)
        with pytest.raises(ConfigurationError, match="lease_seconds"):
            lease.extend(seconds)
    assert queue.depth().in_flight == queue.depth().ready == 0


@pytest.mark.parametrize(
    "guarded", [{}, {"max_payload_bytes": 1000, "strict_payload_types": True}], ids=["", "guarded"]
)
def test_sorted_keys_make_equal_payloads_the_same_bytes(make_queue: MakeQueue, guarded: dict[str, Any]) -> None:
    queue = make_queue(sort_keys=True, **guarded)
    queue.publish({"b": [{"d": 1, "c": 2}], "a": "\u00e4"})
    queue.publish_many([{"a": "\u00e4", "b": [{"c": 2, "d": 1}]}, '{"b": 1, "a": 2}'])
    with queue.claim(3) as lease:
        assert [message.payload.decode() for message in lease.messages] == [
            *['{"a":"\u00e4","b":[{"c":2,"d":1}]}'] * 2,
            '{"b": 1, "a": 2}',
        ]


def test_by_default_keys_keep_their_order(queue: RedisMessageQueue) -> None:
    queue.publish({"b": 1, "a": 2})
    with queue.claim() as lease:
        assert lease.messages[0].payload == b'{"b":1,"a":2}'
