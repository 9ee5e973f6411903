"""The queue against a pure model: after any sequence of operations every message is where the model says, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tenacity import wait_fixed

from sluicegate import BatchStatus, Lease, LeaseHandle, LeaseState, Verdict
from sluicegate.core.call import Call
from sluicegate.core.entry import read_prefix, split_entry
from sluicegate.core.keys import QueueKeys
from sluicegate.core.tracking import batch_fields, batch_member, batch_name
from sluicegate.core.transitions.batches import BatchCounts
from sluicegate.errors import AlreadySettledError, LeaseLostError, QueueBackpressureError
from tests.conformance.model import Model, Opening, Rules
from tests.support import markers, state
from tests.support.flavours import Flavour, Loop, Maker
from tests.support.making import small_blocks
from tests.support.servers import PROGRAMS
from tests.support.settings import THOROUGH

# 10,000 steps in all, whatever number of servers there is.
STEPS_EACH, STEPS_AT_ONCE = -(-10_000 // (2 * len(PROGRAMS))) * (1 + THOROUGH), 50
VERBS = st.sampled_from(["ack", "ack", "nack", "delay", "release", "bury", "discard"])
KEYS = QueueKeys("q")
KEYS_OF_A_BATCH = st.lists(st.integers(0, 60), min_size=1, max_size=8)
RULES = st.one_of(
    st.builds(
        Rules,
        until_acked=st.booleans(),
        max_pending_length=st.sampled_from([None, 6]),
        max_dead_length=st.sampled_from([None, 2]),
        completed=st.sampled_from([None, 3]),
        failed=st.sampled_from([None, 3]),
        on_error=st.sampled_from(["retry", "bury", "discard"]),
    ),
    st.just(Rules(keyed=False, most=None, max_pending_length=6, drops=True, completed=3, failed=3)),
)


class Boom(Exception):
    pass


def _open(lease: Lease) -> list[int]:
    """Return the slots that this object may still settle."""
    return [] if lease._batch.is_detached else lease._batch.verdicts.open


def make_queue(make: Maker, rules: Rules) -> Any:
    keyed: dict[str, Any] = {"get_deduplication_key": "id"} if rules.keyed else {}
    return make(
        "q",
        deduplication_policy="until_acked" if rules.until_acked else "window",
        max_delivery_count=rules.most,
        max_pending_length=rules.max_pending_length,
        pending_overload_policy="drop_oldest" if rules.drops else "raise",
        max_dead_length=rules.max_dead_length,
        enable_completed_queue=rules.completed is not None,
        max_completed_length=rules.completed or 1000,
        enable_failed_queue=rules.failed is not None,
        max_failed_length=rules.failed or 1000,
        on_error=rules.on_error,
        retry_backoff=wait_fixed(1000),
        **keyed,
    )


class Machine(RuleBasedStateMachine):
    holders = Bundle("holders")
    steps = 0

    def __init__(self, client: redis.Redis, make: Maker) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.make = make
        self.leases: list[Lease] = []
        self.lost_replies = 0
        self.batches: dict[str, tuple[list[dict[str, int]], int, Any]] = {}  # payloads, delay, report

    @initialize(rules=RULES)
    def begin(self, rules: Rules) -> None:
        Machine.steps -= 1
        self.model = Model(rules)
        self.queue = make_queue(self.make, rules)
        lose_replies(self)

    # ------------------------------------------------------------------ publish, claim

    @rule(keys=KEYS_OF_A_BATCH)
    def publish(self, keys: list[int]) -> None:
        self._publish(keys, delay=False, partial=False)

    @rule(keys=KEYS_OF_A_BATCH, delay=st.booleans(), partial=st.booleans())
    def publish_otherwise(self, keys: list[int], delay: bool, partial: bool) -> None:
        self._publish(keys, delay=delay, partial=partial)

    @rule(keys=KEYS_OF_A_BATCH, delay=st.booleans())
    def publish_as_a_unit(self, keys: list[int], delay: bool) -> None:
        self._publish(keys, delay=delay, partial=False, batch_id=f"unit {len(self.batches)}")

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def a_batch_is_repeated(self, data: st.DataObject) -> None:
        """It rejoins its batch: the outcomes are the same, and nothing is published again."""
        batch_id = data.draw(st.sampled_from(list(self.batches)))
        payloads, delay_seconds, report = self.batches[batch_id]
        if report is not None:
            assert self.queue.batch(payloads, batch_id=batch_id, delay_seconds=delay_seconds).report == report

    def _publish(self, keys: list[int], *, delay: bool, partial: bool, batch_id: str | None = None) -> None:
        model, partial = self.model, partial and not self.model.rules.drops
        if model.rules.drops:
            keys = keys[: model.rules.max_pending_length]  # more are published in calls of so many
        if model.rules.until_acked:
            keys = [key % 12 for key in keys]  # they come free, and shall be used again
        before = sorted(self.client.hgetall(KEYS.counters).items())
        payloads, delay_seconds = [{"id": key} for key in keys], 1000 if delay else 0
        try:
            if batch_id is None:
                report = self.queue.publish_many(payloads, delay_seconds=delay_seconds, partial=partial)
            else:
                self.batches[batch_id] = payloads, delay_seconds, None
                report = self.queue.batch(payloads, batch_id=batch_id, delay_seconds=delay_seconds).report
                self.batches[batch_id] = payloads, delay_seconds, report
        except QueueBackpressureError:
            assert (
                model.publish([f"refused-{at}" for at in range(len(keys))], keys, delay=delay, partial=partial) is None
            )
            assert sorted(self.client.hgetall(KEYS.counters).items()) == before
            return
        reported = model.publish(report.ids, keys, delay=delay, partial=partial)
        assert reported is not None, "there was no room"
        assert report.duplicate_of == reported.owners
        assert report.refused_positions == reported.refused
        assert (report.accepted, report.dropped) == (reported.accepted, reported.dropped)
        assert report.accepted + report.duplicates + report.refused == len(keys)

    @precondition(lambda self: len(self.model.leases) < 4)
    @rule(target=holders, limit=st.integers(1, 9))
    def claim(self, limit: int) -> Lease:
        lease = self.queue.claim(limit, heartbeat=False)
        self.leases.append(lease)
        self._opened(lease, lease.id, limit, recorded=len(lease) != 1)
        return lease  # type: ignore[no-any-return]

    @precondition(lambda self: len(self.model.leases) < 4)
    @rule(target=holders, lease_id=st.sampled_from("AB"), limit=st.integers(1, 9), take_over=st.booleans())
    def claim_by_id(self, lease_id: str, limit: int, take_over: bool) -> Lease:
        after = 0 if take_over else None
        lease: Lease = self.queue.claim(limit, lease_id=lease_id, take_over_after_seconds=after, heartbeat=False)
        known = self.model.leases.get(lease_id)
        if known and take_over:
            known.takeovers, known.token, known.expired = known.takeovers + 1, lease.token, False
            assert lease.state is LeaseState.OPEN
            assert lease.takeovers == known.takeovers
            assert {message.slot: message.id for message in lease.messages} == known.slots
            return lease
        if known and not known.expired:
            assert lease.state is LeaseState.HELD
            return lease
        if known:
            self.model.reap(lease_id)
        end = self.model.ends.get(lease_id)
        if end and not {"left"} & set(end.fates.values()) and {"acked", "buried"} & set(end.fates.values()):
            assert lease.state is LeaseState.ACKED
            assert (lease.counts.acked, lease.counts.returned, lease.counts.buried) == end.counts()
            return lease
        self._opened(lease, lease_id, limit, recorded=True)
        return lease

    def _opened(self, lease: Lease, lease_id: str, limit: int, *, recorded: bool) -> None:
        if self.model.paused:
            assert (lease.state, lease.messages) == (LeaseState.PAUSED, [])
            return
        self.model.tidy()
        taken = self.model.take(limit)
        assert [message.id for message in lease.messages] == taken
        assert lease.state is (LeaseState.OPEN if taken else LeaseState.EMPTY)
        counts = [self.model.known[name].deliveries + 1 for name in taken]
        assert [message.delivery_count for message in lease.messages] == counts
        if taken:
            slots = dict(enumerate(taken, 1))
            self.model.leases[lease_id] = Opening(lease.token, slots, len(taken), recorded)

    # ------------------------------------------------------------------ settle, extend

    @rule(lease=holders, data=st.data())
    def settle_some(self, lease: Lease, data: st.DataObject) -> None:
        unsettled = [message for message in lease.messages if message.slot in _open(lease)]
        if not unsettled:
            return
        some = data.draw(st.lists(st.sampled_from(unsettled), unique=True, min_size=1))
        drawn = [(data.draw(VERBS), message) for message in some]
        verbs = {message.slot: (verb, True) for verb, message in sorted(drawn, key=lambda one: (one[0], one[1].slot))}
        verdicts = [
            _verdict(verb, [message for given, message in drawn if given == verb])
            for verb in sorted({verb for verb, _ in verbs.values()})
        ]
        self._settle(lease, verbs, verdicts)

    @rule(lease=holders, verb=VERBS)
    def settle_the_rest(self, lease: Lease, verb: str) -> None:
        verbs = dict.fromkeys(_open(lease), (verb, False))
        if verbs:
            self._settle(lease, verbs, [_verdict(verb, None)])

    def _settle(self, lease: Lease, verbs: dict[int, tuple[str, bool]], verdicts: list[Verdict]) -> None:
        expected = self.model.settle(lease.id, lease.token, verbs)
        if not expected:
            lease.settle(*verdicts)
            return
        with pytest.raises(LeaseLostError) as caught:
            lease.settle(*verdicts)
        assert sorted(caught.value.lost) == sorted(expected)
        assert sorted(caught.value.settled) == sorted(set(verbs) - set(expected))
        assert lease.lost

    @rule(lease=holders, whole=st.booleans())
    def a_handler_raises(self, lease: Lease, whole: bool) -> None:
        """Over the batch as a whole, or over the first of its messages."""
        unsettled, on_error = list(_open(lease)), self.model.rules.on_error
        if not unsettled:
            return
        failed = {"retry": "delay"}.get(on_error, on_error)
        with pytest.raises(Boom):
            _fail_in(lease, whole)
        if lease._batch.yielded < 0:
            verbs = dict.fromkeys(unsettled, (failed if len(lease.messages) == 1 else "delay", False))
        else:
            first = lease.messages[0].slot
            verbs = {slot: ("release", True) for slot in unsettled if slot != first}
            verbs |= {first: (failed, True)} if first in unsettled else {}
        self.model.settle(lease.id, lease.token, verbs)

    @rule(lease=holders)
    def extend(self, lease: Lease) -> None:
        known = self.model.leases.get(lease.id)
        if lease._batch.is_detached:
            return
        if known and known.token == lease.token:
            lease.extend()
            known.expired = False
        elif lease:
            with pytest.raises(LeaseLostError):
                lease.extend()

    @rule(target=holders, lease=holders, seldom=st.integers(0, 1))
    def hand_on(self, lease: Lease, seldom: int) -> Any:
        """Detach and attach: the attachment has the open messages, uncounted, and the old object refuses its use."""
        known, unsettled = self.model.leases.get(lease.id), lease._batch.verdicts.open
        if seldom or not unsettled or lease._batch.is_detached:
            return multiple()
        if not known or known.token != lease.token:
            with pytest.raises(LeaseLostError):
                lease.detach()
            return multiple()
        handle = lease.detach()
        known.expired, known.recorded = False, True
        attached = self.queue.attach(LeaseHandle.from_json(handle.to_json()), heartbeat=False)
        assert {message.slot: message.id for message in attached.messages} == known.slots
        assert (attached.token, attached.takeovers) == (lease.token, known.takeovers)
        with pytest.raises(AlreadySettledError):
            lease.ack()
        self.leases.append(attached)
        return attached

    # ------------------------------------------------------------------ administration

    @precondition(lambda self: self.model.dead)
    @rule(limit=st.sampled_from([None, None, 1, 2]))
    def redrive(self, limit: int | None) -> None:
        letters = [name.decode() for name in self.client.zrange(KEYS.dead, 0, -1)]
        report = self.queue.redrive(limit=limit)
        assert (report.redriven, report.blocked) == self.model.redrive(letters, limit)

    @precondition(lambda self: self.model.known)
    @rule(where=st.sampled_from(["pending", "returned", "delayed", "dead"]), seldom=st.integers(0, 2))
    def purge(self, where: str, seldom: int) -> None:
        if seldom:
            return
        names = list(getattr(self.model, where))
        assert self.queue.purge(where) == len(names)
        self.model.remove(names, "purged")

    @precondition(lambda self: self.model.completed or self.model.failed)
    @rule(which=st.sampled_from(["completed", "failed"]))
    def purge_history(self, which: str) -> None:
        records = getattr(self.model, which)
        assert self.queue.purge(which) == len(records)
        self.model.records_purged += len(records)
        records.clear()

    @precondition(lambda self: self.model.known)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(list(self.model.known)), unique=True, min_size=1, max_size=3))
        waiting = {*self.model.pending, *self.model.returned, *self.model.delayed}
        cancelled = [name for name in names if name in waiting]
        assert self.queue.cancel(names) == cancelled
        self.model.remove(cancelled, "cancelled")

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*self.model.keys, 99]))
        assert self.queue.forget(str(key)) is (key in self.model.keys)
        self.model.keys.pop(key, None)

    @rule(seldom=st.integers(0, 2))
    def pause(self, seldom: int) -> None:
        if seldom:
            return
        assert self.queue.pause() is not self.model.paused
        self.model.paused = True

    @precondition(lambda self: self.model.paused)
    @rule()
    def resume(self) -> None:
        assert self.queue.resume() is True
        assert self.queue.resume() is False
        self.model.paused = False

    # ------------------------------------------------------------------ time and the network

    @rule(count=st.integers(1, 4))
    def replies_get_lost(self, count: int) -> None:
        """Lose the replies of the next calls: each is executed, gets no answer, and is sent again."""
        self.lost_replies = count

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data())
    def a_lease_runs_out(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(list(self.model.leases)))
        state.expire(self.client, "q", lease_id)
        self.model.leases[lease_id].expired = True

    @precondition(lambda self: self.model.delayed)
    @rule()
    def delays_end(self) -> None:
        state.fall_due(self.client, "q")
        self.model.delayed = dict.fromkeys(state.contents(self.client, "q").ids()["delayed"], True)

    @precondition(lambda self: self.model.ends)
    @rule(data=st.data())
    def an_end_is_forgotten(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(list(self.model.ends)))
        state.forget_end(self.client, "q", lease_id)
        del self.model.ends[lease_id]
        for lease in self.leases:  # so much time has passed for all of them
            lease._batch.confirmed_at -= lease._batch.claim.request.keep_seconds

    # ------------------------------------------------------------------ invariants

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.every_message_is_where_the_model_says()  # first: the model learns which dead letters were dropped
        self.keys_are_held_by_whom_the_model_says()
        self.history_is_kept_to_its_cap()
        self.depth_and_totals_count_the_same()
        self.batches_count_their_messages()

    def every_message_is_where_the_model_says(self) -> None:
        Machine.steps += 1
        model, stored = self.model, state.contents(self.client, "q")
        found = stored.ids()
        self._letters_are_dropped_for_their_cap(set(found["dead"]))
        assert found["pending"] == model.pending
        assert found["returned"] == model.in_order()
        assert sorted(found["delayed"]) == sorted(model.delayed)
        assert sorted(found["in_flight"]) == sorted(model.leased())
        assert sorted(found["dead"]) == sorted(model.dead)
        ended = Counter(name for names in model.gone.values() for name in names)
        everywhere = ended + Counter(name for names in found.values() for name in names)
        assert everywhere == dict.fromkeys(model.known, 1), "published = done, dropped, deleted, or in one place"
        for entry in (*stored.pending, *stored.returned, *stored.delayed, *stored.dead):
            message, prefix = model.known[split_entry(entry)[0].decode()], read_prefix(entry)
            assert (prefix.sequence, prefix.deliveries, prefix.releases) == (
                message.sequence,
                message.deliveries,
                message.releases,
            )
        state.check(self.client)

    def _letters_are_dropped_for_their_cap(self, stored: set[str]) -> None:
        """Drop dead letters for the cap: of those that died together the queue may choose, but older ones go first."""
        model = self.model
        excess = model.excess_dead()
        dropped = set(model.dead) - stored if excess else set()
        assert len(dropped) == excess
        if dropped and stored:
            assert max(model.dead[name] for name in dropped) <= min(model.dead[name] for name in stored)
        for name in dropped:
            del model.dead[name]
        model.gone["dead_dropped"] |= dropped
        model.now += 1

    def keys_are_held_by_whom_the_model_says(self) -> None:
        owners = [owner.decode() for owner in markers.held(self.client, KEYS).values()]
        assert sorted(owners) == sorted(self.model.keys.values())

    def history_is_kept_to_its_cap(self) -> None:
        assert self._history("completed") == [(name,) for name in reversed(self.model.completed)]
        assert self._history("failed") == list(reversed(self.model.failed))

    def _history(self, which: str) -> list[tuple[str, ...]]:
        fields = {"completed": 1, "failed": 4}[which]
        records = [record.split(b"\x1f", fields) for record in self.client.lrange(getattr(KEYS, which), 0, -1)]
        return [(*(part.decode() for part in record[3:-1]), split_entry(record[-1])[0].decode()) for record in records]

    def depth_and_totals_count_the_same(self) -> None:
        model, depth = self.model, self.queue.depth()
        expired = sum(len(lease.slots) for lease in model.leases.values() if lease.expired)
        due = sum(model.delayed.values())
        counts: dict[str, Any] = {
            "pending": len(model.pending), "returned": len(model.returned), "delayed": len(model.delayed), "due": due,
            "in_flight": len(model.leased()), "leases": len(model.leases), "expired": expired, "dead": len(model.dead),
            "published_total": len(model.known), "ready": len(model.pending) + len(model.returned) + due + expired,
        }  # fmt: skip
        assert {name: getattr(depth, name) for name in counts} == counts
        totals = state.counters(self.client, "q")
        expected = {why: len(names) for why, names in model.gone.items()}
        expected["purged"] += model.records_purged
        expected |= {"buried": model.buried, "redriven": model.redriven, "paused": int(model.paused)}
        assert {name: int(totals.get(name, 0)) if name != "paused" else int(name in totals) for name in expected} == (
            expected
        )

    def batches_count_their_messages(self) -> None:
        """Compare the counts of each batch; a sealed one is complete once nothing waits, is delayed or in flight."""
        model, complete = self.model, set()
        places = {
            "waiting": {*model.pending, *model.returned}, "delayed": {*model.delayed}, "in_flight": {*model.leased()},
            "done": model.gone["acked"], "dead": {*model.dead},
            "gone": set().union(*(names for why, names in model.gone.items() if why != "acked")),
        }  # fmt: skip
        for batch_id, (_, _, report) in self.batches.items():
            name = batch_name(batch_id)
            raw = self.client.hmget(KEYS.tracking, batch_fields(name))
            status = BatchStatus.of(batch_id, BatchCounts(*(int(value or 0) for value in raw)))
            names = report.ids if report is not None else []
            accepted = {
                name for name, owner in zip(names, report.duplicate_of if names else [], strict=True) if not owner
            }
            expected = {place: len(accepted & held) for place, held in places.items()}
            assert {place: getattr(status, place) for place in places} == expected, batch_id
            assert status.sealed is (report is not None)
            open_ones = expected["waiting"] + expected["delayed"] + expected["in_flight"]
            assert status.is_complete is (status.sealed and open_ones == 0)
            complete |= {batch_member(name)} if status.is_complete else set()
        assert set(self.client.zrange(KEYS.tracking_ended, 0, -1)) == complete

    def teardown(self) -> None:
        for queue in self.make._made:
            queue.session.activity._leases.clear()  # nobody waits for these to be released
        self.make.close()


def _fail_in(lease: Lease, whole: bool) -> None:
    with lease:
        for message in [] if whole else lease:
            raise Boom(message.id)
        raise Boom


def lose_replies(machine: Machine) -> None:
    """Let the queue's calls go through `machine.lost_replies`."""
    gateway: Any = machine.queue.session.runner.gateway
    execute = gateway.execute

    def lost() -> bool:
        machine.lost_replies -= 1
        return machine.lost_replies >= 0

    def losing(call: Call[Any], **options: Any) -> Any:
        if lost():
            execute(call, **options)
        return execute(call.later(0.01), **options)

    async def losing_async(call: Call[Any], **options: Any) -> Any:
        if lost():
            await execute(call, **options)
        return await execute(call.later(0.01), **options)

    def send(call: Call[Any], **options: Any) -> Any:
        options.pop("held", None)  # a call that is made alone keeps no connection
        return partial(gateway.execute, call, **options)

    async def send_async(call: Call[Any], **options: Any) -> Any:
        options.pop("held", None)
        return partial(gateway.execute, call, **options)

    asynchronous = machine.make.flavour.asyncio
    gateway.execute, gateway.send = (losing_async, send_async) if asynchronous else (losing, send)


def _verdict(verb: str, messages: list[Any] | None) -> Verdict:
    return Verdict("nack", messages, delay_seconds=1000) if verb == "delay" else Verdict(verb, messages)  # type: ignore[arg-type]


@pytest.mark.timeout(180 * (1 + THOROUGH))
@pytest.mark.parametrize("side", ["sync", "asyncio"])
def test_any_sequence_of_operations(bare_client: redis.Redis, loop: Loop, side: str) -> None:
    make: Callable[[], Maker] = lambda: Maker(Flavour(asyncio=side == "asyncio"), bare_client, loop)  # noqa: E731
    Machine.steps = 0
    with small_blocks() if side == "asyncio" else nullcontext():  # its calls are too small for blocks otherwise
        run_state_machine_as_test(
            lambda: Machine(bare_client, make()),
            settings=settings(
                max_examples=STEPS_EACH * 3 // (STEPS_AT_ONCE * 2),  # not every one goes to its end
                stateful_step_count=STEPS_AT_ONCE,
            ),
        )
    assert Machine.steps >= STEPS_EACH
