"""A cap on what waits: refused whole, in part, or at the price of the oldest; a blocked publish ends when it should."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import MAX_PER_CALL, Publishing
from sluicegate.core.transitions.publish import REFUSED, Published, publish_operation
from sluicegate.errors import PublishUnknownError, QueueBackpressureError, RetryBudgetExhaustedError
from sluicegate.report import PublishReport
from tests.conformance.running import Drive
from tests.support import state
from tests.support.batches import one_call
from tests.support.core_calls import Core, verdict
from tests.support.servers import RedisServer


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def waiting(core: Core) -> str:
    """Names of what waits, the next to be claimed first, state by state."""
    found = state.contents(core.client, core.queue)
    entries = [*found.pending, *found.returned, *found.delayed]
    return "".join(entry.rsplit(b"\x1f", 1)[1].decode() for entry in entries)


def fill(core: Core) -> None:
    """Publish until there is one message in every waiting state and one in flight."""
    core.do(core.publish("later", "d", delay_seconds=60))
    core.do(core.publish("first", *"rfp"))
    token, _ = core.opened("l", "n", 2)
    core.do(core.settle("l", token, verdict("nack", "1")))


# ---------------------------------------------------------------------- raise


def test_what_waits_counts_and_what_is_in_flight_does_not(core: Core) -> None:
    fill(core)
    assert waiting(core) == "prd"
    assert core.do(core.publish("b", "x", max_pending_length=3)) == Published(REFUSED, {}, waiting=3)
    assert core.do(core.publish("c", "x", max_pending_length=4)) == Published(1, {})
    assert waiting(core) == "pxrd"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_batch_that_does_not_fit_is_refused_whole_and_stores_nothing(core: Core, keyed: bool) -> None:
    core.do(core.publish("first", *"ab"))
    before = state.dumps(core.client)
    call = core.publish("b", *"xyz", keyed=keyed, max_pending_length=4)
    assert core.do(call) == Published(REFUSED, {}, waiting=2)
    assert state.dumps(core.client) == before
    token, _ = core.opened("l", "n", 1)
    assert core.do(call) == Published(3, {}), "a refusal is not remembered"
    core.do(core.settle("l", token, verdict("ack", "1")))
    assert waiting(core) == "bxyz"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_repeat_needs_no_room(core: Core, keyed: bool) -> None:
    call = core.publish("b", *"xyz", keyed=keyed, max_pending_length=3)
    first = core.do(call)
    assert first == Published(3, {})
    assert core.do(call) == first
    assert waiting(core) == "xyz"


def test_duplicates_need_no_room(core: Core) -> None:
    core.do(core.publish("first", *"ab", keyed=True))
    assert core.do(core.publish("b", *"bxa", keyed=True, max_pending_length=3)) == Published(
        1, {0: "first-1", 2: "first-0"}
    )
    assert core.do(core.publish("c", *"abx", keyed=True, max_pending_length=3)).accepted == 0


def test_what_comes_back_is_never_refused(core: Core) -> None:
    core.do(core.publish("b", *"abc", max_pending_length=3))
    token, _ = core.opened("l", "n", 3)
    core.do(core.publish("c", *"def", max_pending_length=3))
    core.do(core.settle("l", token, verdict("release", "1-3")))
    assert waiting(core) == "defabc"
    assert core.do(core.publish("d", "x", max_pending_length=3)) == Published(REFUSED, {}, waiting=6)


def test_publishers_at_the_same_time_never_pass_the_cap(client: redis.Redis, server: RedisServer) -> None:
    def publish(who: int) -> int:
        with server.client() as own:
            core = Core(own)
            answers = [core.do(core.publish(f"b{who}-{at}", *"xyz", max_pending_length=100)) for at in range(40)]
        return sum(answer.accepted for answer in answers if answer.accepted > 0)

    with ThreadPoolExecutor(4) as pool:
        accepted = sum(pool.map(publish, range(4)))
    assert accepted == client.llen(QueueKeys("orders").pending) == 99


# ---------------------------------------------------------------------- partial


@pytest.mark.parametrize("keyed", [False, True])
def test_the_first_that_fit_are_accepted_and_the_answer_stays(core: Core, keyed: bool) -> None:
    core.do(core.publish("first", *"ab", keyed=True))
    call = core.publish("b", *"xayz", keyed=keyed, receipt=600, max_pending_length=4, overload="partial")
    expected = Published(2, {1: "first-0"}, refused=(3,)) if keyed else Published(2, {}, refused=(2, 3))
    assert core.do(call) == expected
    assert waiting(core) == ("abxy" if keyed else "abxa")
    core.opened("l", "n", 4)
    assert core.do(call) == expected, "though there is room by now"
    assert waiting(core) == ""


def test_a_key_that_was_refused_is_not_held(core: Core) -> None:
    core.do(core.publish("b", *"xyy", keyed=True, max_pending_length=1, overload="partial"))
    assert core.do(core.publish("c", *"xy", keyed=True)) == Published(1, {0: "b-0"})


def test_a_part_may_be_nothing_or_all(core: Core) -> None:
    assert core.do(core.publish("a", *"xyz", max_pending_length=3, overload="partial")) == Published(3, {})
    assert core.do(core.publish("b", *"xy", max_pending_length=3, overload="partial")) == Published(
        0, {}, refused=(0, 1)
    )
    assert core.do(core.publish("c", *"xy", max_pending_length=2, overload="partial")) == Published(
        0, {}, refused=(0, 1)
    )


def test_a_thousand_refused_positions(core: Core) -> None:
    names = [str(number) for number in range(1000)]
    answer = core.do(core.publish("b", *names, max_pending_length=1, overload="partial"))
    assert answer == Published(1, {}, refused=tuple(range(1, 1000)))


# ---------------------------------------------------------------------- drop_oldest


def test_the_oldest_make_room_and_are_counted(core: Core) -> None:
    core.do(core.publish("first", *"abc"))
    call = core.publish("b", *"xy", max_pending_length=3, overload="drop_oldest")
    assert core.do(call) == Published(2, {}, dropped=2)
    assert core.do(call) == Published(2, {}, dropped=2), "a repeat answers alike"
    assert waiting(core) == "cxy"
    assert state.counters(core.client, core.queue) == {"published": 5, "dropped": 2}
    assert core.do(core.publish("c", *"uvw", max_pending_length=9, overload="drop_oldest")) == Published(3, {})


def test_only_pending_messages_are_dropped(core: Core) -> None:
    fill(core)
    assert waiting(core) == "prd"
    before = state.dumps(core.client)
    assert core.do(core.publish("b", *"xy", max_pending_length=3, overload="drop_oldest")).accepted == REFUSED
    assert state.dumps(core.client) == before
    assert core.do(core.publish("c", "x", max_pending_length=3, overload="drop_oldest")) == Published(1, {}, dropped=1)
    assert waiting(core) == "xrd"


def test_a_delayed_message_makes_room_too(core: Core) -> None:
    core.do(core.publish("first", *"abc"))
    delayed = core.publish("b", "d", max_pending_length=3, overload="drop_oldest", delay_seconds=60)
    assert core.do(delayed) == Published(1, {}, dropped=1)
    assert waiting(core) == "bcd"


def test_a_cap_that_was_lowered_drops_as_many_as_come(core: Core) -> None:
    core.do(core.publish("first", *"abcdef"))
    assert core.do(core.publish("b", *"xy", max_pending_length=3, overload="drop_oldest")).dropped == 2
    assert waiting(core) == "cdefxy"


def test_calls_are_no_larger_than_what_they_may_leave() -> None:
    def most(cap: int, overload: Any) -> int:
        return Publishing(QueueKeys("orders"), None, 3600, 120, max_pending_length=cap, overload=overload).max_per_call

    assert most(7, "drop_oldest") == 7
    assert most(5000, "drop_oldest") == most(7, "raise") == most(7, "block") == MAX_PER_CALL


# ---------------------------------------------------------------------- the operation


def publishing(core: Core, cap: int, overload: Any = "block") -> Publishing:
    return Publishing(core.keys, None, 3600, 120, max_pending_length=cap, overload=overload)


class Clock:
    """Time that passes when a pause says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_refused_publish_says_what_is_full_and_what_to_do(core: Core) -> None:
    batch = one_call(publishing(core, 2, "raise"), b"b", ["x", "y", "z"])
    drive = Drive(core.client)
    with pytest.raises(QueueBackpressureError) as caught:
        drive(publish_operation(core.keys, batch, clock=Clock(), emits_events=True))
    error = caught.value
    assert (error.queue, error.limit, error.waiting, error.count) == ("orders", 2, 0, 3)
    assert "queue 'orders' holds 0 waiting messages, 2 at most" in str(error)
    assert "never fits" in str(error)
    assert error.remediation in str(error)
    assert drive.reported == [("refused", 3)]
    assert drive.events[0].error is error
    core.do(core.publish("first", "a", "b"))
    with pytest.raises(QueueBackpressureError, match=r"2 waiting messages, 2 at most; .*raise max_pending_length"):
        Drive(core.client)(publish_operation(core.keys, one_call(publishing(core, 2), b"c", ["x"]), clock=Clock()))


def test_a_blocked_publish_takes_room_when_it_comes(core: Core) -> None:
    core.do(core.publish("first", *"ab"))
    clock = Clock()

    def pause() -> None:
        clock.now += drive.pauses[-1]
        if len(drive.pauses) == 3:
            core.opened("l", "n", 1)

    drive = Drive(core.client, pause)
    batch = one_call(publishing(core, 2), b"b", ["x"])
    operation = publish_operation(core.keys, batch, clock=clock, block_seconds=1.0, emits_events=True)
    assert drive(operation) == Published(1, {})
    assert drive.pauses == [0.01, 0.02, 0.04]
    assert waiting(core) == "bx"
    assert drive.reported == [("success", 1)]
    assert drive.events[0].message_id == "b-0"


def test_a_blocked_publish_gives_up_when_its_time_is_over(core: Core) -> None:
    core.do(core.publish("first", *"ab"))
    clock = Clock()

    def pause() -> None:
        clock.now += drive.pauses[-1]

    drive = Drive(core.client, pause)
    batch = one_call(publishing(core, 2), b"b", ["x"])
    with pytest.raises(QueueBackpressureError):
        drive(publish_operation(core.keys, batch, clock=clock, block_seconds=1.0))
    assert clock.now == pytest.approx(101.0)
    assert max(drive.pauses) == 0.1
    assert drive.pauses[:5] == [0.01, 0.02, 0.04, 0.08, 0.1]
    assert waiting(core) == "ab"


def test_a_blocked_publish_ends_at_once_when_the_queue_stops(core: Core) -> None:
    core.do(core.publish("first", *"ab"))
    drive = Drive(core.client, lambda: True)
    batch = one_call(publishing(core, 2), b"b", ["x"])
    with pytest.raises(QueueBackpressureError, match="is stopping"):
        drive(publish_operation(core.keys, batch, clock=Clock(), block_seconds=60))
    assert (len(drive.pauses), len(drive.calls)) == (1, 1)


def test_an_outage_does_not_make_a_blocked_publish_wait_longer(core: Core) -> None:
    core.do(core.publish("first", *"ab"))
    clock = Clock()

    def pause() -> None:
        clock.now += drive.pauses[-1]

    def execute(call: Call[Any]) -> Any:
        if len(drive.calls) < 3:
            return drive.execute(call)
        assert call.patience_seconds is not None
        clock.now += call.patience_seconds
        raise RetryBudgetExhaustedError("away")

    drive = Drive(core.client, pause, execute)
    batch = one_call(publishing(core, 2), b"b", ["x"])
    with pytest.raises(PublishUnknownError) as caught:
        drive(publish_operation(core.keys, batch, clock=clock, block_seconds=1.0))
    assert clock.now == pytest.approx(101.0), "the retries of the last call end with the block"
    assert drive.calls[0].patience_seconds is None, "before it is refused, a publish has the whole budget"
    assert caught.value.ids == ("b-0",)
    assert caught.value.batch is batch


def test_every_attempt_of_a_blocked_publish_tells_its_age(core: Core) -> None:
    core.do(core.publish("first", *"ab"))
    clock = Clock()

    def pause() -> None:
        clock.now += drive.pauses[-1]

    drive = Drive(core.client, pause)
    with pytest.raises(QueueBackpressureError):
        drive(
            publish_operation(
                core.keys,
                one_call(publishing(core, 2), b"b", ["x"]),
                clock=clock,
                block_seconds=0.03,
                emits_events=False,
            )
        )
    assert [call.args[1] for call in drive.calls] == [pytest.approx(at, abs=1) for at in (0, 10, 30)]
    assert drive.events == []


def test_events_tell_every_outcome_of_a_call(core: Core) -> None:
    publishing = Publishing(core.keys, str, 3600, 120, max_pending_length=3)
    drive = Drive(core.client)
    drive(
        publish_operation(
            core.keys, one_call(publishing, b"a", ["x"], delay_seconds=7), clock=Clock(), emits_events=True
        )
    )
    assert [(event.message_id, event.seconds, event.queue) for event in drive.events] == [("a-0", 7.0, "orders")]
    drive.events.clear()
    batch = one_call(publishing, b"b", ["x", "u", "u", "v", "w"], partial=True)
    published = drive(publish_operation(core.keys, batch, clock=Clock(), emits_events=True))
    assert drive.reported == [("success", 2), ("duplicate", 2), ("refused", 1)]
    report = PublishReport.of(published, batch.message_ids(), batch.size_bytes)
    assert (report.accepted, report.duplicates, report.refused, report.refused_positions) == (2, 2, 1, [4])
    drive.events.clear()
    dropping = Publishing(core.keys, None, 3600, 120, max_pending_length=3, overload="drop_oldest")
    drive(publish_operation(core.keys, one_call(dropping, b"c", ["x"]), clock=Clock(), emits_events=True))
    assert drive.reported == [("success", 1), ("dropped", 1)]


def test_a_failure_is_told_too(core: Core) -> None:
    def execute(call: Call[Any]) -> Any:
        raise RetryBudgetExhaustedError("away")

    drive = Drive(core.client, execute=execute)
    batch = one_call(publishing(core, 0), b"b", ["x", "y"])
    with pytest.raises(PublishUnknownError) as caught:
        drive(publish_operation(core.keys, batch, clock=Clock(), emits_events=True))
    assert drive.reported == [("failure", 2)]
    assert drive.events[0].error is caught.value
    again = publish_operation(core.keys, batch, clock=Clock(), born=caught.value.born - 5)
    drive = Drive(core.client)
    assert drive(again) == Published(2, {})
    assert drive.calls[0].args[1] == 5000


def test_reports_of_several_calls_follow_on_each_other() -> None:
    report = PublishReport()
    report.add(PublishReport.of(Published(2, {1: "o"}), ["a-0", "a-1", "a-2"], 30))
    report.add(PublishReport.of(Published(1, {}, refused=(1, 2), dropped=4), ["b-0", "b-1", "b-2"], 50))
    assert (report.accepted, report.duplicates, report.refused, report.dropped) == (3, 1, 2, 4)
    assert (report.refused_positions, report.size_bytes) == ([4, 5], 80)
    assert report.duplicate_of == [None, "o", None, None, None, None]
    assert repr(report) == "PublishReport(accepted=3, duplicates=1, refused=2, dropped=4)"


def test_a_partial_publish_of_a_queue_has_a_receipt_and_a_whole_one_has_none(core: Core) -> None:
    keyed = Publishing(core.keys, str, 3600, 120, max_pending_length=3)
    assert one_call(keyed, b"b", ["x"]).receipt_seconds == 0
    assert one_call(keyed, b"b", ["x"], partial=True).receipt_seconds == 600
    assert one_call(keyed, b"b", ["x"], partial=True).oldest_seconds < 600
