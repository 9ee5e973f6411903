"""Every call may be executed twice, or between two script flushes, without a second effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from sluicegate import Lease, RedisMessageQueue
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.transitions.batches import batch_call, ended_call
from sluicegate.core.transitions.claim import Acked, Changed, Empty, Held, Opened
from sluicegate.core.transitions.conclude import Conclusion, conclude_call
from sluicegate.core.transitions.depth import Depth
from sluicegate.core.transitions.in_flight import LeasePage, in_flight_call
from sluicegate.core.transitions.keep_driver import keep_driver_call
from sluicegate.core.transitions.manifest import LeaseView, manifest_call
from sluicegate.core.transitions.peek import peek_pending_call
from sluicegate.core.transitions.publish import Published
from sluicegate.core.transitions.reap import Reaped
from sluicegate.core.transitions.remember_returned import remember_returned_call
from sluicegate.spark.transitions import acquire_consumer_call, commit_write_call, stage_rows_call
from tests.faults import (
    admin_cases,
    block_cases,
    consumer_cases,
    ending_cases,
    group_cases,
    job_cases,
    run_cases,
    stream_cases,
    tracking_cases,
    write_cases,
)
from tests.support import state
from tests.support.core_administration import Admin
from tests.support.core_calls import Core, verdict

MakeQueue = Callable[..., RedisMessageQueue]
Prepare = Callable[[Core], Call[Any]]
CONCLUSION = Conclusion(b"l", b"n:o", 3600, True, False)


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def lease(core: Core, letters: str = "abcdef") -> bytes:
    core.do(core.publish("b", *letters))
    return core.opened("l", "n", len(letters))[0]


def publish_without_keys(core: Core) -> Call[Any]:
    return core.publish("b", "a", "b", "a")


def publish_with_keys(core: Core) -> Call[Any]:
    return core.publish("b", "a", "b", "c", keyed=True)


def publish_with_keys_and_receipt(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "b", keyed=True))
    call = core.publish("b", "a", "b", "a", keyed=True)
    args = [*call.args[:4], 600_000, *call.args[5:]]
    return Call(call.script, call.keys, args, call.decode, call.elapsed_arg)


def publish_nothing_but_duplicates(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "a", "b", keyed=True))
    return core.publish("b", "b", "a", keyed=True)


def publish_delayed(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "z", delay_seconds=2000))
    return core.publish("b", "a", "b", keyed=True, delay_seconds=1000)


def publish_until_acked(core: Core) -> Call[Any]:
    return core.publish("b", "a", "b", "a", keyed=True, receipt=600, kind=b"2", delay_seconds=1000)


def publish_up_to_the_cap(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "z"))
    return core.publish("b", "a", "b", keyed=True, max_pending_length=3)


def publish_beyond_the_cap(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "y", "z"))
    return core.publish("b", "a", "b", keyed=True, max_pending_length=3)


def publish_in_part(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "b", keyed=True))
    return core.publish("b", "a", "b", "c", "d", keyed=True, receipt=600, max_pending_length=3, overload="partial")


def publish_dropping_the_oldest(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "y", "z"))
    return core.publish("b", "a", "b", max_pending_length=3, overload="drop_oldest")


def publish_too_late(core: Core) -> Call[Any]:
    return core.publish("b", "a", age=501)


def claim(core: Core) -> Call[Any]:
    core.do(core.publish("b", *"abc"))
    return core.claim("l", "n", 2)


def claim_with_foreign_values(core: Core) -> Call[Any]:
    core.client.rpush(core.keys.pending, b"junk", b"more")
    core.do(core.publish("b", *"abc"))
    return core.claim("l", "n", 2)


def claim_nothing(core: Core) -> Call[Any]:
    return core.claim("l", "n")


def claim_nothing_and_remember(core: Core) -> Call[Any]:
    return core.claim("l", "n", remember_empty=True)


def claim_what_is_open(core: Core) -> Call[Any]:
    lease(core)
    return core.claim("l", "n")


def adopt(core: Core) -> Call[Any]:
    lease(core)
    return core.claim_known("l", "n")


def adopt_with_a_foreign_value(core: Core) -> Call[Any]:
    lease(core)
    core.client.hset(core.keys.lease(b"l"), "2", b"junk")
    return core.claim_known("l", "n")


def take_over(core: Core) -> Call[Any]:
    return core.claim_known("l", "heir", takeover=lease(core))


def take_over_too_late(core: Core) -> Call[Any]:
    token = lease(core)
    core.do(core.claim_known("l", "other", takeover=token))
    return core.claim_known("l", "heir", takeover=token)


def ask_who_holds(core: Core) -> Call[Any]:
    lease(core)
    return core.claim("l", "heir", takeover=b"?")


def claim_what_was_acked(core: Core) -> Call[Any]:
    core.do(core.settle("l", lease(core), verdict("ack", "1-6")))
    return core.claim("l", "n2")


def ack_whole(core: Core) -> Call[Any]:
    return core.ack_whole("l", lease(core), 6)


def ack_whole_without_record(core: Core) -> Call[Any]:
    return core.ack_whole("l", lease(core, "a"), 1, recorded=False)


def ack_whole_with_a_wrong_token(core: Core) -> Call[Any]:
    lease(core)
    return core.ack_whole("l", b"n:1-1", 6)


def ack_whole_after_a_part(core: Core) -> Call[Any]:
    token = lease(core)
    core.do(core.settle("l", token, verdict("ack", "2")))
    return core.ack_whole("l", token, 6)


def one_open(core: Core, letters: str = "abc") -> tuple[str, bytes]:
    """Open a lease of one message whose id is its nonce; returns its id and token."""
    core.do(core.publish("b", *letters))
    return "m", b"m:" + core.do(core.ack_and_claim("m")).opening


def ack_and_claim(core: Core) -> Call[Any]:
    return core.ack_and_claim("n", one_open(core))


def claim_one(core: Core) -> Call[Any]:
    core.do(core.publish("b", "a"))
    return core.ack_and_claim("n", consumer=b"me")


def ack_one(core: Core) -> Call[Any]:
    return core.ack_and_claim("n", one_open(core), claims=False)


def ack_and_claim_nothing(core: Core) -> Call[Any]:
    return core.ack_and_claim("n", one_open(core, "a"))


def ack_and_claim_what_is_not_plain(core: Core) -> Call[Any]:
    last = one_open(core)
    core.bind("b")
    return core.ack_and_claim("n", last)


def ack_and_claim_without_the_token(core: Core) -> Call[Any]:
    one_open(core)
    return core.ack_and_claim("n", ("m", b"m:1-1"))


def ack_all(core: Core) -> Call[Any]:
    return core.settle("l", lease(core), verdict("ack", "1-6"))


def ack_some(core: Core) -> Call[Any]:
    return core.settle("l", lease(core), verdict("ack", "2,4-5"))


def settle_a_mixture(core: Core) -> Call[Any]:
    return core.settle(
        "l",
        lease(core),
        verdict("ack", "1"),
        verdict("nack", "2"),
        verdict("nack", "3", delay_seconds=1000),
        verdict("release", "4"),
        verdict("bury", "5", why=b"r\x1fE\x1ft"),
    )


def settle_a_mixture_to_the_end(core: Core) -> Call[Any]:
    token = lease(core)
    return core.settle("l", token, verdict("ack", "1-3"), verdict("release", "4"), verdict("bury", "5-6"))


def nack_to_death(core: Core) -> Call[Any]:
    core.rules = type(core.rules)(max_delivery_count=1)
    return core.settle("l", lease(core, "ab"), verdict("nack", "1-2"))


def ack_one_without_record(core: Core) -> Call[Any]:
    return core.settle("l", lease(core, "a"), verdict("ack", "1"), recorded=False)


def nack_one_without_record(core: Core) -> Call[Any]:
    return core.settle("l", lease(core, "a"), verdict("nack", "1"), recorded=False)


def settle_with_a_wrong_token(core: Core) -> Call[Any]:
    lease(core)
    return core.settle("l", b"n:1-1", verdict("ack", "1-6"))


def extend(core: Core) -> Call[Any]:
    return core.extend("l", lease(core), 90)


def extend_what_is_lost(core: Core) -> Call[Any]:
    lease(core)
    return core.extend("l", b"n:1-1")


def reap(core: Core) -> Call[Any]:
    core.do(core.settle("l", lease(core), verdict("ack", "2")))
    state.expire(core.client, core.queue)
    return core.reap("l")


def promote(core: Core) -> Call[Any]:
    core.do(core.settle("l", lease(core), verdict("nack", "1-4", delay_seconds=1000)))
    state.fall_due(core.client, core.queue)
    return core.promote()


def depth(core: Core) -> Call[Any]:
    lease(core)
    return core.depth()


def look_at_a_lease(core: Core) -> Call[Any]:
    lease(core)
    return manifest_call(core.keys, b"l", 1, 2)


def conclude(core: Core) -> Call[Any]:
    core.rules = replace(core.rules, completed_cap=5, failed_cap=5)
    core.do(core.publish("b", *"ab"))
    token, opened = core.opened("l", "n", 2)
    core.do(core.settle("l", token, verdict("ack", "1-2")))
    ended = Conclusion(b"l", token, 3600, True, False)
    return conclude_call(core.keys, core.rules, ended, 1, 1, 1, opened.entries)


def look_into_leases(core: Core) -> Call[Any]:
    lease(core)
    return in_flight_call(core.keys, LeasePage(b"0", [b"l"]), count=2)


def peek(core: Core) -> Call[Any]:
    lease(core)
    return peek_pending_call(core.keys, 5)


# What maintenance answers is what it did: nothing is left to do for its repeat.
ANSWERS_WHAT_IT_DID = (
    reap, promote, *admin_cases.REPAIRS, admin_cases.repair_a_block, admin_cases.recount_blocks, conclude,
    *ending_cases.TOLD_ONCE, *run_cases.TOLD_ONCE, *block_cases.TOLD_ONCE,
    *tracking_cases.TOLD_ONCE, *stream_cases.TOLD_ONCE, *group_cases.TOLD_ONCE,
)  # fmt: skip
CASES: list[Prepare] = [
    publish_without_keys, publish_with_keys, publish_with_keys_and_receipt, publish_nothing_but_duplicates,
    publish_delayed, publish_until_acked, publish_up_to_the_cap, publish_beyond_the_cap, publish_in_part,
    publish_dropping_the_oldest, publish_too_late,
    claim, claim_with_foreign_values, claim_nothing, claim_nothing_and_remember,
    claim_what_is_open, adopt, adopt_with_a_foreign_value, take_over, take_over_too_late, ack_whole,
    ack_whole_without_record, ack_whole_with_a_wrong_token, ack_whole_after_a_part, ack_and_claim, claim_one, ack_one,
    ack_and_claim_nothing, ack_and_claim_what_is_not_plain, ack_and_claim_without_the_token,
    ask_who_holds, claim_what_was_acked, ack_all, ack_some, settle_a_mixture, settle_a_mixture_to_the_end,
    nack_to_death, ack_one_without_record, nack_one_without_record, settle_with_a_wrong_token, extend,
    extend_what_is_lost, reap, promote, depth, peek, look_at_a_lease, look_into_leases, conclude,
    *admin_cases.READING, *admin_cases.CHANGING, *admin_cases.REPAIRS, *admin_cases.CHANGING_BLOCKS,
    admin_cases.peek_into_blocks, *ending_cases.CASES,
    *block_cases.CASES, *run_cases.CASES, *consumer_cases.CASES, *write_cases.CASES, *tracking_cases.CASES,
    *stream_cases.CASES,
    *group_cases.CASES,
    *job_cases.CASES,
]  # fmt: skip


def effect(core: Core) -> dict[bytes, Any]:
    """Return what is stored, without what may differ: deadlines, and the count of repeated duplicates."""
    stored: dict[bytes, Any] = dict(state.dumps(core.client))
    for leases in (core.keys.leases, group_cases.KEYS.leases):
        stored[leases] = [name for name, _ in stored.get(leases, [])]
    stored.get(group_cases.KEYS.counters, {}).pop(b"adopt_at", None)
    for counters in (core.keys.counters, stream_cases.STREAM.counters):
        stored.get(counters, {}).pop(b"duplicates", None)
    for drivers in stored.keys() & {core.keys.drivers("r")}:
        stored[drivers] = {nonce: driver.split()[::2] for nonce, driver in stored[drivers].items()}
    return stored


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
@pytest.mark.every_server
def test_executed_twice(core: Core, prepare: Prepare) -> None:
    call = prepare(core)
    first = core.do(call)
    once = effect(core)
    second = core.do(call)
    assert effect(core) == once
    match first:
        case Held():
            assert isinstance(second, Held)
            assert second.token == first.token
        case Opened():
            assert isinstance(second, Opened)
            assert replace(second, slots=[]) == Opened(first.opening, first.takeovers, [], first.entries)
            assert list(second.leased().slots) == list(first.leased().slots)
        case Empty():
            assert isinstance(second, Empty)
        case LeaseView():
            assert replace(second, left_seconds=first.left_seconds) == first
        case Depth():
            times = {name: getattr(first, name) for name in ("next_due_seconds", "next_expiry_seconds")}
            assert replace(second, **times) == first
        case _ if prepare not in ANSWERS_WHAT_IT_DID:
            assert second == first


@pytest.mark.parametrize(
    "prepare", [ack_whole_with_a_wrong_token, ack_whole_after_a_part], ids=lambda prepare: prepare.__name__
)
def test_an_ack_of_another_or_a_partly_settled_lease_changes_nothing(core: Core, prepare: Prepare) -> None:
    call = prepare(core)
    before = state.dumps(core.client)
    assert core.do(call) is None
    assert state.dumps(core.client) == before


def test_a_whole_ack_is_not_proved_by_the_ack_of_a_part(core: Core) -> None:
    """A lease that was taken over held two messages of four, and was reaped."""
    token = lease(core, "abcd")
    core.do(core.settle("l", token, verdict("ack", "3-4")))
    state.expire(core.client, core.queue)
    while not core.do(core.reap("l")).finished:
        pass
    assert core.do(core.ack_whole("l", token, 2)) is None


def test_a_takeover_executed_late_changes_nothing(core: Core) -> None:
    call = take_over_too_late(core)
    before = effect(core)
    assert core.do(call) == Changed()
    assert effect(core) == before


def test_every_script_is_among_them(core: Core, client: redis.Redis) -> None:
    executed = set()
    for prepare in CASES:
        client.flushall()
        executed.add(prepare(core).script.name)
    assert executed == set(scripts.NAMES)


def test_a_repeat_counts_the_messages_once(core: Core) -> None:
    for _ in range(3):
        core.do(settle_a_mixture_to_the_end(core) if not core.client.exists(core.keys.counters) else core.depth())
    totals = state.counters(core.client, "orders")
    assert totals == {"published": 6, "claimed": 6, "acked": 3, "released": 1, "buried": 2, "failed": 2, "in_flight": 0}


@pytest.mark.parametrize("prepare", [reap, promote], ids=lambda prepare: prepare.__name__)
def test_maintenance_in_steps_moves_each_message_once(core: Core, prepare: Prepare) -> None:
    call = prepare(core)
    step = {"reap": 1, "promote": 0}[call.script.name]
    args = [2 if at == step else arg for at, arg in enumerate(call.args)]
    small = Call(call.script, call.keys, args, call.decode)
    for _ in range(6):
        core.do(small)
        state.check(core.client)
    back = state.contents(core.client, core.queue).ids()["returned"]
    assert sorted(back) == [f"b-{at}" for at in ((0, 2, 3, 4, 5) if prepare is reap else (0, 1, 2, 3))]


def test_thousands_in_one_step(core: Core) -> None:
    """More than Lua can unpack at once, in every script that moves messages."""
    for batch in range(10):
        core.do(core.publish(f"b{batch}", *(str(number) for number in range(1000))))
    token, _ = core.opened("l", "n", 10_000)
    core.do(core.settle("l", token, verdict("nack", "1-10000", delay_seconds=1000, named=False)))
    state.fall_due(core.client, core.queue)
    assert core.do(core.promote(10_000)) == 10_000
    core.client.delete(core.keys.returned)
    core.do(core.settle("l", token, verdict("nack", "1-10000")))
    for batch in range(10):
        core.do(core.publish(f"c{batch}", *(str(number) for number in range(1000))))
    core.opened("m", "n", 10_000)
    state.expire(core.client, core.queue)
    assert core.do(core.reap("m", 10_000)) == Reaped(finished=True, moved=10_000, buried=0)


# ---------------------------------------------------------------------- late


def test_a_claim_executed_late_takes_no_second_batch_while_its_end_is_remembered(core: Core) -> None:
    core.do(core.publish("b", *"abcd"))
    call = core.claim("l", "n", 2)
    reply = core.do(call)
    assert isinstance(reply, Opened)
    core.do(core.settle("l", b"n:" + reply.opening, verdict("ack", "1-2")))
    assert core.do(call) == Acked(2, 0, 0)
    assert core.do(core.depth()).pending == 2


def test_a_claim_executed_late_opens_under_a_token_of_its_own(core: Core) -> None:
    core.do(core.publish("b", *"ab"))
    call = core.claim("l", "n", 1)
    first = core.do(call)
    assert isinstance(first, Opened)
    old = b"n:" + first.opening
    core.do(core.settle("l", old, verdict("ack", "1"), recorded=False))
    ghost = core.do(call)
    assert isinstance(ghost, Opened)
    assert ghost.opening != first.opening
    assert core.do(core.settle("l", old, verdict("ack", "1"))).lost == [1], "nobody has worked on this message"


def test_a_step_executed_twice_finds_both_leases_as_it_left_them(core: Core) -> None:
    call = ack_and_claim(core)
    first = core.do(call)
    assert core.do(call.later(1000)) == first
    assert (state.counters(core.client, "orders")["acked"], core.do(core.depth()).in_flight) == (1, 1)
    assert core.do(core.ack_whole("n", b"n:" + first.opening, 1, recorded=False)) is not None


def test_a_takeover_executed_late_does_not_take_from_the_next(core: Core) -> None:
    core.do(core.publish("b", "a"))
    first, _ = core.opened("l", "n1")
    late = core.claim("l", "n2", takeover=first)
    core.do(late)
    held = core.do(core.claim("l", "n3", takeover=b"?"))
    assert isinstance(held, Held)
    third, _ = core.opened("l", "n3", takeover=held.token)
    again = core.do(late)
    assert isinstance(again, Held)
    assert again.token == third
    assert core.do(core.settle("l", third, verdict("ack", "1"))).lost == []


@pytest.mark.parametrize("keyed", [False, True])
def test_a_publish_executed_late_is_found_done(core: Core, keyed: bool) -> None:
    call = core.publish("b", "a", "b", keyed=keyed)
    first = core.do(call)
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("ack", "1-2")))
    assert core.do(call.later(499)) == first
    assert core.do(core.depth()).pending == 0


@pytest.mark.parametrize("keyed", [False, True])
def test_a_publish_too_late_to_be_judged_is_refused(core: Core, keyed: bool) -> None:
    call = core.publish("b", "a", "b", keyed=keyed)
    assert core.do(call.later(501)) == Published(-1, {})
    assert core.do(core.depth()).pending == 0


def test_a_receipt_tells_a_late_repeat_the_outcome_whatever_its_age(core: Core) -> None:
    call = core.publish("b", "a")
    core.do(call)
    assert core.do(call.later(10_000)) == Published(1, {})


# ---------------------------------------------------------------------- script flush


def consume_two(queue: RedisMessageQueue, earlier: Lease) -> None:
    earlier.ack()
    queue.publish_many([{"id": 101}, {"id": 102}])
    assert [message.json()["id"] for message in queue.consume(wait_seconds=0)] == [101, 102]


def test_scripts_flushed_between_any_two_calls(
    make_queue: MakeQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(get_deduplication_key="id", max_delivery_count=2)
    execute, sent = queue.session.runner.gateway.execute, []

    def flushing(call: Call[Any], **options: Any) -> Any:
        client.script_flush()
        sent.append(call.script.name)
        return execute(call, **options)

    monkeypatch.setattr(queue.session.runner.gateway, "execute", flushing)
    report = queue.publish_many({"id": number % 5} for number in range(7))
    assert (report.accepted, report.duplicates) == (5, 2)
    a, b, c, d, e = (lease := queue.claim(5)).messages
    lease.extend()
    lease.ack(a)
    lease.nack(b)
    lease.nack(c, delay_seconds=1000)
    lease.bury(d)
    state.expire(client, "orders")
    state.fall_due(client, "orders")
    assert queue.depth().ready == 3
    for expected in (b, c, e):
        with queue.claim(1) as one:
            assert [message.id for message in one.messages] == [expected.id]
    assert len(queue.peek(state="dead")) == 1
    assert queue.depth().ready == queue.depth().in_flight == 0
    admin = Admin(client)
    admin.do = flushing  # type: ignore[method-assign]
    assert (admin.pause(), admin.resume(), admin.forget("1")) == (True, True, True)
    assert admin.redrive().redriven == 1
    (waiting,) = queue.peek()
    assert admin.cancel([waiting.id]) == [waiting.id]
    assert admin.purge("failed") == 0
    assert (admin.stats().redriven, admin.stats().cancelled) == (1, 1)
    assert queue.repair().mended == 0
    assert [
        admin.do(remember_returned_call(queue.session.keys, queue.session.keys.run("r"), [b"1"])),
        admin.do(keep_driver_call(queue.session.keys, "r", b"n", "here", life_seconds=60)).others,
    ] == [(False,), ()]
    assert admin.do(stage_rows_call(queue.session.keys, b"s", 0, write_cases.PARTS, life_seconds=60)) == 4
    opened = admin.do(commit_write_call(queue.session.keys, b"w", "open", {"s": "4 4"}, life_seconds=60))
    assert opened.left == {"s": "4 4"}
    assert admin.do(acquire_consumer_call(queue.session.keys, "c", b"n", 0)).acquired
    about_jobs = [admin.do(call) is None for call in job_cases.of_unknown_jobs(queue.session.keys)]
    assert (about_jobs, admin.do(manifest_call(queue.session.keys, b"l")).state) == ([False] * 5, "unknown")
    assert not admin.do(conclude_call(queue.session.keys, queue.session.rules, CONCLUSION, 1, 1, 0, []))
    assert admin.do(batch_call(queue.session.keys, "status", b"G")).total == -1
    assert admin.do(ended_call(queue.session.keys, [b"b:G"])).members == []
    admin_cases.look_around(queue.session.keys, admin.do)
    queue.publish({"id": 100})
    first = queue.claim(1, lease_id="run-1")
    heir = queue.claim(1, lease_id="run-1", take_over_after_seconds=0)
    assert [message.id for message in heir.messages] == [message.id for message in first.messages]
    consume_two(queue, heir)
    stream_cases.run_all(client, flushing)
    group_cases.run_all(client, flushing)
    assert set(sent) == set(scripts.NAMES)
    assert client.info("commandstats")["cmdstat_eval"]["calls"] == len(sent)
