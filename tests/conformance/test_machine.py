"""The queue against a pure model: after any sequence of operations every message is where the model says, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sluicegate import Lease, LeaseState, RedisMessageQueue, Verdict
from sluicegate.core.entry import read_prefix, split_entry
from sluicegate.errors import LeaseLostError
from tests.conformance import state
from tests.conftest import THOROUGH

MOST, FREE_RELEASES = 3, 3
VERBS = st.sampled_from(["ack", "ack", "nack", "delay", "release", "bury"])


@dataclass
class Known:
    """A message."""

    sequence: int
    deliveries: int = 0
    releases: int = 0


@dataclass
class Opening:
    """A lease: open, or as the record of its end tells of it."""

    token: bytes
    slots: dict[int, str]
    size: int
    recorded: bool
    takeovers: int = 0
    expired: bool = False
    fates: dict[int, str] = field(default_factory=dict)  # slot -> acked, returned, buried or left

    def counts(self) -> tuple[int, int, int]:
        fates = list(self.fates.values())
        return fates.count("acked"), fates.count("returned"), fates.count("buried")


class Model:
    """What a queue is, without Redis."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.pending: list[str] = []
        self.returned: set[str] = set()
        self.delayed: dict[str, bool] = {}  # name -> whether it is due
        self.acked: set[str] = set()
        self.dead: set[str] = set()
        self.keys: dict[int, str] = {}
        self.leases: dict[str, Opening] = {}
        self.ends: dict[str, Opening] = {}

    def in_order(self) -> list[str]:
        return sorted(self.returned, key=lambda name: self.known[name].sequence)

    def publish(self, name: str, key: int) -> str | None:
        if key in self.keys:
            return self.keys[key]
        self.keys[key] = name
        self.known[name] = Known(len(self.known) + 1)
        self.pending.append(name)
        return None

    def tidy(self) -> None:
        for name in [name for name, due in self.delayed.items() if due]:
            del self.delayed[name]
            if self.known[name].deliveries:
                self.returned.add(name)
            else:
                self.pending.append(name)
        for lease_id in [lease_id for lease_id, lease in self.leases.items() if lease.expired]:
            self.reap(lease_id)

    def reap(self, lease_id: str) -> None:
        lease = self.leases.pop(lease_id)
        for slot, name in lease.slots.items():
            self.come_back(name, lease, failed=True, named=False)
            lease.fates[slot] = "left"
        self.ends[lease_id] = lease

    def take(self, limit: int) -> list[str]:
        taken: list[str] = []
        room, untried, stopped = limit, True, False
        for name in self.in_order():
            deliveries = self.known[name].deliveries
            if not taken:
                untried = deliveries == 0
            stopped = untried != (deliveries == 0)
            if deliveries:
                room = min(room, 1 if deliveries >= MOST - 1 else max(1, limit // 4**deliveries))
            if stopped or len(taken) >= room:
                break
            taken.append(name)
        if untried and not stopped:
            taken += self.pending[: room - len(taken)]
        self.returned -= set(taken)
        self.pending = [name for name in self.pending if name not in taken]
        return taken

    def come_back(self, name: str, lease: Opening, *, failed: bool, named: bool, delay: bool = False) -> str:
        message = self.known[name]
        counted = failed or message.releases >= FREE_RELEASES
        message.deliveries += lease.takeovers + counted
        message.releases += not counted
        if message.deliveries >= MOST:
            if (counted and lease.size == 1) or (failed and named):
                self.dead.add(name)
                return "buried"
            message.deliveries = MOST - 1
        if delay:
            self.delayed[name] = False
        else:
            self.returned.add(name)
        return "returned"

    def settle(self, lease_id: str, token: bytes, verbs: dict[int, tuple[str, bool]]) -> list[int]:
        """Returns the slots for which the verdict came too late."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.token != token:
            end = self.ends.get(lease_id)
            if end is None or end.token != token:
                return list(verbs)
            return [slot for slot, (verb, _) in verbs.items() if not _agrees(verb, end.fates[slot])]
        for slot, (verb, named) in verbs.items():
            lease.fates[slot] = self._verdict(lease.slots.pop(slot), lease, verb, named)
        if not lease.slots:
            del self.leases[lease_id]
            if lease.recorded or set(lease.fates.values()) != {"acked"}:
                self.ends[lease_id] = lease
        return []

    def _verdict(self, name: str, lease: Opening, verb: str, named: bool) -> str:
        match verb:
            case "ack":
                self.acked.add(name)
                return "acked"
            case "bury":
                self.known[name].deliveries += lease.takeovers + 1
                self.dead.add(name)
                return "buried"
            case "release":
                return self.come_back(name, lease, failed=False, named=named)
        return self.come_back(name, lease, failed=True, named=named, delay=verb == "delay")


def _agrees(verb: str, fate: str) -> bool:
    wanted = {"ack": ("acked",), "bury": ("buried",)}.get(verb, ("returned", "buried"))
    return fate in wanted


class Machine(RuleBasedStateMachine):
    holders = Bundle("holders")

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.model = Model()
        self.queue = RedisMessageQueue("q", client=client, get_deduplication_key="id", max_delivery_count=MOST)
        self.leases: list[Lease] = []

    # ------------------------------------------------------------------ rules

    @rule(keys=st.lists(st.integers(0, 30), min_size=1, max_size=8))
    def publish(self, keys: list[int]) -> None:
        report = self.queue.publish_many({"id": key} for key in keys)
        for key, name, owner in zip(keys, report.ids, report.duplicate_of, strict=True):
            assert self.model.publish(name, key) == owner
        assert report.accepted + report.duplicates == len(keys)

    @precondition(lambda self: len(self.model.leases) < 6)
    @rule(target=holders, limit=st.integers(1, 9))
    def claim(self, limit: int) -> Lease:
        lease = self.queue.claim(limit)
        self.leases.append(lease)
        self.model.tidy()
        self._opened(lease, lease.id, limit, recorded=len(lease) != 1)
        return lease

    @precondition(lambda self: len(self.model.leases) < 6)
    @rule(target=holders, lease_id=st.sampled_from("AB"), limit=st.integers(1, 9), take_over=st.booleans())
    def claim_by_id(self, lease_id: str, limit: int, take_over: bool) -> Lease:
        lease = self.queue.claim(limit, lease_id=lease_id, take_over_after_seconds=0 if take_over else None)
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
        self.model.tidy()
        self._opened(lease, lease_id, limit, recorded=True)
        return lease

    def _opened(self, lease: Lease, lease_id: str, limit: int, *, recorded: bool) -> None:
        taken = self.model.take(limit)
        assert [message.id for message in lease.messages] == taken
        assert lease.state is (LeaseState.OPEN if taken else LeaseState.EMPTY)
        counts = [self.model.known[name].deliveries + 1 for name in taken]
        assert [message.delivery_count for message in lease.messages] == counts
        if taken:
            slots = dict(enumerate(taken, 1))
            self.model.leases[lease_id] = Opening(lease.token, slots, len(taken), recorded)

    @rule(lease=holders, data=st.data())
    def settle_some(self, lease: Lease, data: st.DataObject) -> None:
        unsettled = [message for message in lease.messages if message.slot in lease._ledger.open]
        if not unsettled:
            return
        some = data.draw(st.lists(st.sampled_from(unsettled), unique=True, min_size=1))
        verbs = {message.slot: (data.draw(VERBS), True) for message in some}
        verdicts = [
            _verdict(verb, [message for message in some if verbs[message.slot][0] == verb])
            for verb in sorted({verb for verb, _ in verbs.values()})
        ]
        self._settle(lease, verbs, verdicts)

    @rule(lease=holders, verb=VERBS)
    def settle_the_rest(self, lease: Lease, verb: str) -> None:
        verbs = dict.fromkeys(lease._ledger.open, (verb, False))
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

    @rule(lease=holders)
    def extend(self, lease: Lease) -> None:
        known = self.model.leases.get(lease.id)
        if known and known.token == lease.token:
            lease.extend()
            known.expired = False
        elif lease:
            with pytest.raises(LeaseLostError):
                lease.extend()

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
        self.model.delayed = dict.fromkeys(self._delayed(), True)

    @precondition(lambda self: self.model.ends)
    @rule(data=st.data())
    def an_end_is_forgotten(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(list(self.model.ends)))
        state.forget_end(self.client, "q", lease_id)
        del self.model.ends[lease_id]
        for lease in self.leases:  # so much time has passed for all of them
            lease._confirmed_at -= lease._request.keep_seconds

    # ------------------------------------------------------------------ invariants

    def _delayed(self) -> list[str]:
        return state.contents(self.client, "q").ids()["delayed"]

    @invariant()
    def every_message_is_where_the_model_says(self) -> None:
        model, stored = self.model, state.contents(self.client, "q")
        found = stored.ids()
        assert found["pending"] == model.pending
        assert found["returned"] == model.in_order()
        assert sorted(found["delayed"]) == sorted(model.delayed)
        leased = [name for lease in model.leases.values() for name in lease.slots.values()]
        assert sorted(found["in_flight"]) == sorted(leased)
        assert sorted(found["dead"]) == sorted(model.dead)
        assert len(model.known) == len(model.acked) + sum(map(len, found.values())), (
            "published = acked + all the others"
        )
        for entry in (*stored.pending, *stored.returned, *stored.delayed, *stored.dead):
            message, prefix = model.known[split_entry(entry)[0].decode()], read_prefix(entry)
            assert (prefix.sequence, prefix.deliveries, prefix.releases) == (
                message.sequence,
                message.deliveries,
                message.releases,
            )
        state.check(self.client)

    @invariant()
    def depth_counts_the_same(self) -> None:
        model, depth = self.model, self.queue.depth()
        expired = sum(len(lease.slots) for lease in model.leases.values() if lease.expired)
        due = sum(model.delayed.values())
        counts: dict[str, Any] = {
            "pending": len(model.pending), "returned": len(model.returned), "delayed": len(model.delayed), "due": due,
            "in_flight": sum(len(lease.slots) for lease in model.leases.values()), "leases": len(model.leases),
            "expired": expired, "dead": len(model.dead), "published_total": len(model.known),
            "ready": len(model.pending) + len(model.returned) + due + expired,
        }  # fmt: skip
        assert {name: getattr(depth, name) for name in counts} == counts
        totals = state.counters(self.client, "q")
        assert totals.get("acked", 0) == len(model.acked)
        assert totals.get("buried", 0) == len(model.dead)

    def teardown(self) -> None:
        self.queue._leases.clear()
        self.queue.close()


def _verdict(verb: str, messages: list[Any] | None) -> Verdict:
    return Verdict("nack", messages, delay_seconds=1000) if verb == "delay" else Verdict(verb, messages)  # type: ignore[arg-type]


@pytest.mark.timeout(120 * (1 + THOROUGH))
def test_any_sequence_of_operations(bare_client: redis.Redis) -> None:
    run_state_machine_as_test(
        lambda: Machine(bare_client), settings=settings(max_examples=50 * (1 + THOROUGH), stateful_step_count=30)
    )
