"""Claims keep order and bounds, and give every answer that a lease id can get."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import Lease, LeaseState, RedisMessageQueue
from sluicegate.core.transitions.claim import ClaimRequest, Empty, Expired, Held, Opened
from tests.support import state
from tests.support.core_calls import Core, ids, verdict

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def texts(lease: Lease) -> list[str]:
    return [message.text() for message in lease.messages]


def letters(queue: RedisMessageQueue, names: str) -> None:
    queue.publish_many(list(names))


# ---------------------------------------------------------------------- order and bounds


def test_first_in_first_out(queue: RedisMessageQueue) -> None:
    numbers = [str(number) for number in range(3000)]
    queue.publish_many(numbers)
    got: list[str] = []
    for limit in (1, 7, 1000, 500, 1, 9, 2000):
        with queue.claim(limit) as lease:
            assert len(lease) == min(limit, 3000 - len(got))
            assert [message.slot for message in lease.messages] == list(range(1, len(lease) + 1))
            got += texts(lease)
    assert got == numbers


def test_an_empty_lease_is_falsy_and_says_why(queue: RedisMessageQueue) -> None:
    lease = queue.claim(5)
    assert (bool(lease), len(lease), list(lease), lease.state) == (False, 0, [], LeaseState.EMPTY)
    with lease:
        lease.ack()
    assert lease.lost is False


def test_the_largest_lease(queue: RedisMessageQueue) -> None:
    queue.publish_many(str(number) for number in range(10_001))
    with queue.claim(10_000) as lease:
        assert (len(lease), lease.messages[-1].text()) == (10_000, "9999")
    assert lease.counts.acked == 10_000
    assert queue.depth().ready == 1


@pytest.mark.parametrize("came_back", [False, True], ids=["pending", "returned"])
def test_a_lease_stops_once_it_holds_enough_bytes(core: Core, came_back: bool) -> None:
    core.do(core.publish("b", *(f"{number:01000d}" for number in range(100))))
    if came_back:
        token, _ = core.opened("first", "n", 100)
        core.do(core.settle("first", token, verdict("release", "1-100")))
    call = core.claim("l", "n", 100)
    small = (*call.args[:9], 10_000, *call.args[10:])
    reply = core.do(type(call)(call.script, call.keys, small, call.decode))
    assert ids(reply) == [f"{number:01000d}" for number in range(10)]


def test_messages_of_many_megabytes(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.core.rules.MAX_CLAIM_BYTES", 3_000_000)
    for letter in "abcde":
        queue.publish(letter * 1_000_000)
    sizes = []
    while lease := queue.claim(1000):
        sizes.append(texts(lease)[0][0] + str(len(lease)))
        lease.ack()
    assert sizes == ["a3", "d2"]


def test_what_came_back_goes_first_and_in_its_first_order(queue: RedisMessageQueue) -> None:
    letters(queue, "abcdef")
    first, second = queue.claim(2), queue.claim(2)
    second.release()
    first.release()
    assert texts(queue.claim(10)) == list("abcdef"), "released messages were never delivered: they mix with fresh ones"


def test_what_failed_before_does_not_mix_with_fresh_messages(queue: RedisMessageQueue) -> None:
    letters(queue, "abcdef")
    queue.claim(2).nack()
    tried = queue.claim(1000)
    assert texts(tried) == ["a", "b"]
    assert [message.delivery_count for message in tried.messages] == [2, 2]
    assert texts(queue.claim(1000)) == list("cdef")


def test_fresh_messages_wait_for_what_failed_only_one_claim(queue: RedisMessageQueue) -> None:
    letters(queue, "abc")
    one, other = queue.claim(1), queue.claim(1)
    other.nack()
    one.release()
    assert texts(queue.claim(10)) == ["a"], "an untried head takes no tried ones along"
    assert texts(queue.claim(10)) == ["b"]
    assert texts(queue.claim(10)) == ["c"]


@pytest.mark.parametrize(("failed", "most"), [(1, 250), (2, 62), (3, 15), (4, 3), (5, 1), (8, 1), (9, 1)])
def test_what_failed_travels_in_ever_smaller_batches(core: Core, failed: int, most: int) -> None:
    """A poison message among many is alone after a few crashes; ten is the cap here."""
    core.do(core.publish("b", *(str(number) for number in range(300))))
    token, reply = core.opened("l", "n", 300)
    core.do(core.settle("l", token, verdict("release", "1-300")))
    core.client.delete(core.keys.returned)
    tried = {entry[:25] + b"%03x" % failed + entry[28:]: at for at, entry in enumerate(reply.entries)}
    core.client.zadd(core.keys.returned, tried)
    assert ids(core.do(core.claim("next", "n", 1000))) == [str(number) for number in range(most)]


def test_the_most_failed_decides_how_many_travel_together(core: Core) -> None:
    core.do(core.publish("b", *"abcdef"))
    token, reply = core.opened("l", "n", 6)
    core.do(core.settle("l", token, verdict("release", "1-6")))
    core.client.delete(core.keys.returned)
    tried = {entry[:25] + b"%03x" % (3 if at == 3 else 1) + entry[28:]: at for at, entry in enumerate(reply.entries)}
    core.client.zadd(core.keys.returned, tried)
    assert ids(core.do(core.claim("next", "n", 128))) == ["a", "b", "c"], "with d, tried three times, two at most"


# ---------------------------------------------------------------------- answers


def test_a_repeat_under_the_same_nonce_is_the_same_lease(core: Core) -> None:
    core.do(core.publish("b", "a", "b", "c"))
    token, first = core.opened("l", "n", 2)
    state.expire(core.client, core.queue, "l")
    again = core.do(core.claim("l", "n", 2))
    assert isinstance(again, Opened)
    assert (again.opening, again.takeovers, again.slots, again.entries) == (first.opening, 0, [1, 2], first.entries)
    assert not core.do(core.reap("l")).moved, "its deadline was refreshed"
    core.do(core.settle("l", token, verdict("ack", "1")))
    left = core.do(core.claim("l", "n", 2))
    assert isinstance(left, Opened)
    assert (left.slots, left.entries) == ([2], first.entries[1:])
    assert core.do(core.depth()).pending == 1


def test_held_in_another_hand(make_queue: MakeQueue) -> None:
    queue = make_queue()
    letters(queue, "ab")
    holder = queue.claim(1, lease_id="run-1")
    other = queue.claim(1, lease_id="run-1")
    assert (other.state, bool(other)) == (LeaseState.HELD, False)
    assert 0 <= other.silent_seconds < 5
    assert queue.claim(1, lease_id="run-1", take_over_after_seconds=30).state is LeaseState.HELD
    assert queue.depth().pending == 1, "whoever is told `held` takes nothing else"
    holder.ack()


def test_taken_over(queue: RedisMessageQueue) -> None:
    letters(queue, "ab")
    holder = queue.claim(2, lease_id="run-1")
    heir = queue.claim(2, lease_id="run-1", take_over_after_seconds=0)
    assert heir.state is LeaseState.OPEN
    assert texts(heir) == ["a", "b"]
    assert (heir.takeovers, [message.delivery_count for message in heir.messages]) == (1, [2, 2])
    assert (heir.key, heir.opening) == (holder.key, holder.opening)
    assert heir.token != holder.token
    heir.ack()
    assert heir.counts.acked == 2


def test_a_takeover_waits_for_silence(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "a")
    holder = queue.claim(1, lease_id="run-1", lease_seconds=60)
    core.client.zincrby(core.keys.leases, -40_000, "run-1")  # 40 s pass without a heartbeat
    assert 40 <= queue.claim(1, lease_id="run-1").silent_seconds < 45
    assert queue.claim(1, lease_id="run-1", take_over_after_seconds=50).state is LeaseState.HELD
    holder.extend()
    assert queue.claim(1, lease_id="run-1", take_over_after_seconds=30).state is LeaseState.HELD
    core.client.zincrby(core.keys.leases, -40_000, "run-1")
    assert queue.claim(1, lease_id="run-1", take_over_after_seconds=30).state is LeaseState.OPEN


def test_a_takeover_counts_when_the_message_comes_back(queue: RedisMessageQueue) -> None:
    letters(queue, "a")
    queue.claim(1, lease_id="run-1")
    queue.claim(1, lease_id="run-1", take_over_after_seconds=0)
    queue.claim(1, lease_id="run-1", take_over_after_seconds=0).release()
    assert [message.delivery_count for message in queue.peek(state="returned")] == [2]


def test_acked_tells_what_became_of_it(queue: RedisMessageQueue) -> None:
    letters(queue, "abcdef")
    with queue.claim(5, lease_id="run-1") as lease:
        lease.nack(lease.messages[0])
        lease.release(lease.messages[1])
        lease.bury(lease.messages[2])
    answer = queue.claim(5, lease_id="run-1", take_over_after_seconds=0)
    assert (answer.state, bool(answer)) == (LeaseState.ACKED, False)
    assert (answer.counts.acked, answer.counts.returned, answer.counts.buried) == (2, 2, 1)
    assert answer.counts == lease.counts
    assert queue.depth().pending == 1


def test_an_end_is_remembered_for_the_retention(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "abcd")
    for lease_id, options, seconds in (
        ("short", {}, 3600),
        ("long", {"retention_seconds": 90_000}, 90_000),
        ("ten leases", {"lease_seconds": 1000}, 10_000),
    ):
        queue.claim(1, lease_id=lease_id, **options).ack()  # type: ignore[arg-type]
        life = core.client.pttl(core.keys.closed(core.keys.lease_name(lease_id))) / 1000
        assert seconds - 20 < life <= seconds


@pytest.mark.parametrize("end", ["release", "nack", "reap"])
def test_any_other_end_is_opened_anew(core: Core, queue: RedisMessageQueue, end: str) -> None:
    letters(queue, "a")
    first = queue.claim(1, lease_id="run-1")
    match end:
        case "release":
            first.release()
        case "nack":
            first.nack()
        case "reap":
            state.expire(core.client, core.queue)
    again = queue.claim(1, lease_id="run-1")
    assert again.state is LeaseState.OPEN
    assert texts(again) == ["a"]
    assert again.key != first.key
    assert (again.takeovers, again.messages[0].delivery_count) == (0, 1 if end == "release" else 2)


def test_an_end_that_is_forgotten_is_opened_anew(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "ab")
    queue.claim(1, lease_id="run-1").ack()
    state.forget_end(core.client, core.queue, "run-1")
    assert texts(queue.claim(1, lease_id="run-1")) == ["b"]


def test_empty_is_remembered_only_when_asked(core: Core, queue: RedisMessageQueue) -> None:
    assert queue.claim(1, lease_id="forgets").state is LeaseState.EMPTY
    first = queue.claim(1, lease_id="remembers", remember_empty=True)
    assert (first.state, first.remembered) == (LeaseState.EMPTY, False)
    letters(queue, "ab")
    again = queue.claim(1, lease_id="remembers")
    assert (again.state, again.remembered) == (LeaseState.EMPTY, True)
    assert texts(queue.claim(1, lease_id="forgets")) == ["a"]
    life = core.client.pttl(core.keys.closed(b"remembers")) / 1000
    assert 580 < life <= 600
    state.forget_end(core.client, core.queue, "remembers")
    assert texts(queue.claim(1, lease_id="remembers")) == ["b"]


def test_a_wait_for_a_remembered_empty_ends_at_once_and_leaves_the_wake_up_to_others(
    core: Core, queue: RedisMessageQueue
) -> None:
    queue.claim(1, lease_id="remembers", remember_empty=True)
    letters(queue, "a")
    rung = core.client.llen(core.keys.wakeup)

    lease = queue.claim(1, lease_id="remembers", wait_seconds=3600)

    assert (lease.state, lease.remembered) == (LeaseState.EMPTY, True)
    assert core.client.llen(core.keys.wakeup) == rung > 0


def test_empty_is_not_remembered_while_something_will_come_back(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "a")
    queue.claim(1).nack(delay_seconds=1000)
    assert queue.claim(1, lease_id="run-1", remember_empty=True).state is LeaseState.EMPTY
    state.fall_due(core.client, core.queue)
    due = core.do(core.claim("run-1", "n", maintain=False, remember_empty=True))
    assert isinstance(due, Empty)
    assert core.client.exists(core.keys.closed(b"run-1")) == 1  # from the first claim, when nothing was due
    state.forget_end(core.client, core.queue, "run-1")
    core.do(core.claim("run-2", "n", maintain=False, remember_empty=True))
    assert core.client.exists(core.keys.closed(b"run-2")) == 0


def test_a_remembered_empty_keeps_the_record_of_an_earlier_end(core: Core) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("l", "n1", 1)
    core.do(core.settle("l", token, verdict("nack", "1", delay_seconds=1000)))
    assert isinstance(core.do(core.claim("l", "n2", remember_empty=True)), Empty)
    assert isinstance(core.do(core.claim("l", "n3")), Empty)
    assert core.do(core.settle("l", token, verdict("nack", "1"))).lost == [], (
        "a repeat of the nack is still judged by it"
    )
    assert core.client.pttl(core.keys.closed(b"l")) > 3_000_000


def test_paused_refuses_only_new_messages(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "abc")
    holder = queue.claim(1, lease_id="run-1")
    done = queue.claim(1, lease_id="run-2")
    done.ack()
    core.client.hset(core.keys.counters, "paused", "1")
    assert queue.claim(1).state is LeaseState.PAUSED
    assert queue.claim(1, lease_id="run-3", remember_empty=True).state is LeaseState.PAUSED
    assert queue.claim(1, lease_id="run-2").state is LeaseState.ACKED
    heir = queue.claim(1, lease_id="run-1", take_over_after_seconds=0)
    assert texts(heir) == ["a"]
    assert queue.depth().paused
    heir.ack()
    assert holder.counts.acked == 0
    core.client.hdel(core.keys.counters, "paused")
    assert texts(queue.claim(1, lease_id="run-3")) == ["c"], "`paused` is never remembered"


def test_a_claim_of_an_expired_id_lets_it_come_back_first(core: Core) -> None:
    core.do(core.publish("b", "a", "b"))
    core.opened("l", "n1", 2)
    state.expire(core.client, core.queue)
    assert isinstance(core.do(core.claim("l", "n2")), Expired)
    assert isinstance(core.do(core.claim("l", "n2", takeover=b"?")), Held), "a takeover may keep the opening"


def test_a_library_made_id_is_never_twice_the_same(queue: RedisMessageQueue) -> None:
    letters(queue, "ab")
    one, other = queue.claim(), queue.claim()
    assert one.id != other.id
    assert one.key != other.key


# ---------------------------------------------------------------------- tidying


def test_claims_let_expired_and_due_messages_come_back(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "abcd")
    expired, delayed = queue.claim(1), queue.claim(1)
    delayed.nack(delay_seconds=1000)
    state.expire(core.client, core.queue)
    state.fall_due(core.client, core.queue)
    assert texts(queue.claim(10)) == ["a", "b"]
    assert not expired.counts.acked
    assert texts(queue.claim(10)) == ["c", "d"]


def test_the_first_order_holds_after_mass_expiry(core: Core, queue: RedisMessageQueue) -> None:
    """All leases that expired together are reaped before a claim takes anything, within ten calls."""
    queue.publish_many(str(number) for number in range(400))
    for _ in range(8):
        queue.claim(50)
    members = core.client.zrange(core.keys.leases, 0, -1)
    scrambled = {member: 1000 + (7 * at) % 8 for at, member in enumerate(members)}
    core.client.zadd(core.keys.leases, scrambled, xx=True)  # expired long ago, in another order than they were opened
    got: list[str] = []
    while lease := queue.claim(1000):
        got += texts(lease)
        lease.ack()
    assert got == [str(number) for number in range(400)]


def test_a_claim_makes_at_most_ten_calls_to_tidy(core: Core, queue: RedisMessageQueue) -> None:
    queue.publish_many(str(number) for number in range(40))
    for _ in range(40):
        queue.claim(1)
    state.expire(core.client, core.queue)
    core.client.config_resetstat()
    with queue.claim(1000) as lease:
        made = core.client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert 0 < len(lease) < 40
        assert made <= 12
    assert queue.depth().expired == 40 - len(lease)


def test_a_lease_without_a_deadline_comes_back(core: Core, queue: RedisMessageQueue) -> None:
    """Damage from outside must not make a claim of that id ask for ever."""
    letters(queue, "a")
    queue.claim(1, lease_id="run-1")
    core.client.delete(core.keys.leases)
    assert texts(queue.claim(1, lease_id="run-1")) == ["a"]


def test_a_deadline_without_a_lease_goes(core: Core, queue: RedisMessageQueue) -> None:
    letters(queue, "ab")
    queue.claim(1)
    name = core.client.zrange(core.keys.leases, 0, -1)[0]
    core.client.delete(core.keys.lease(name))
    state.expire(core.client, core.queue)
    assert texts(queue.claim(10)) == ["b"]
    assert core.client.zscore(core.keys.leases, name) is None
    core.client.hincrby(core.keys.counters, "in_flight", -1)


# ---------------------------------------------------------------------- foreign values


def test_foreign_values_are_buried_and_never_block(core: Core, queue: RedisMessageQueue) -> None:
    core.client.lpush(core.keys.pending, b"hello", b"", b"1" * 40, b"\xff\x1f\x1f")
    letters(queue, "a")
    core.client.lpush(core.keys.pending, *[b"junk %d" % number for number in range(2500)])
    letters(queue, "b")
    core.client.zadd(core.keys.returned, {b"not an entry": 0})
    assert texts(queue.claim(10)) == ["a"]
    assert texts(queue.claim(10)) == ["b"]
    assert queue.depth().dead == 4 + 2500 + 1
    assert state.counters(core.client, "orders")["foreign"] == 2505
    dead = {letter.value: letter for letter in queue.peek(10_000, state="dead")}
    for value in (b"hello", b"", b"\xff\x1f\x1f", b"not an entry", b"junk 7"):
        assert (dead[value].reason, dead[value].message) == ("foreign", None)


def test_a_queue_of_nothing_but_foreign_values_is_empty(core: Core, queue: RedisMessageQueue) -> None:
    core.client.rpush(core.keys.pending, *[b"junk"] * 15_000)
    assert queue.claim(1).state is LeaseState.EMPTY
    assert queue.depth().dead == 15_000


def test_a_request_is_what_the_shell_makes_of_the_arguments(queue: RedisMessageQueue) -> None:
    letters(queue, "a")
    lease = queue.claim(3, lease_id="run: 1", lease_seconds=90, retention_seconds=7200)
    nonce = lease.token.split(b":")[0]
    assert lease._batch.claim.request == ClaimRequest(
        b"run%3A 1", nonce, 3, 90, 7200, 0, consumer=queue.session.consumer
    )
