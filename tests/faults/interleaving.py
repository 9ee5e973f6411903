"""Random interleavings run over the real scripts, and every answer to a settle is compared with what really happened.

There are several consumers, lost replies, repeated and late calls, crashes, takeovers and stepped reaping.

Time is the test's: one unit is one second of the calls' arguments, a lease expires when its deadline is moved into the
past, the record of an end when it is deleted. Nothing takes long enough for Redis's own clock to matter.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import redis

from sluicegate.core.call import Call, ChainChanged, Operation, with_markers
from sluicegate.core.entry import key_of
from sluicegate.core.ledger import Verb, VerdictGroup, format_ranges, parse_ranges
from sluicegate.core.transitions.ack_and_claim import OpenLease, Stepped, ack_and_claim_operation, is_plain
from sluicegate.core.transitions.claim import ClaimRequest, Opened, claim_operation
from sluicegate.core.transitions.extend import Extended, extend_call
from sluicegate.core.transitions.reap import reap_call
from sluicegate.core.transitions.redrive import redrive_call
from sluicegate.core.transitions.scan import Step, Target
from sluicegate.core.transitions.settle import SettleRequest, settle_operation
from sluicegate.errors import LeaseLostError, RetryBudgetExhaustedError
from tests.support import markers, state
from tests.support.blocks import pack_pending, slots_of
from tests.support.core_calls import Core

LEASE_SECONDS, KEEP_SECONDS, MESSAGES, STEP = 10, 40, 12, 2
VERBS: list[Verb] = ["ack", "ack", "ack", "ack", "nack", "release", "bury", "discard"]
Steps = Generator[None, None, Any]


@dataclass(frozen=True)
class Manner:
    """How the holders of one play behave."""

    chosen: bool  # lease ids that a retry uses again, or such as the library makes
    limit: int
    whole: bool  # a lease is settled in one call
    steps: bool = False  # an ack goes in the call of the next claim


MANNERS = [
    Manner(chosen=True, limit=4, whole=True),
    Manner(chosen=True, limit=4, whole=False),
    Manner(chosen=True, limit=1, whole=True),
    Manner(chosen=False, limit=4, whole=False),
    Manner(chosen=False, limit=1, whole=True),
    Manner(chosen=False, limit=1, whole=True, steps=True),
]


@dataclass
class World:
    """The queue as the test sees it: its own clock, the network, and what each execution really did."""

    core: Core
    rnd: random.Random
    now: float = 0
    deadlines: dict[bytes, float] = field(default_factory=dict)
    scores: dict[bytes, float | None] = field(default_factory=dict)
    ends: dict[bytes, tuple[bytes, float]] = field(default_factory=dict)
    done: dict[tuple[bytes, int], tuple[str, str]] = field(default_factory=dict)  # token, slot -> message, verb
    late: list[Call[Any]] = field(default_factory=list)

    # ------------------------------------------------------------------ executing

    def execute(self, call: Call[Any]) -> Any:
        name = bytes(call.args[0]) if call.script.verb in ("claim", "settle", "extend", "reap") else None
        acked = bytes(call.args[6]) if call.script.name == "ack_and_claim" else None
        settled = name if call.script.verb == "settle" else acked
        before = self._slots(settled) if settled else {}
        reply = self.core.gateway.execute(call, retry=False)  # also an answer about another chain of markers
        if before:
            self._note_effect(call, before, self._slots(settled))
        for changed in (name, acked):
            if changed:
                self._note_times(changed)
        return reply

    def finish(self, call: Call[Any]) -> Any:
        """Execute a call, and again where the chain of markers has changed."""
        while isinstance(reply := self.execute(call), ChainChanged):
            reply.learn()
            assert call.again is not None
            call = call.again()
        return reply

    def _slots(self, name: bytes | None) -> dict[int, bytes]:
        assert name is not None
        return slots_of(self.core.client.hgetall(self.core.keys.lease(name)))

    def holds(self, name: bytes, token: bytes) -> bool:
        return bytes(self.core.client.hget(self.core.keys.lease(name), "m") or b"").startswith(token + b" ")

    def _note_effect(self, call: Call[Any], before: dict[int, bytes], after: dict[int, bytes]) -> None:
        token, groups = bytes(call.args[1]), call.args[len(call.script.header.args) - 1 :]
        if call.script.name == "ack_whole":
            groups = (b"ack", b"1-%d" % call.args[2], 0, 0, b"")
        elif call.script.name == "ack_and_claim":
            token, groups = bytes(call.args[7]), (b"ack", b"1", 0, 0, b"")
        for verb, slots in zip(groups[::5], groups[1::5], strict=True):
            for slot in parse_ranges(bytes(slots).decode()):
                entry = before.get(slot)
                if entry is not None and slot not in after:
                    self.done[token, slot] = (_name(entry), bytes(verb).decode())

    def _note_times(self, name: bytes) -> None:
        with self.core.client.pipeline(transaction=False) as pipe:
            pipe.zscore(self.core.keys.leases, name)
            pipe.get(self.core.keys.closed(name))
            score, end = pipe.execute()
        if score is None:
            self.deadlines.pop(name, None)
        elif score != self.scores.get(name):
            self.deadlines[name] = self.now + LEASE_SECONDS
        self.scores[name] = score
        if end is None:
            self.ends.pop(name, None)
        elif end != self.ends.get(name, (None, 0))[0]:
            self.ends[name] = (end, self.now + KEEP_SECONDS)

    # ------------------------------------------------------------------ time

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for name in [name for name, deadline in self.deadlines.items() if deadline <= self.now]:
            if self.scores[name] != 1:
                self.core.client.zadd(self.core.keys.leases, {name: 1}, xx=True)
                self.scores[name] = 1
        for name in [name for name, (_, until) in self.ends.items() if until <= self.now]:
            self.core.client.delete(self.core.keys.closed(name))
            del self.ends[name]

    def expired(self) -> list[bytes]:
        return [name for name, deadline in self.deadlines.items() if deadline <= self.now]

    # ------------------------------------------------------------------ the network

    def send(self, call: Call[Any]) -> Any:
        """Send a call as a gateway does: retry while replies get lost, give up after four attempts."""
        born = self.now
        for _ in range(4):
            attempt, luck = call.later(self.now - born), self.rnd.random()
            if luck < 0.60:
                return self.execute(attempt)
            if luck < 0.75:
                self.execute(attempt)  # the reply is lost
            elif luck < 0.85:
                self.late.append(attempt)  # somebody will execute it later
            self.pass_time(self.rnd.choice([0, 0, 1, 6]))
        raise RetryBudgetExhaustedError("given up")

    def drive(self, operation: Operation[Any]) -> Steps:
        """Run an operation, with a chance for others between any two of its calls."""
        try:
            call = next(operation)
            while True:
                try:
                    reply = self.send(call)
                except RetryBudgetExhaustedError as error:
                    yield
                    call = operation.throw(error)
                else:
                    yield
                    call = operation.send(reply)
        except StopIteration as stop:
            return stop.value


class Play:
    """One seed: three holders who claim, work and settle until they are through with their lease ids."""

    def __init__(self, client: redis.Redis, seed: int, *, packs: bool = False) -> None:
        self.rnd = random.Random(seed)
        self.packs = packs  # the messages wait in blocks
        self.manner = MANNERS[seed % len(MANNERS)]
        if packs and self.manner.limit > 1:
            self.manner = replace(self.manner, limit=self.rnd.choice([3, 7, 12]))
        keep = self.rnd.choice([None, None if self.manner.steps else 0])  # no history, or all of it
        self.core = Core(
            client,
            most=self.rnd.choice([0, 3]),
            max_dead_length=self.rnd.choice([0, 0, 2]),
            completed_cap=keep,
            failed_cap=keep,
        )
        self.world = World(self.core, self.rnd)
        self.redrives = self.rnd.random() < 0.4
        self.nonces = itertools.count()
        self.worked_on: set[str] = set()
        self.sink: dict[tuple[str, bytes], set[str]] = defaultdict(set)
        self.bound: list[str] = []  # messages that hold their key until they end
        self.strangers: dict[str, str] = {}  # keys that went to other messages
        self.faults: list[str] = []

    def run(self) -> list[str]:
        """Run the interleaving and return the violations, an empty list when all is well."""
        names = [str(number) for number in range(MESSAGES)]
        self.core.do(self.core.publish("b", *names))
        self.bound = names if self.rnd.random() < 0.5 else []
        self.core.bind(*self.bound)
        if self.packs:
            pack_pending(self.core.client, self.core.queue, least=2, most=self.rnd.choice([3, 5, 12]))
        holders = self._holders()
        while holders:
            self._something_happens(holders)
        self._settle_down()
        self._judge()
        return self.faults

    def _holders(self) -> list[Iterator[None]]:
        if self.manner.steps:
            return [self._stepper() for _ in range(3)]
        if self.manner.chosen:
            return [self._holder([f"L{at}" for at in range(5)]) for _ in range(3)]
        return [self._holder([f"{who}L{at}" for at in range(5)]) for who in range(3)]

    def _something_happens(self, holders: list[Iterator[None]]) -> None:
        world, rnd, luck = self.world, self.rnd, self.rnd.random()
        if luck < 0.2 and world.expired():
            self._reap(rnd.choice(world.expired()))
        elif luck < 0.22:
            rnd.choice([self._give_a_key_away, self._rotate])()
        elif luck < 0.3 and world.late:
            world.execute(world.late.pop(rnd.randrange(len(world.late))))
        elif luck < 0.33:
            state.fall_due(self.core.client, self.core.queue)
            world.execute(self.core.promote(STEP))
        elif luck < 0.35 and self.redrives:
            self._redrive()
        elif luck < 0.5:
            world.pass_time(rnd.choice([1, 3, 12, 60]) if rnd.random() < 0.3 else 1)
        else:
            holder = rnd.choice(holders)
            if next(holder, "through") == "through":
                holders.remove(holder)

    def _reap(self, name: bytes) -> None:
        """Reap in one step, and in a second one, at once or later, when it asks for a marker."""
        keys, rules = self.core.keys, self.core.rules
        wanted = self.world.finish(reap_call(keys, rules, name, step=STEP)).wanted
        if wanted:
            step = reap_call(keys, rules, name, step=STEP, wanted=wanted)
            if self.rnd.random() < 0.3:
                self.world.late.append(step)
            else:
                self.world.finish(step)

    def _redrive(self) -> None:
        """Redrive all dead letters that may return; the call is retried, repeated and late as any other."""
        keys, letters = self.core.keys, self.core.client.hgetall(self.core.keys.dead_records)
        if letters:
            named = [Target(name, key_of(record.split(b"\x1f", 4)[4])) for name, record in letters.items()]
            step = Step(f"r{next(self.nonces)}".encode(), 1)
            with suppress(RetryBudgetExhaustedError):
                for _ in self.world.drive(with_markers(redrive_call(keys, step, named, mark=1 << 44, patient=False))):
                    pass

    def _give_a_key_away(self) -> None:
        """Let a marker expire, be forgotten or freed, and publish another message under its key."""
        if self.bound:
            name, known = self.rnd.choice(self.bound), self.core.keys.markers.text
            self.strangers[name] = f"s-{name}"
            markers.hold(self.core.client, self.core.keys, name.encode(), self.strangers[name], px=1_000_000)
            self.core.keys.markers.learn(known)  # the holders do not

    def _rotate(self) -> None:
        """Let another client open a generation of markers, of which the holders know nothing."""
        known = self.core.keys.markers.text
        markers.rotate(self.core.client, self.core.keys, span_ms=14 * 86_400_000, bits=self.rnd.choice([0, 4]))
        self.core.keys.markers.learn(known)

    # ------------------------------------------------------------------ holders

    def _holder(self, lease_ids: list[str]) -> Iterator[None]:
        for lease_id in lease_ids:
            nonce, asked_at = f"n{next(self.nonces)}".encode(), self.world.now
            request = ClaimRequest(
                self.core.keys.lease_name(lease_id), nonce, self.manner.limit, LEASE_SECONDS, KEEP_SECONDS
            )
            take_over = 0 if self.manner.chosen and self.rnd.random() < 0.7 else None
            try:
                opened = yield from self.world.drive(
                    claim_operation(
                        self.core.keys,
                        self.core.rules,
                        request,
                        clock=lambda: self.world.now,
                        take_over_after_seconds=take_over,
                    )
                )
            except RetryBudgetExhaustedError:
                continue
            if isinstance(opened, Opened):
                yield from self._work(lease_id, request, opened, asked_at)

    def _stepper(self) -> Iterator[None]:
        """Work as `queue.consume()` does: each message is acked in the call that claims the next one."""
        last: OpenLease | None = None
        for left in reversed(range(6)):
            name = f"n{next(self.nonces)}".encode()
            request = ClaimRequest(name, name, 1, LEASE_SECONDS, KEEP_SECONDS)
            if last is not None and self._is_old(last):
                yield from self._settle_last(last)
                last = None
            stepped: Stepped | None = None
            while stepped is None:
                asked_at = self.world.now
                step = ack_and_claim_operation(
                    self.core.keys, self.core.rules, request, last, claims=left > 0, clock=lambda: self.world.now
                )
                try:
                    stepped = yield from self.world.drive(step)
                except RetryBudgetExhaustedError:
                    if self.rnd.random() < 0.5 or (last is not None and self._is_old(last)):
                        return  # the consumer gives up; else it tries the same once more
            if last is not None and stepped.how == "slow":
                yield from self._settle_last(last)
            elif last is not None and self.world.done.get((last.token, 1)) != (_name(last.entry), "ack"):
                self.faults.append(f"false done: ack of {_name(last.entry)} by {last.token!r} in a step")
            last = None
            if stepped.how == "open":
                last = OpenLease(name, name + b":" + stepped.opening, asked_at, stepped.entry)
            elif left > 0:
                last = yield from self._claim_after_a_step(request)
            if last is not None:
                last = yield from self._hold(last)
            if last is None and self.rnd.random() < 0.15:
                return

    def _is_old(self, last: OpenLease) -> bool:
        """Return whether an ack needs an extension first, because it leaves no record."""
        return self.world.now - last.confirmed_at > KEEP_SECONDS / 4

    def _claim_after_a_step(self, request: ClaimRequest) -> Generator[None, None, OpenLease | None]:
        """Claim the usual way under the nonce of the step; what is not plain is worked on the usual way, too."""
        asked_at = self.world.now
        claim = claim_operation(self.core.keys, self.core.rules, request, clock=lambda: self.world.now)
        try:
            opened = yield from self.world.drive(claim)
        except RetryBudgetExhaustedError:
            return None
        if not isinstance(opened, Opened):
            return None
        (entry,) = opened.entries
        if is_plain(entry):
            return OpenLease(request.name, request.nonce + b":" + opened.opening, asked_at, entry)
        yield from self._work(request.name.decode(), request, opened, asked_at)
        return None

    def _hold(self, held: OpenLease) -> Generator[None, None, OpenLease | None]:
        """Work on the current message; return its lease, to be acked, or None when it got another end."""
        message = _name(held.entry)
        self.worked_on.add(message)
        self.sink[held.name.decode(), held.token.partition(b":")[2]] = {message}
        for _ in range(self.rnd.randint(0, 3)):
            yield
        luck = self.rnd.random()
        if luck < 0.15:
            beat_at = self.world.now
            extend = extend_call(self.core.keys, held.name, held.token, lease_seconds=LEASE_SECONDS)
            with suppress(RetryBudgetExhaustedError):
                if self.world.send(extend) is Extended.OK:
                    return replace(held, confirmed_at=beat_at)
        elif luck < 0.3:
            asked_at = held.confirmed_at
            yield from self._settle(held.name.decode(), request_of(held), held.token, {1: message}, asked_at, (), 1)
            return None
        elif luck < 0.36:
            return None  # a crash
        return held

    def _settle_last(self, last: OpenLease) -> Generator[None, None, None]:
        """Ack the usual way what a step did not ack."""
        messages = {1: _name(last.entry)}
        yield from self._settle(
            last.name.decode(), request_of(last), last.token, messages, last.confirmed_at, (), 1, verb="ack"
        )

    def _work(self, lease_id: str, request: ClaimRequest, opened: Opened, asked_at: float) -> Iterator[None]:
        world, token = self.world, request.nonce + b":" + opened.opening
        leased = opened.leased()
        messages = {slot: _name(entry) for slot, entry in zip(leased.slots, leased.entries(), strict=True)}
        bound = leased.bound()
        self.worked_on |= set(messages.values())
        for _ in range(self.rnd.randint(0, 3)):
            yield
        if self.rnd.random() < 0.2:
            beat_at = world.now
            extend = extend_call(self.core.keys, request.name, token, lease_seconds=LEASE_SECONDS)
            try:
                if world.send(extend) is not Extended.OK:
                    return
                if not world.holds(request.name, token):
                    self.faults.append(f"false extension of {lease_id} by {token!r}")
                asked_at = beat_at
            except RetryBudgetExhaustedError:
                pass
            yield
        self.sink[lease_id, opened.opening] = set(messages.values())
        if self.rnd.random() < 0.15:
            return  # a crash: this holder never settles
        for part in self._parts(list(messages)):
            settled = yield from self._settle(
                lease_id, request, token, {slot: messages[slot] for slot in part}, asked_at, bound, len(messages)
            )
            if settled is None:
                return
            asked_at = settled

    def _parts(self, slots: list[int]) -> list[list[int]]:
        half = 0 if self.manner.whole or self.rnd.random() < 0.5 else len(slots) // 2
        return [part for part in (slots[:half], slots[half:]) if part]

    def _settle(
        self,
        lease_id: str,
        request: ClaimRequest,
        token: bytes,
        messages: dict[int, str],
        asked_at: float,
        bound: tuple[tuple[int, bytes], ...],
        size: int,
        verb: Verb | None = None,
    ) -> Generator[None, None, float | None]:
        """Settles, compares the answer with what happened, and gives the time of the question when all went well."""
        world, verbs = self.world, {slot: self.rnd.choice(VERBS) for slot in messages}
        if verb is not None or self.rnd.random() < 0.2:
            verbs = dict.fromkeys(messages, verb or "ack")
        recorded = self.manner.chosen or self.manner.limit != 1
        asked = SettleRequest(request.name, token, KEEP_SECONDS, recorded, self._groups(verbs), bound, size)
        sent_at = world.now
        settling = settle_operation(
            self.core.keys,
            self.core.rules,
            asked,
            clock=lambda: world.now,
            confirmed_at=asked_at,
            lease_seconds=LEASE_SECONDS,
            lease_id=lease_id,
        )
        try:
            lost = (yield from world.drive(settling)).lost
        except LeaseLostError as error:
            lost = error.lost
        except RetryBudgetExhaustedError:
            return None
        for slot, message in messages.items():
            really = world.done.get((token, slot)) == (message, verbs[slot])
            if really and slot in lost:
                self.faults.append(f"wrong refusal: {verbs[slot]} of {message} by {token!r}")
            if not really and slot not in lost:
                self.faults.append(f"false done: {verbs[slot]} of {message} by {token!r}")
        return None if lost else sent_at

    def _groups(self, verbs: dict[int, Verb]) -> tuple[VerdictGroup, ...]:
        groups = []
        for verb in sorted(set(verbs.values())):
            slots = format_ranges(slot for slot, given in verbs.items() if given == verb)
            delay = 1000 if verb == "nack" and self.rnd.random() < 0.3 else 0
            groups.append(VerdictGroup(verb, slots, delay, named=self.rnd.random() < 0.5))
        return tuple(groups)

    # ------------------------------------------------------------------ the end

    def _settle_down(self) -> None:
        """End all consumers: whatever is still leased expires and returns to the queue."""
        world = self.world
        while world.late:
            world.execute(world.late.pop(0))
        world.pass_time(1000)
        while world.expired():
            self._reap(world.expired()[0])
            while world.late:
                world.execute(world.late.pop())
        state.fall_due(self.core.client, self.core.queue)
        self.core.do(self.core.promote())

    def _judge(self) -> None:
        ended = Counter(message for message, verb in self.world.done.values() if verb in ("ack", "discard"))
        places = state.contents(self.core.client, self.core.queue).ids()
        alive = Counter(name.removeprefix("b-") for where in ("pending", "returned") for name in places[where])
        dead = Counter(name.removeprefix("b-") for name in places["dead"])
        dropped = state.counters(self.core.client, self.core.queue).get("dead_dropped", 0)
        for number in range(MESSAGES):
            name = str(number)
            if ended[name] + alive[name] + dead[name] == 0 and dropped > 0:
                dropped -= 1
            elif ended[name] + alive[name] + dead[name] != 1:
                self.faults.append(f"{name} is done {ended[name]}, alive {alive[name]} and dead {dead[name]} times")
            if ended[name] and name not in self.worked_on:
                self.faults.append(f"loss: {name} was acked and nobody worked on it")
            if ended[name] and self.manner.whole and not any(name in batch for batch in self.sink.values()):
                self.faults.append(f"loss: {name} was acked and is in no output")
        if dropped:
            self.faults.append(f"{dropped} dead letters are counted as dropped and are not")
        self._judge_markers(alive)
        self._judge_history()
        try:
            state.check(self.core.client)
        except AssertionError as error:
            self.faults.append(f"stored: {str(error).splitlines()[0]}")

    def _judge_markers(self, alive: Counter[str]) -> None:
        for name in self.bound:
            expected = self.strangers.get(name, f"b-{name}" if alive[name] else None)
            if self.core.owner(name) != expected:
                self.faults.append(f"the key of {name} is held by {self.core.owner(name)!r} instead of {expected!r}")

    def _judge_history(self) -> None:
        if self.core.rules.failed_cap is None:
            return
        for which, verbs in {"completed": {"ack"}, "failed": {"nack", "bury", "discard"}}.items():
            recorded = Counter(reported[-1] for reported in state.history(self.core.client, self.core.queue, which))
            really = Counter(message for message, verb in self.world.done.values() if verb in verbs)
            if recorded != really:
                self.faults.append(f"{which} tells {recorded - really} too much and lacks {really - recorded}")


def request_of(held: OpenLease) -> ClaimRequest:
    """Return the claim that opened a lease whose id is its nonce."""
    return ClaimRequest(held.name, held.name, 1, LEASE_SECONDS, KEEP_SECONDS)


def _name(entry: bytes) -> str:
    return entry.rsplit(b"\x1f", 1)[1].decode()


def play(client: redis.Redis, seed: int, *, packs: bool = False) -> list[str]:
    client.flushall()
    return Play(client, seed, packs=packs).run()
