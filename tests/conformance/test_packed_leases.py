"""Leases over blocks give the same answers as leases over single messages, whatever happens to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from sluicegate.core.block import MAX_MESSAGES, Block
from sluicegate.core.call import Call
from sluicegate.core.entry import split_entry
from sluicegate.core.ledger import Verb, VerdictGroup, format_ranges
from sluicegate.core.transitions.claim import Held, Opened
from sluicegate.core.transitions.examine import examine_call
from sluicegate.core.transitions.in_flight import in_flight_operation
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.core.transitions.reap import Reaped
from sluicegate.core.transitions.repair import recount_call
from sluicegate.core.transitions.settle import BLOCKS_OPENED
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.blocks import pack_pending
from tests.support.core_calls import Core, ids, verdict
from tests.support.settings import THOROUGH

VERBS: list[Verb] = ["ack", "nack", "release", "bury", "discard"]


def names_of(entries: list[bytes]) -> list[str]:
    return [split_entry(entry)[3].decode() for entry in entries]


def stored_blocks(core: Core) -> list[Block]:
    """Return the blocks in `pending` and in leases."""
    values = core.client.lrange(core.keys.pending, 0, -1)
    for key in core.client.scan_iter(match="sluicegate:{*lease:*"):
        values += core.client.hvals(key)
    return [block for value in values if (block := Block.read(value))]


class Packed:
    """A queue whose messages wait as singles or in blocks; its answers name messages by their payloads."""

    def __init__(self, client: redis.Redis, queue: str, *, packs: bool, least: int = 2, most: int = 5) -> None:
        self.core = Core(client, queue, most=3, completed_cap=0, failed_cap=0)
        self.packs, self.least, self.most = packs, least, most
        self.tokens: dict[str, tuple[bytes, int]] = {}

    def publish(self, batch: str, count: int) -> Any:
        published = self.core.do(self.core.publish(batch, *(f"{batch}:{at}" for at in range(count))))
        if self.packs:
            pack_pending(self.core.client, self.core.queue, least=self.least, most=self.most)
        return published.accepted

    def claim(self, lease: str, limit: int, nonce: str, takes_over: bool) -> Any:
        reply = self.core.do(self.core.claim(lease, nonce, limit))
        if isinstance(reply, Held) and takes_over:
            reply = self.core.do(self.core.claim(lease, nonce, limit, takeover=reply.token))
        if not isinstance(reply, Opened):
            return type(reply).__name__
        leased = reply.leased()
        # Leases of one millisecond would be in the order of their names, in one of the queues perhaps.
        self.core.client.zincrby(
            self.core.keys.leases, 1000 * len(nonce) + 10 * int(nonce[1:]), self.core.keys.lease_name(lease)
        )
        self.tokens[lease] = (nonce.encode() + b":" + reply.opening, max(leased.slots))
        return list(leased.slots), names_of(leased.entries()), [entry[25:29] for entry in leased.entries()]

    def settle(self, lease: str, choose: random.Random, whole: bool) -> Any:
        token, size = self.tokens.get(lease, (b"no", 1))
        if whole:
            groups = [VerdictGroup(choose.choice(VERBS), f"1-{size}", named=False)]
        else:
            verbs = {slot: choose.choice(VERBS) for slot in range(1, size + 1) if choose.random() < 0.6}
            groups = [
                VerdictGroup(verb, format_ranges(slot for slot, given in verbs.items() if given == verb))
                for verb in sorted(set(verbs.values()))
            ]
        if not groups:
            return None
        settled = self.core.do(self.core.settle(lease, token, *groups))
        return sorted(settled.lost), settled.held, sorted(settled.buried)

    def ack(self, lease: str) -> Any:
        token, size = self.tokens.get(lease, (b"no", 1))
        return self.core.do(self.core.ack_whole(lease, token, size))

    def reap(self, lease: str) -> Any:
        """Reap in steps to the end; a step of blocks moves more than one of singles."""
        if not self.core.client.zscore(self.core.keys.leases, lease):
            return None
        state.expire(self.core.client, self.core.queue, lease)
        moved, buried = 0, 0
        while True:
            step: Reaped = self.core.do(self.core.reap(lease, 3))
            moved, buried = moved + step.moved, buried + step.buried
            if step.finished:
                return moved, buried

    def manifest(self, lease: str, first: int, last: int) -> Any:
        view = self.core.do(manifest_call(self.core.keys, lease.encode(), first, last))
        leased = view.leased()
        return view.state, view.size, view.held, view.acked, list(leased.slots), names_of(leased.entries())

    def in_flight(self, count: int, offset: int) -> Any:
        """Show some messages in leases, and all of them; leases of one millisecond have no order."""
        some = Driven(self.core).run(in_flight_operation(self.core.keys, count, offset))
        held = Driven(self.core).run(in_flight_operation(self.core.keys, 1000, 0))
        return len(some), sorted((one.name, one.slot, names_of([one.entry])) for one in held)

    def recount(self) -> Any:
        """Recount what is in flight; the gauge is right, and so are the leases' own counts."""
        keys, names = self.core.keys, self.core.client.zrange(self.core.keys.leases, 0, -1)
        self.core.do(recount_call(keys, "begin", b"r"))
        counted = self.core.do(recount_call(keys, "count", b"r", names=names, upto=b"f" * 40))
        return counted, self.core.do(recount_call(keys, "end", b"r"))

    def stored(self) -> dict[str, list[str]]:
        found = vars(state.contents(self.core.client, self.core.queue))
        return {
            place: names_of(entries) if place != "in_flight" else sorted(names_of(entries))
            for place, entries in found.items()
        }


def play(seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield random calls: the name of a method, and its arguments."""
    rnd = random.Random(seed)
    for turn in range(60):
        lease, luck = f"L{rnd.randrange(5)}", rnd.random()
        if luck < 0.2:
            yield "publish", (f"b{turn}", rnd.choice([1, 2, 7, 12, 20]))
        elif luck < 0.5:
            yield "claim", (lease, rnd.choice([1, 2, 5, 9, 16, 17, 30]), f"n{turn}", rnd.random() < 0.5)
        elif luck < 0.75:
            yield "settle", (lease, rnd.randrange(1 << 30), rnd.random() < 0.3)
        elif luck < 0.8:
            yield "ack", (lease,)
        elif luck < 0.88:
            yield "reap", (lease,)
        elif luck < 0.92:
            yield "manifest", (lease, rnd.randint(1, 8), rnd.randint(0, 20))
        elif luck < 0.97:
            yield "in_flight", (rnd.randint(1, 20), rnd.choice([0, 1, 4, 9]))
        else:
            yield "recount", ()


def do(queue: Packed, call: str, args: tuple[Any, ...]) -> Any:
    if call == "settle":
        args = args[0], random.Random(args[1]), args[2]
    return getattr(queue, call)(*args)


def test_blocks_give_the_same_answers_as_single_messages(client: redis.Redis) -> None:
    packed = 0
    for seed in range(8 * (1 + THOROUGH)):
        client.flushall()
        most = random.Random(seed).choice([3, 5, 40])
        singles, blocks = Packed(client, "singles", packs=False), Packed(client, "blocks", packs=True, most=most)
        for turn, (call, args) in enumerate(play(seed)):
            answers = do(singles, call, args), do(blocks, call, args)
            assert answers[0] == answers[1], f"seed {seed}, turn {turn}: {call} {args}"
            if turn % 4 == 0:
                assert singles.stored() == blocks.stored(), f"seed {seed}, turn {turn}: {call} {args}"
                packed += len(stored_blocks(blocks.core))
        state.check(client)
    assert packed > 100


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def waiting_blocks(core: Core, count: int = 1000, **limits: int) -> list[str]:
    names = [str(at) for at in range(count)]
    core.do(core.publish("b", *names))
    pack_pending(core.client, core.queue, **limits)
    return names


@pytest.mark.parametrize("limit", [1, 2, 15, 16, 17, 249, 250, 251, 499, 1000, 2000])
def test_a_claim_takes_exactly_its_limit_of_blocks(core: Core, limit: int) -> None:
    names = waiting_blocks(core)
    for turn in range(3):
        expected = names[turn * limit : (turn + 1) * limit]
        reply = core.do(core.claim(f"l{turn}", f"n{turn}", limit))
        assert (ids(reply) if expected else type(reply).__name__) == (expected or "Empty")
        state.check(core.client)
        left = core.client.llen(core.keys.pending) + int(core.client.hget(core.keys.counters, "packed") or 0)
        assert left == max(0, 1000 - (turn + 1) * limit)


def test_a_claim_of_a_few_opens_a_block_once_and_not_for_every_message(core: Core) -> None:
    waiting_blocks(core)
    core.opened("l", "n", 1)
    assert core.client.llen(core.keys.pending) == 249 + 3
    core.opened("m", "m", 100)
    assert len(stored_blocks(core)) == 3, "single messages are taken, and no block is opened for them"


def test_a_lease_of_blocks_holds_a_field_for_each(core: Core) -> None:
    waiting_blocks(core)
    core.opened("l", "n", 1000)
    lease = core.client.hgetall(core.keys.lease(b"l"))
    assert {name for name in lease if name != b"m"} == {b"b1", b"b251", b"b501", b"b751", b"blocks"}
    assert lease[b"blocks"] == b"1:250,251:250,501:250,751:250"
    assert lease[b"m"].endswith(b" b"), "an older version takes this for a damaged lease, and changes nothing"
    assert not core.client.exists(core.keys.pending)
    assert not core.client.hexists(core.keys.counters, "packed")


def test_a_whole_ack_reads_no_block(core: Core) -> None:
    waiting_blocks(core)
    token, _ = core.opened("l", "n", 1000)
    core.client.config_resetstat()
    core.do(core.ack_whole("l", token, 1000))
    stats = core.client.info("commandstats")
    assert not {"cmdstat_hkeys", "cmdstat_hmget", "cmdstat_hgetall"} & (stats.keys() - {"cmdstat_hmget"})
    assert stats["cmdstat_hget"]["calls"] <= 2
    assert state.counters(core.client, core.queue)["acked"] == 1000


def test_an_ack_of_all_but_one_opens_one_block(core: Core) -> None:
    waiting_blocks(core)
    token, _ = core.opened("l", "n", 1000)
    core.client.config_resetstat()
    settled = core.do(core.settle("l", token, verdict("nack", "300"), verdict("ack", "1-299,301-1000")))
    assert (settled.lost, settled.held) == ([], 0)
    assert core.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    assert names_of(core.client.zrange(core.keys.returned, 0, -1)) == ["299"]
    assert state.counters(core.client, core.queue)["acked"] == 999


def test_many_blocks_are_opened_in_several_calls(core: Core) -> None:
    for batch in "abc":
        core.do(core.publish(batch, *(f"{batch}{at}" for at in range(1000))))
    pack_pending(core.client, core.queue)
    token, _ = core.opened("l", "n", 3000)
    call = core.settle("l", token, verdict("ack", ",".join(str(slot) for slot in range(1, 3001, 2))))
    assert core.do_once(call) is BLOCKS_OPENED
    assert len(stored_blocks(core)) == 8
    assert core.do_once(call) is BLOCKS_OPENED
    assert core.do_once(call).held == 1500
    assert len(stored_blocks(core)) == 0


def half_open(core: Core) -> bytes:
    """Claim a block of five and open it, without the last two writes: the block stays beside its messages."""
    waiting_blocks(core, 5, least=2)
    token, reply = core.opened("l", "n", 5)
    block = Block.read(reply.entries[0])
    assert block is not None
    core.client.hset(core.keys.lease(b"l"), mapping={str(at + 1): entry for at, entry in enumerate(block.entries())})
    return token


def test_a_half_opened_block_holds_all_its_slots(core: Core) -> None:
    token = half_open(core)
    settled = core.do(core.settle("l", token, verdict("ack", "2"), verdict("nack", "4")))
    assert (settled.lost, settled.held) == ([], 3)
    assert core.do(core.settle("l", token, verdict("ack", "1,3,5"))).held == 0
    assert state.contents(core.client, core.queue).ids() == {
        "pending": [], "returned": ["b-3"], "delayed": [], "in_flight": [], "dead": [],
    }  # fmt: skip


def test_a_half_opened_block_is_taken_over_once(core: Core) -> None:
    token = half_open(core)
    taken = core.do(core.claim_known("l", "m", takeover=token))
    assert isinstance(taken, Opened)
    assert ids(taken) == [*"01234"]
    assert list(taken.leased().slots) == [1, 2, 3, 4, 5]
    again = core.do(core.claim("l", "m", 5))
    assert ids(again) == [*"01234"]


def test_a_half_opened_block_is_reaped_once(core: Core) -> None:
    half_open(core)
    state.expire(core.client, core.queue)
    assert core.do(core.reap("l")) == Reaped(finished=True, moved=5, buried=0)
    assert state.contents(core.client, core.queue).ids()["returned"] == [f"b-{at}" for at in range(5)]


def test_an_ack_of_a_half_opened_block_leaves_no_message_behind(core: Core) -> None:
    token = half_open(core)
    waiting_blocks(core, 3, least=2)
    settled = core.do(core.settle("l", token, verdict("ack", "1-4"), verdict("release", "5")))
    assert (settled.lost, settled.held) == ([], 0)
    assert not core.client.exists(core.keys.lease(b"l"))


def test_a_late_whole_ack_between_two_steps_of_a_reap_says_what_returned(core: Core) -> None:
    waiting_blocks(core, 20, least=2, most=5)
    token, _ = core.opened("l", "n", 20)
    core.do(core.settle("l", token, verdict("ack", "7")))
    state.expire(core.client, core.queue)
    assert core.do(core.reap("l", 5)) == Reaped(finished=False, moved=5, buried=0)
    assert core.do(core.ack_whole("l", token, 20)) is None
    late = core.do(core.settle("l", token, verdict("ack", "1-20")))
    assert late.lost == [slot for slot in range(1, 21) if slot != 7]
    while not core.do(core.reap("l", 5)).finished:
        pass
    assert core.do(core.settle("l", token, verdict("ack", "1-20"))).lost == late.lost
    assert len(state.contents(core.client, core.queue).returned) == 19


def test_what_a_partial_ack_and_a_reap_return_keeps_its_order(core: Core) -> None:
    names = waiting_blocks(core, 100, least=2, most=10)
    token, _ = core.opened("l", "n", 60)
    core.do(core.settle("l", token, verdict("nack", "15"), verdict("release", "1-14,16-60")))
    first, rest = core.do(core.claim("m", "m", 100)), core.do(core.claim("k", "k", 100))
    assert ids(first) == names[:14]
    assert ids(rest) == [names[14]]
    assert ids(core.do(core.claim("j", "j", 100))) == names[15:]


def damaged_block() -> bytes:
    client_part = b"b\x1f0-4\x1f5\x1f0,0\x1f\x1f0\x1f5\x1f\x1f01234"
    ends = b"".join(end.to_bytes(4, "little") for end in (0, 0, 0, 0, 0, 1, 9, 3, 4, 5))
    return b"3" + b"0" * 11 + b"1" + b"0" * 16 + client_part + ends


@pytest.mark.parametrize("value", [damaged_block(), damaged_block()[:-3], b"3" + damaged_block()[:50]])
def test_a_damaged_block_in_the_queue_is_one_foreign_letter(core: Core, value: bytes) -> None:
    core.client.rpush(core.keys.pending, value)
    names = waiting_blocks(core, 20, least=2, most=5)
    reply = core.do(core.claim("l", "n", 100))
    assert isinstance(reply, Opened)
    assert (ids(reply), reply.buried) == (names, 1)
    assert state.contents(core.client, core.queue).dead == [value]


@pytest.mark.parametrize("slot", ["b1", "b6"])
def test_a_damaged_block_in_a_lease_takes_its_slots_with_it(core: Core, slot: str) -> None:
    waiting_blocks(core, 10, least=2, most=5)
    token, _ = core.opened("l", "n", 10)
    core.client.hset(core.keys.lease(b"l"), slot, damaged_block())
    first = int(slot[1:])
    settled = core.do(core.settle("l", token, verdict("nack", "1-10")))
    assert (settled.held, settled.buried) == (0, [*range(first + 1, first + 5), first]) or sorted(
        settled.buried
    ) == list(range(first, first + 5))
    assert settled.lost == []
    assert state.contents(core.client, core.queue).dead == [damaged_block()]
    assert len(state.contents(core.client, core.queue).returned) == 5


@pytest.mark.parametrize("how", ["settle", "reap", "take over"])
def test_after_a_block_in_a_lease_was_damaged_all_counts_agree(core: Core, how: str) -> None:
    waiting_blocks(core, 10, least=2, most=5)
    token, _ = core.opened("l", "n", 10)
    core.client.hset(core.keys.lease(b"l"), "b1", damaged_block())
    if how == "settle":
        assert core.do(core.settle("l", token, verdict("release", "2"))).held == 6
    elif how == "take over":
        assert ids(core.do(core.claim_known("l", "m", takeover=token))) == [*"56789"]
    state.expire(core.client, core.queue)
    while not core.do(core.reap("l")).finished:
        pass
    assert state.contents(core.client, core.queue).dead == [damaged_block()]
    assert names_of(state.contents(core.client, core.queue).returned) == [*"56789"]
    assert state.counters(core.client, core.queue)["in_flight"] == 0


@pytest.mark.parametrize("field", ["m", "blocks"])
def test_a_lease_whose_bookkeeping_was_lost_returns_its_blocks(core: Core, field: str) -> None:
    waiting_blocks(core, 20, least=2, most=5)
    core.opened("l", "n", 17)
    core.client.hset(core.keys.lease(b"l"), field, "junk")
    state.expire(core.client, core.queue)
    while not core.do(core.reap("l", 5)).finished:
        pass
    contents = state.contents(core.client, core.queue)
    assert names_of(contents.returned) == [str(at) for at in range(17)]
    assert contents.dead == []
    core.client.hset(core.keys.counters, "in_flight", 0)


def test_many_small_blocks_are_reaped_in_steps_of_many(core: Core) -> None:
    for batch in range(50):
        core.do(core.publish(f"b{batch}", *(f"{batch}:{at}" for at in range(10))))
    pack_pending(core.client, core.queue)
    core.opened("l", "n", 500)
    state.expire(core.client, core.queue)
    assert [core.do(core.reap("l", 250)).moved for _ in range(2)] == [250, 250]


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
@pytest.mark.parametrize("history", [None, 0])
def test_every_verdict_records_what_it_records_of_single_messages(
    client: redis.Redis, verb: Verb, history: int | None
) -> None:
    recorded = []
    for packs in (False, True):
        client.flushall()
        queue = Packed(client, "orders", packs=packs)
        core = queue.core = Core(client, completed_cap=history, failed_cap=history)
        queue.publish("b", 20)
        token, _ = core.opened("l", "n", 20)
        core.do(core.settle("l", token, verdict(verb, "1-20")))
        kept = [state.history(client, "orders", which) for which in ("completed", "failed")]
        recorded.append((kept, state.counters(client, "orders"), queue.stored()))
    assert recorded[0] == recorded[1]


@pytest.mark.parametrize("payload", [b"", b"\x1f\x00\xff", b"x" * 300])
@pytest.mark.parametrize("count", [MAX_MESSAGES, MAX_MESSAGES + 1])
def test_any_payload_comes_out_of_a_block_as_it_was(core: Core, payload: bytes, count: int) -> None:
    call = core.publish("b", *("x" for _ in range(count)))
    args: list[Any] = [b"\x1f\x1f\x1f" + payload if arg == b"\x1f\x1f\x1fx" else arg for arg in call.args]
    core.do(Call(call.script, call.keys, args, call.decode))
    pack_pending(core.client, core.queue)
    token, reply = core.opened("l", "n", 1000)
    assert [split_entry(entry)[3] for entry in reply.leased().entries()] == [payload] * count
    assert core.do(core.settle("l", token, verdict("release", "2"), verdict("ack", f"1,3-{count}"))).held == 0
    assert [split_entry(entry)[3] for entry in core.client.zrange(core.keys.returned, 0, -1)] == [payload]


def test_a_look_counts_the_messages_of_blocks_in_leases(core: Core) -> None:
    waiting_blocks(core, 20, least=2, most=5)
    token, _ = core.opened("l", "n", 20)
    core.do(core.settle("l", token, verdict("ack", "7")))
    seen = core.do(examine_call(core.keys, names=[b"l"]))
    assert seen.leases is not None
    assert (seen.leases.held, seen.leases.gauge, seen.leases.miscounted) == (19, 19, 0)
