"""Publishing for later: out of reach until the server's clock says so, then at the end of the line, delivered once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
import redis

from sluicegate.core.entry import read_prefix
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.core.transitions.claim import Empty
from sluicegate.core.transitions.publish import Published
from tests.support import markers, state
from tests.support.batches import one_call
from tests.support.core_calls import Core, ids, verdict
from tests.support.waiting import wait_until

HOUR_MS = 3600 * 1000


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def now_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def test_a_delayed_message_is_out_of_reach_until_it_is_due(core: Core, client: redis.Redis) -> None:
    before = now_ms(client)
    assert core.do(core.publish("b", "x", delay_seconds=30)) == Published(1, {})
    ((_, due),) = client.zrange(core.keys.delayed, 0, -1, withscores=True)
    assert before + 30_000 < due <= now_ms(client) + 30_001
    empty = core.do(core.claim("l", "n"))
    assert isinstance(empty, Empty)
    assert empty.next_seconds == pytest.approx(30, abs=2)
    state.fall_due(client, core.queue)
    core.do(core.promote())
    assert ids(core.do(core.claim("l", "n"))) == ["x"]


def test_no_message_falls_due_before_its_delay_is_over(core: Core, client: redis.Redis) -> None:
    """The server counts in milliseconds, and the one in which a message is published has begun."""
    for number in range(50):
        seconds, microseconds = client.time()
        core.do(core.publish(f"b{number}", "x", delay_seconds=30))
        ((_, due),) = client.zrange(core.keys.delayed, -1, -1, withscores=True)
        assert due * 1000 >= seconds * 1_000_000 + microseconds + 30_000_000


def test_a_delay_longer_than_the_lease_is_waited_for_and_delivered_once(core: Core) -> None:
    start = monotonic()
    core.do(core.publish("b", "x", delay_seconds=0.4))
    core.do(core.publish("c", "now"))
    token, first = core.opened("short", "n", lease_seconds=0.05)
    assert ids(first) == ["now"]
    core.do(core.settle("short", token, verdict("ack", "1")))
    wait_until(lambda: core.do(core.promote()) == 1, "the message falls due")
    assert monotonic() - start >= 0.4
    token, opened = core.opened("l", "n", lease_seconds=60)
    assert ids(opened) == ["x"]
    core.do(core.settle("l", token, verdict("ack", "1")))
    assert isinstance(core.do(core.claim("m", "n")), Empty)


def test_what_is_due_first_comes_first_and_equal_times_keep_their_order(core: Core, client: redis.Redis) -> None:
    due = now_ms(client) + HOUR_MS
    core.do(core.publish("b1", *"cd", due_ms=due))
    core.do(core.publish("b2", "z", due_ms=due + 1))
    core.do(core.publish("b3", *"ef", due_ms=due))
    core.do(core.publish("b4", "a", due_ms=due - 1))
    payloads = [entry.rsplit(b"\x1f", 1)[1] for entry in client.zrange(core.keys.delayed, 0, -1)]
    assert b"".join(payloads) == b"acdefz"
    state.fall_due(client, core.queue)
    core.do(core.promote())
    assert "".join(ids(core.do(core.claim("l", "n")))) == "acdefz"


def test_a_thousand_delayed_at_once_keep_their_order(core: Core, client: redis.Redis) -> None:
    names = [str(number) for number in range(1000)]
    core.do(core.publish("b", *names, delay_seconds=60))
    assert state.contents(client, core.queue).ids()["delayed"] == [f"b-{at}" for at in range(1000)]
    assert state.counters(client, core.queue)["published"] == 1000


def test_scheduled_messages_join_at_the_tail_and_nacked_ones_where_they_stood(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "scheduled", delay_seconds=60))
    core.do(core.publish("c", *"abc"))
    token, _ = core.opened("l", "n", 1)
    core.do(core.settle("l", token, verdict("nack", "1", delay_seconds=60)))
    state.fall_due(client, core.queue)
    core.do(core.promote())
    assert ids(core.do(core.claim("m", "n"))) == ["a"]
    assert ids(core.do(core.claim("o", "n"))) == ["b", "c", "scheduled"]


@pytest.mark.parametrize("late_by_ms", [0, 1, HOUR_MS])
def test_a_due_time_that_has_passed_means_at_once(core: Core, client: redis.Redis, late_by_ms: int) -> None:
    core.do(core.publish("b", "x", due_ms=now_ms(client) - late_by_ms))
    assert client.zcard(core.keys.delayed) == 0
    assert client.llen(core.keys.wakeup) == 2
    assert ids(core.do(core.claim("l", "n", maintain=False))) == ["x"]


def test_the_bell_rings_for_a_new_earliest_due_time_only(core: Core, client: redis.Redis) -> None:
    def rings(batch: str, seconds: float) -> bool:
        client.delete(core.keys.wakeup)
        core.do(core.publish(batch, "x", delay_seconds=seconds))
        return bool(client.llen(core.keys.wakeup))

    assert rings("b1", 100)
    assert not rings("b2", 200)
    assert rings("b3", 50)
    assert not rings("b4", 60)


def test_a_repeat_stores_nothing_again_and_keeps_the_first_due_time(core: Core, client: redis.Redis) -> None:
    for keyed in (False, True):
        call = core.publish(f"b{keyed}", *"xy", keyed=keyed, delay_seconds=60)
        first = core.do(call)
        before = client.zrange(core.keys.delayed, 0, -1, withscores=True)
        assert core.do(call.later(100)) == first
        assert client.zrange(core.keys.delayed, 0, -1, withscores=True) == before


def test_the_time_of_the_publish_is_stamped_not_that_of_falling_due(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "x", delay_seconds=3600))
    (entry,) = client.zrange(core.keys.delayed, 0, -1)
    assert abs(read_prefix(entry).enqueued_ms - now_ms(client)) < 60_000


def test_a_delayed_duplicate_is_refused_as_any_other(core: Core) -> None:
    core.do(core.publish("b", "x", keyed=True, delay_seconds=60))
    assert core.do(core.publish("c", "x", keyed=True)) == Published(0, {0: "b-0"})


def test_a_marker_lives_longer_by_the_delay_only_where_it_is_freed_at_the_end(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "window", keyed=True, delay_seconds=5000))
    core.do(core.publish("c", "freed", keyed=True, delay_seconds=5000, kind=b"2"))
    core.do(core.publish("d", "until", keyed=True, due_ms=now_ms(client) + 5_000_000, kind=b"2"))
    core.do(core.publish("e", "past", keyed=True, due_ms=1, kind=b"2"))
    lives = {
        name: markers.left_ms(client, core.keys, name.encode()) / 1000 for name in ("window", "freed", "until", "past")
    }
    assert lives == {
        "window": pytest.approx(3600, abs=20),
        "freed": pytest.approx(8600, abs=20),
        "until": pytest.approx(8600, abs=20),
        "past": pytest.approx(3600, abs=20),
    }


def test_due_at_is_an_instant_whatever_its_zone(core: Core, client: redis.Redis) -> None:
    publishing = Publishing(QueueKeys(core.queue), None, 3600, 120)
    due = datetime(2100, 1, 1, 12, 0, 0, 1500, tzinfo=UTC)
    elsewhere = due.astimezone(datetime.now().astimezone().tzinfo) + timedelta(0)
    for due_at in (due, elsewhere):
        assert one_call(publishing, b"b", ["x"], due_at=due_at).due_ms == 4_102_488_000_002, "rounded up, never early"
