"""Settling takes any mixture in one call and one verdict per slot; returned messages keep order and counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from sluicegate import Lease, LeaseState, RedisMessageQueue, Verdict
from sluicegate.clock import elapsed_clock
from sluicegate.core.entry import split_entry
from sluicegate.core.transitions.claim import Expired, Held
from sluicegate.core.transitions.extend import Extended
from sluicegate.core.transitions.reap import Reaped
from sluicegate.core.transitions.settle import Settled, SettleRequest, settle_operation
from sluicegate.errors import AlreadySettledError, ConfigurationError, LeaseLostError
from tests.support import state
from tests.support.core_calls import Core, ids, verdict

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


@pytest.fixture
def letters(queue: RedisMessageQueue) -> Callable[..., Lease]:
    """Publishes messages a, b, c … and leases them."""

    def lease(count: int, **options: Any) -> Lease:
        queue.publish_many([chr(ord("a") + number) for number in range(count)])
        return queue.claim(count, **options)

    return lease


def texts(messages: Any) -> list[str]:
    return [message.text() for message in messages]


# ---------------------------------------------------------------------- verdicts


def test_any_mixture_in_one_call(letters: Callable[..., Lease], queue: RedisMessageQueue, client: redis.Redis) -> None:
    lease = letters(7)
    a, b, c, d, e, f, g = lease.messages
    client.config_resetstat()
    lease.settle(
        Verdict("ack", [a, g]),
        Verdict("nack", b),
        Verdict("nack", [c], delay_seconds=60, error=ValueError("bad")),
        Verdict("release", (m for m in (d, e))),
        Verdict("bury", f, error="spoilt", reason="unreadable"),
    )
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    assert (lease.counts.acked, lease.counts.returned, lease.counts.buried) == (2, 4, 1)
    assert texts(queue.peek(state="returned")) == ["b", "d", "e"]
    assert [message.delivery_count for message in queue.peek(state="returned")] == [1, 0, 0]
    assert texts(queue.peek(state="delayed")) == ["c"]
    (dead,) = queue.peek(state="dead")
    assert dead.message is not None
    assert (dead.message.text(), dead.message.delivery_count) == ("f", 1)
    assert (dead.reason, dead.error_type, dead.error) == ("unreadable", "", "spoilt")
    assert abs((dead.buried_at - datetime.now(UTC)).total_seconds()) < 5
    totals = state.counters(client, "orders")
    assert {name: totals[name] for name in ("acked", "nacked", "released", "buried", "in_flight")} == {
        "acked": 2, "nacked": 2, "released": 2, "buried": 1, "in_flight": 0,
    }  # fmt: skip


def test_piece_by_piece(letters: Callable[..., Lease], queue: RedisMessageQueue) -> None:
    lease = letters(6)
    lease.ack(lease.messages[1])
    assert queue.depth().in_flight == 5
    lease.nack(lease.messages[0], error=OSError("x"))
    lease.ack(lease.messages[2], lease.messages[3:5])
    assert (queue.depth().in_flight, queue.depth().leases) == (1, 1)
    lease.release()
    assert (queue.depth().in_flight, queue.depth().leases) == (0, 0)
    assert (lease.counts.acked, lease.counts.returned) == (4, 2)
    assert texts(queue.claim(1).messages) == ["a"]
    assert texts(queue.claim(9).messages) == ["f"]


def test_one_verdict_per_slot(letters: Callable[..., Lease], queue: RedisMessageQueue) -> None:
    lease, other = letters(3), letters(1)
    lease.ack(lease.messages[0])
    lease.ack(lease.messages[0])
    with pytest.raises(AlreadySettledError, match="already has the verdict 'ack'"):
        lease.nack(lease.messages[:2])
    with pytest.raises(AlreadySettledError, match="not a message of lease"):
        lease.ack(other.messages)
    with pytest.raises(AlreadySettledError, match="already has the verdict 'nack'"):
        lease.settle(Verdict("nack", lease.messages[1]), Verdict("ack", lease.messages[1]))
    assert (lease.counts.acked, queue.depth().in_flight) == (1, 3)
    lease.ack()
    assert (lease.counts.acked, queue.depth().in_flight) == (3, 1)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_a_verdict_that_cannot_work_is_refused_whole(letters: Callable[..., Lease], delay: float) -> None:
    lease = letters(2)
    a, b = lease.messages
    with pytest.raises(ConfigurationError, match="delay_seconds"):
        lease.settle(Verdict("ack", a), Verdict("nack", b, delay_seconds=delay))
    with pytest.raises(ConfigurationError, match="verb"):
        lease.settle(Verdict("ack", a), Verdict("vanish", b))  # type: ignore[arg-type]
    lease.bury()
    assert lease.counts.buried == 2


def test_leaving_the_block_acks_the_rest(letters: Callable[..., Lease], queue: RedisMessageQueue) -> None:
    with letters(4) as lease:
        lease.nack(lease.messages[0], delay_seconds=60)
        lease.bury(lease.messages[1])
    assert (lease.counts.acked, lease.counts.returned, lease.counts.buried) == (2, 1, 1)
    assert (lease.lost, queue.depth().leases) == (False, 0)


def test_many_slots_with_gaps(queue: RedisMessageQueue) -> None:
    """Ranges, chunked reads and chunked deletes meet where a thousand ends."""
    queue.publish_many(str(number) for number in range(3501))
    lease = queue.claim(3501)
    lease.ack(message for message in lease.messages if message.slot % 3 == 0)
    lease.release(message for message in lease.messages if message.slot % 3 == 1)
    assert lease.counts.acked == lease.counts.returned == 1167
    assert queue.depth().in_flight == 1167
    lease.nack()
    assert [int(message.text()) for message in queue.peek(5000, state="returned")] == [
        number for number in range(3501) if number % 3 != 2
    ]


# ---------------------------------------------------------------------- returning to the queue


def test_a_delayed_nack_returns_to_its_first_place(
    letters: Callable[..., Lease], queue: RedisMessageQueue, client: redis.Redis
) -> None:
    lease = letters(4)
    lease.nack(lease.messages[0], delay_seconds=600)
    lease.nack(lease.messages[1:])
    depth = queue.depth()
    assert (depth.delayed, depth.due, depth.returned) == (1, 0, 3)
    with queue.claim(3) as first:
        assert texts(first.messages) == ["b"], "a batch that failed once, of 3 // 4"
    assert queue.claim(1, wait_seconds=20).messages[0].text() == "c"
    state.fall_due(client, "orders")
    assert texts(queue.claim(10).messages) == ["a", "d"]


def test_due_messages_return_in_their_first_order(core: Core, queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    lease = queue.claim(3)
    for message, seconds in zip(lease.messages, (300, 200, 100), strict=True):
        lease.nack(message, delay_seconds=seconds)
    assert texts(queue.peek(state="delayed")) == ["c", "b", "a"]
    state.fall_due(core.client, "orders")
    assert core.do(core.promote(2)) == 2
    assert texts(queue.peek(state="returned")) == ["b", "c"]
    assert core.do(core.promote()) == 1
    assert texts(queue.peek(state="returned")) == ["a", "b", "c"]


def test_what_was_released_for_later_returns_to_its_first_place(core: Core, queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    lease = queue.claim(1)
    lease.settle(Verdict("release", None, delay_seconds=100))
    state.fall_due(core.client, "orders")
    core.do(core.promote())
    assert texts(queue.peek(state="returned")) == ["a"]
    assert texts(queue.claim(2).messages) == ["a", "b"]


def test_releases_beyond_three_count(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    counts = []
    for _ in range(6):
        lease = queue.claim()
        counts.append(lease.messages[0].delivery_count)
        lease.release()
    assert counts == [1, 1, 1, 1, 2, 3]


def test_a_message_that_is_released_for_ever_ends_dead(make_queue: MakeQueue) -> None:
    """What makes every worker that holds it shut down must not go round for ever."""
    queue = make_queue(max_delivery_count=4)
    queue.publish("poison")
    releases = 0
    while lease := queue.claim():
        lease.release()
        releases += 1
        assert releases < 50
    assert releases == 3 + 4
    assert queue.peek(state="dead")[0].reason == "max_delivery_count"


def test_a_released_batch_is_never_buried(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=1)
    queue.publish_many("abc")
    for _ in range(3):
        queue.claim(3).release()
    lease = queue.claim(3)
    assert len(lease) == 3
    lease.release()
    assert queue.depth().dead == 0
    assert len(queue.claim(3)) == 1, "from now on each travels alone"


# ---------------------------------------------------------------------- the delivery cap


def test_a_nack_by_name_buries_at_the_cap(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=3)
    queue.publish("a")
    for expected in (1, 2, 3):
        lease = queue.claim()
        assert lease.messages[0].delivery_count == expected
        lease.nack(lease.messages[0], error=KeyError("k"))
    assert queue.depth().ready == 0
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("max_delivery_count", "KeyError", "'k'")
    assert dead.message is not None
    assert dead.message.delivery_count == 3


def test_a_letter_buried_as_its_lease_expired_says_so(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(max_delivery_count=3)
    queue.publish("a")
    for _ in range(3):
        held = queue.claim()
        assert len(held) == 1
        state.expire(client, "orders")
    assert not queue.claim()
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error_type) == ("max_delivery_count", "")
    assert dead.error == "lease expired while being handled; that was delivery 3 of at most 3"


@pytest.mark.parametrize(
    ("verdict", "error_type", "error"),
    [
        ("nack", "", "nacked without an error"),
        ("release", "", "released more than 3 times"),
        ("nack KeyError", "KeyError", "'k'"),
        ("expiry", "", "lease expired while being handled"),
    ],
)
@pytest.mark.parametrize("takeovers", [0, 3])
def test_a_letter_buried_for_its_count_says_how_it_came_to_it(
    make_queue: MakeQueue, client: redis.Redis, verdict: str, error_type: str, error: str, takeovers: int
) -> None:
    """Without what takeovers count as, a message that was claimed once would seem to have been delivered four times."""
    queue = make_queue(max_delivery_count=4)
    queue.publish("a")
    while not queue.depth().dead:
        lease = queue.claim(lease_id="l")
        for _ in range(takeovers):
            lease = queue.claim(lease_id="l", take_over_after_seconds=0)
        match verdict:
            case "nack":
                lease.nack(lease.messages[0])
            case "nack KeyError":
                lease.nack(lease.messages[0], error=KeyError("k"))
            case "release":
                lease.release()
            case "expiry":
                state.expire(client, "orders")
    (dead,) = queue.peek(state="dead")
    assert dead.delivery_count >= 4
    counts = f"; that was delivery {dead.delivery_count} of at most 4"
    if takeovers:
        error += f"{counts}, takeovers of its last lease counted (3)"
    elif not error_type:
        error += counts
    assert (dead.reason, dead.error_type, dead.error) == ("max_delivery_count", error_type, error)


def test_a_nack_by_name_buries_out_of_a_batch(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=1)
    queue.publish_many("abc")
    with queue.claim(3) as lease:
        lease.nack(lease.messages[1])
    assert (lease.counts.acked, lease.counts.buried) == (2, 1)


@pytest.mark.parametrize("how", ["nack", "raise", "crash", "takeover"])
def test_the_failure_of_a_batch_buries_no_neighbours(make_queue: MakeQueue, core: Core, how: str) -> None:
    queue = make_queue(max_delivery_count=2)
    queue.publish_many("abc")
    lease = queue.claim(3, lease_id="run-1")
    match how:
        case "nack":
            for _ in range(2):
                lease = queue.claim(3, lease_id="run-1", take_over_after_seconds=0)
            lease.nack()
        case "raise":
            for _ in range(2):
                lease = queue.claim(3, lease_id="run-1", take_over_after_seconds=0)
            with pytest.raises(ZeroDivisionError), lease:
                _ = lease.messages[0].text() + str(1 / 0)
            state.fall_due(core.client, "orders")
        case "crash":
            state.expire(core.client, "orders")
        case "takeover":
            for _ in range(5):
                queue.claim(3, lease_id="run-1", take_over_after_seconds=0)
            state.expire(core.client, "orders")
    assert queue.depth().dead == 0
    alone = [queue.claim(3) for _ in range(3)]
    assert [texts(one.messages) for one in alone] == [["a"], ["b"], ["c"]]
    assert [one.messages[0].delivery_count for one in alone] == [2, 2, 2]


def test_a_poison_message_takes_no_innocent_one_along(make_queue: MakeQueue, core: Core) -> None:
    """One message of 1,000 kills whoever holds it: it is buried, and nothing else is, within a few dozen claims."""
    queue = make_queue(max_delivery_count=10)
    queue.publish_many("poison" if number == 500 else str(number) for number in range(1000))
    claims, done = 0, []
    while lease := queue.claim(1000):
        claims += 1
        if "poison" in texts(lease.messages):
            state.expire(core.client, "orders")
        else:
            lease.ack()
            done += texts(lease.messages)
        assert claims < 100
    assert [dead.message and dead.message.text() for dead in queue.peek(state="dead")] == ["poison"]
    assert sorted(done) == sorted(str(number) for number in range(1000) if number != 500)
    assert claims <= 27


def test_no_cap(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=None)
    queue.publish("a")
    for expected in range(1, 15):
        lease = queue.claim(5)
        assert lease.messages[0].delivery_count == expected
        lease.nack(lease.messages)
    assert queue.depth().returned == 1


def test_the_count_is_kept_to_four_thousand(make_queue: MakeQueue, core: Core) -> None:
    queue = make_queue(max_delivery_count=None)
    queue.publish("a")
    token, reply = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("release", "1")))
    core.client.delete(core.keys.returned)
    core.client.zadd(core.keys.returned, {reply.entries[0][:25] + b"fff" + reply.entries[0][28:]: 1})
    queue.claim().nack()
    assert queue.claim().messages[0].delivery_count == 4096


# ---------------------------------------------------------------------- losing a lease


def test_a_lease_used_after_it_was_lost_names_its_slots(letters: Callable[..., Lease], core: Core) -> None:
    lease = letters(3)
    state.expire(core.client, "orders")
    assert core.do(core.reap(lease.id)) == Reaped(finished=True, moved=3, buried=0)
    with pytest.raises(LeaseLostError) as caught:
        lease.ack()
    assert (caught.value.lease_id, caught.value.lost, caught.value.settled) == (lease.id, (1, 2, 3), ())
    assert lease.lost
    assert lease.counts.acked == 0
    with pytest.raises(LeaseLostError, match="cannot be extended"):
        lease.extend()


def test_an_expired_lease_that_nobody_took_back_is_still_its_holders(
    letters: Callable[..., Lease], core: Core, queue: RedisMessageQueue
) -> None:
    lease = letters(2)
    state.expire(core.client, "orders")
    assert queue.depth().expired == 2
    lease.extend()
    assert queue.depth().expired == 0
    state.expire(core.client, "orders")
    lease.ack()
    assert lease.counts.acked == 2


def test_what_was_acked_before_the_loss_is_settled(letters: Callable[..., Lease], core: Core) -> None:
    lease = letters(4)
    _executed_but_unconfirmed(core, lease, "ack", "1,3")
    state.expire(core.client, "orders")
    core.do(core.reap(lease.id))
    with pytest.raises(LeaseLostError) as caught:
        lease.ack()
    assert (caught.value.lost, caught.value.settled) == ((2, 4), (1, 3))
    assert lease.counts.acked == 2


@pytest.mark.parametrize(
    ("done", "asked", "lost"),
    [
        ("ack", "ack", ()), ("nack", "nack", ()), ("release", "release", ()), ("bury", "bury", ()),
        ("nack", "ack", (1,)), ("release", "ack", (1,)), ("bury", "ack", (1,)), ("ack", "bury", (1,)),
        ("nack", "bury", (1,)),
        ("ack", "nack", (1,)), ("ack", "release", (1,)), ("nack", "release", ()), ("bury", "nack", ()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rest", ["open", "ended", "reaped"])
def test_a_slot_that_is_gone_counts_as_done_only_if_it_went_this_way(
    core: Core, done: Any, asked: Any, lost: tuple[int, ...], rest: str
) -> None:
    core.do(core.publish("b", "a", "b"))
    token, _ = core.opened("l", "n", 2)
    core.do(core.settle("l", token, verdict(done, "1")))
    match rest:
        case "ended":
            core.do(core.settle("l", token, verdict("ack", "2")))
        case "reaped":
            state.expire(core.client, "orders")
            core.do(core.reap("l"))
    assert tuple(core.do(core.settle("l", token, verdict(asked, "1"))).lost) == lost


def test_a_late_settle_after_the_id_was_opened_anew_changes_nothing(core: Core) -> None:
    core.do(core.publish("b", "a", "b"))
    late, _ = core.opened("l", "n1", 1)
    state.expire(core.client, "orders")
    core.do(core.reap("l"))
    _, reply = core.opened("l", "n2", 1)
    assert ids(reply) == ["a"]
    assert core.do(core.settle("l", late, verdict("ack", "1"))).lost == [1]
    assert core.do(core.extend("l", late)) is Extended.LOST
    assert core.do(core.depth()).in_flight == 1


def test_who_was_taken_over_can_no_longer_settle(core: Core) -> None:
    core.do(core.publish("b", "a"))
    old, _ = core.opened("l", "n1")
    held = core.do(core.claim("l", "n2", takeover=b"?"))
    assert held == Held(old, pytest.approx(0, abs=1))  # type: ignore[arg-type]
    new, _ = core.opened("l", "n2", takeover=old)
    for verb in ("ack", "nack", "release", "bury"):
        assert core.do(core.settle("l", old, verdict(verb, "1"))).lost == [1]  # type: ignore[arg-type]
    assert core.do(core.settle("l", new, verdict("ack", "1"))) == Settled([], 0, [])
    assert core.do(core.settle("l", old, verdict("ack", "1"))).lost == [1]
    assert core.do(core.settle("l", new, verdict("ack", "1"))) == Settled([], 0, []), "its repeat is told the truth"


def test_a_takeover_is_compare_and_set(core: Core) -> None:
    core.do(core.publish("b", "a"))
    first, _ = core.opened("l", "n1")
    second, _ = core.opened("l", "n2", takeover=first)
    reply = core.do(core.claim("l", "n3", takeover=first))
    assert isinstance(reply, Held)
    assert reply.token == second
    assert core.do(core.settle("l", second, verdict("ack", "1"))).lost == []


def test_a_missing_lease_proves_nothing(core: Core) -> None:
    core.do(core.publish("b", "a", "b"))
    token, _ = core.opened("l", "n", 2)
    core.do(core.settle("l", token, verdict("ack", "1-2")))
    state.forget_end(core.client, "orders", "l")
    assert core.do(core.settle("l", token, verdict("ack", "1-2"))).lost == [1, 2]


def test_only_a_one_message_lease_without_record_counts_as_done_for_a_while(core: Core) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n", 1)
    call = core.settle("l", token, verdict("ack", "1"), recorded=False)
    assert core.do(call) == Settled([], 0, [])
    assert not core.client.exists(core.keys.closed(b"l"))
    assert core.do(call.later(3599)).lost == []
    assert core.do(call.later(3600)).lost == [1]


def test_an_ack_that_leaves_no_record_writes_one_over_that_of_an_earlier_opening(core: Core) -> None:
    """Else its repeat would find the record of another end, and be told that it was lost."""
    core.do(core.publish("b", "a"))
    core.opened("l", "n", 1)
    state.expire(core.client, "orders")
    core.do(core.reap("l"))  # the reply to the claim was lost for so long; its repeat opens anew
    token, _ = core.opened("l", "n", 1)
    call = core.settle("l", token, verdict("ack", "1"), recorded=False)
    assert core.do(call).lost == []
    assert core.do(call).lost == []


def test_an_ack_whose_repeat_may_come_late_leaves_a_record(core: Core) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n", 1)
    call = core.settle("l", token, verdict("ack", "1"), recorded=False, held_seconds=1801)
    assert core.do(call).lost == []
    assert core.do(call.later(3600)).lost == []


def test_time_between_asking_and_settling_counts(core: Core) -> None:
    """A consumer that freezes after its lease was confirmed must not take a missing lease for done."""
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n", 1)
    request = SettleRequest(b"l", token, 3600, recorded=False, groups=(verdict("ack", "1"),))
    now = 10_000.0
    settling = settle_operation(
        core.keys, core.rules, request, clock=lambda: now, confirmed_at=0, lease_seconds=60, lease_id="l"
    )
    assert core.do(next(settling)) is Extended.OK
    state.expire(core.client, "orders")
    core.do(core.reap("l"))
    state.forget_end(core.client, "orders", "l")
    now += 5000
    assert core.do(settling.send(Extended.OK)).lost == [1]


@pytest.mark.parametrize("verb", ["nack", "release", "bury"])
def test_a_one_message_lease_leaves_a_record_unless_it_was_acked(core: Core, verb: Any) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n", 1)
    core.do(core.settle("l", token, verdict(verb, "1"), recorded=False))
    assert core.do(core.settle("l", token, verdict("ack", "1"), recorded=False)).lost == [1]
    assert core.do(core.settle("l", token, verdict(verb, "1"), recorded=False)).lost == []


def test_only_one_message_leases_with_library_ids_leave_no_record(queue: RedisMessageQueue, core: Core) -> None:
    queue.publish_many("abcd")
    for lease, records in ((queue.claim(), 0), (queue.claim(lease_id="l"), 1), (queue.claim(2), 2)):
        lease.ack()
        assert len(list(core.client.scan_iter(match="*closed:*"))) == records


def test_a_holder_silent_for_long_asks_before_it_settles(queue: RedisMessageQueue, core: Core) -> None:
    queue.publish("a")
    lease = queue.claim()
    state.expire(core.client, "orders")
    core.do(core.reap(lease.id))
    state.forget_end(core.client, "orders", lease.id)  # for longer than the record of the reap was kept
    lease._batch.confirmed_at -= 901
    with pytest.raises(LeaseLostError) as caught:
        lease.ack()
    assert (caught.value.lost, caught.value.settled) == ((1,), ())
    assert lease.lost


def test_a_holder_silent_for_long_whose_lease_lives_settles(queue: RedisMessageQueue, core: Core) -> None:
    queue.publish("a")
    lease = queue.claim()
    lease._batch.confirmed_at -= 901
    core.client.config_resetstat()
    lease.ack()
    assert core.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
    assert lease.counts.acked == 1


# ---------------------------------------------------------------------- reaping


def test_a_reap_takes_steps_and_fences_first(core: Core) -> None:
    core.do(core.publish("b", *"abcdef"))
    token, _ = core.opened("l", "n", 6)
    core.do(core.settle("l", token, verdict("ack", "2"), verdict("nack", "3")))
    state.expire(core.client, "orders")
    assert core.do(core.reap("l", 2)) == Reaped(finished=False, moved=2, buried=0)
    assert core.client.zcard(core.keys.returned) == 3
    assert core.do(core.settle("l", token, verdict("ack", "5-6"))) == Settled([5, 6], 0, []), "slots not yet moved"
    assert core.do(core.settle("l", token, verdict("ack", "1-2"))) == Settled([1], 0, [])
    assert core.do(core.settle("l", token, verdict("nack", "3"))) == Settled([], 0, [])
    assert core.do(core.extend("l", token)) is Extended.LOST
    assert isinstance(core.do(core.claim("l", "n")), Expired)
    assert isinstance(core.do(core.claim("l", "n2", takeover=token)), Expired)
    assert core.do(core.depth()).in_flight == 2
    assert core.do(core.depth(b"l")).expired == 2
    state.check(core.client)
    assert core.do(core.reap("l", 2)) == Reaped(finished=True, moved=2, buried=0)
    assert core.do(core.settle("l", token, verdict("ack", "1-6"))) == Settled([1, 3, 4, 5, 6], 0, [])
    assert len(ids(core.do(core.claim("l", "n3", 40)))) == 5


def test_a_fenced_lease_comes_back_whatever_the_clock_says(core: Core) -> None:
    """The server's clock may step back between two steps."""
    core.do(core.publish("b", *"abc"))
    core.opened("l", "n", 3)
    state.expire(core.client, "orders")
    core.do(core.reap("l", 1))
    core.client.zincrby(core.keys.leases, 3_600_000, "l")
    assert core.do(core.reap("l")) == Reaped(finished=True, moved=2, buried=0)


def test_a_lease_that_lives_again_is_left_alone(core: Core) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n")
    state.expire(core.client, "orders")
    core.do(core.extend("l", token))
    assert core.do(core.reap("l")) == Reaped(finished=True, moved=0, buried=0)
    assert core.do(core.settle("l", token, verdict("ack", "1"))).lost == []


def test_a_reap_of_nothing_leaves_no_record(core: Core) -> None:
    before = state.dumps(core.client)
    assert core.do(core.reap("l")) == Reaped(finished=True, moved=0, buried=0)
    assert state.dumps(core.client) == before


def test_a_reap_is_bounded_in_bytes(core: Core) -> None:
    core.do(core.publish("b", *(f"{number:01000000d}" for number in range(9))))
    core.opened("l", "n", 9)
    state.expire(core.client, "orders")
    first = core.do(core.reap("l"))
    assert not first.finished
    assert first.moved == 1, "half a megabyte is enough for one step"
    assert sum(core.do(core.reap("l")).moved for _ in range(8)) == 8
    assert core.do(core.depth()).returned == 9


def test_a_reap_counts_and_buries_alone(core: Core) -> None:
    core.rules = type(core.rules)(max_delivery_count=2)
    core.do(core.publish("b", "a"))
    for name in ("l1", "l2"):
        _, opened = core.opened(name, "n")
        state.expire(core.client, "orders")
        last = core.do(core.reap(name))
    assert last == Reaped(finished=True, moved=0, buried=1)
    assert state.contents(core.client, "orders").ids()["dead"] == [split_entry(opened.entries[0])[0].decode()]
    assert {"reaped": 1, "buried": 1, "in_flight": 0}.items() <= state.counters(core.client, "orders").items()


# ---------------------------------------------------------------------- extending


def test_extend_moves_the_deadline_to_now_plus_the_lease(core: Core, queue: RedisMessageQueue) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)

    def life() -> float:
        now = core.client.time()
        return float(core.client.zscore(core.keys.leases, lease.id)) / 1000 - now[0] - now[1] / 1e6

    lease.extend(600)
    assert 598 < life() <= 600
    lease.extend()
    assert 598 < life() <= 600, "what was asked for last holds on"
    lease.extend(1)
    assert life() <= 1
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="lease_seconds"):
            lease.extend(seconds)
    lease.ack()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert not lease.lost, "its holder settled it"


def test_no_lease_is_extended_past_its_longest_life(core: Core) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n")
    assert core.do(core.extend("l", token, longest=1000)) is Extended.OK
    packed = core.client.hget(core.keys.lease(b"l"), "m").split(b" ")
    packed[1] = b"%d" % (int(packed[1]) - 1_000_000)  # opened a thousand seconds ago
    core.client.hset(core.keys.lease(b"l"), "m", b" ".join(packed))
    assert core.do(core.extend("l", token, longest=1000)) is Extended.OVER
    assert core.do(core.extend("l", token)) is Extended.OK
    heir, _ = core.opened("l", "n2", takeover=token)
    assert core.do(core.extend("l", heir, longest=1000)) is Extended.OK, "counted from the takeover"


def test_lost_follows_the_renewals_and_not_the_verdicts(
    letters: Callable[..., Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = elapsed_clock()
    for module in ("_lease_base", "_lease_operations"):
        monkeypatch.setattr(f"sluicegate.{module}.elapsed_clock", lambda: now)
    lease = letters(2, lease_seconds=60)
    now += 59
    lease.ack(lease.messages[0])
    assert not lease.lost
    now += 2
    assert lease.lost, "an ack does not move the deadline"
    lease.extend(600)
    now += 599
    assert not lease.lost
    now += 2
    assert lease.lost
    lease.ack()
    now += 10_000
    assert not lease.lost, "there is nothing left to lose"


def test_states() -> None:
    assert [one.value for one in LeaseState] == ["open", "empty", "acked", "held", "paused"]


def _executed_but_unconfirmed(core: Core, lease: Lease, verb: Any, slots: str) -> None:
    """Send a settle whose reply gets lost after Redis executed it; the consumer's ledger still has the slots open."""
    assert core.do(core.settle(lease.id, lease.token, verdict(verb, slots))).lost == []


def test_a_message_named_twice_in_one_call_counts_once(queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    lease = queue.claim(3)
    lease.settle(Verdict("nack", lease.messages[0], error="named"), Verdict("nack"))
    assert lease.counts.returned == 3
    assert queue.depth().returned == 3
