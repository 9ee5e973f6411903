"""One message among a thousand that fails every time: it dies alone, and no other message dies with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate.core.entry import payload_of
from sluicegate.core.ledger import VerdictGroup, format_ranges
from sluicegate.core.transitions.claim import ClaimRequest, Opened, claim_operation
from tests.conformance.driven import Driven
from tests.support import markers, state
from tests.support.core_calls import Core, ids, verdict

COUNT, POISON = 1000, 617
Work = Callable[[Core, str, bytes, list[int], int | None], None]


def crash(core: Core, lease: str, token: bytes, slots: list[int], poisoned: int | None) -> None:
    """Kill the whole process: nothing is settled, and the lease expires."""
    if poisoned is None:
        core.do(core.settle(lease, token, verdict("ack", format_ranges(slots))))
    else:
        state.expire(core.client, core.queue, lease)


def fail_by_name(core: Core, lease: str, token: bytes, slots: list[int], poisoned: int | None) -> None:
    """Its handler raises: it is nacked, and the others are acked."""
    groups = [VerdictGroup("ack", format_ranges(slot for slot in slots if slot != poisoned))]
    if poisoned is not None:
        groups.append(VerdictGroup("nack", str(poisoned), named=True))
    core.do(core.settle(lease, token, *[group for group in groups if group.slots]))


def fail_whole(core: Core, lease: str, token: bytes, slots: list[int], poisoned: int | None) -> None:
    """Nack the whole batch, as when its handler raises."""
    verb = "ack" if poisoned is None else "nack"
    core.do(core.settle(lease, token, VerdictGroup(verb, format_ranges(slots), named=False)))  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [False, True], ids=["plain", "until acked"])
@pytest.mark.parametrize(("work", "max_claims"), [(crash, 27), (fail_by_name, 12), (fail_whole, 27)])
def test_the_poisonous_message_dies_alone(client: redis.Redis, work: Work, max_claims: int, bound: bool) -> None:
    core = Core(client, most=10)
    names = [str(number) for number in range(COUNT)]
    if bound:
        core.do(core.publish("b", *names, keyed=True, kind=b"2", window=7 * 86400))
    else:
        core.do(core.publish("b", *names))
    claims = 0
    while core.do(core.depth()).dead == 0 or _ended(core) < COUNT:
        claims += 1
        assert claims < 200, "it never ends"
        lease, driven = f"l{claims}", Driven(core)
        request = ClaimRequest(core.keys.lease_name(lease), b"n", 1000, 60, 3600)
        reply = driven.run(claim_operation(core.keys, core.rules, request, clock=driven.clock))
        if not isinstance(reply, Opened):
            continue
        names = ids(reply)
        poisoned = names.index(str(POISON)) + 1 if str(POISON) in names else None
        work(core, lease, b"n:" + reply.opening, list(range(1, len(names) + 1)), poisoned)
    (dead,) = state.contents(client, core.queue).dead
    assert payload_of(dead) == str(POISON).encode()
    assert state.counters(client, core.queue)["acked"] == COUNT - 1
    assert claims <= max_claims
    assert markers.held(client, core.keys) == {}


@pytest.mark.parametrize("most", [2, 3, 4])
@pytest.mark.parametrize("crashes", [True, False], ids=["crash", "takeover"])
def test_the_last_delivery_of_a_suspect_is_alone_whatever_the_cap(
    client: redis.Redis, most: int, crashes: bool
) -> None:
    """A small cap is reached while a quarter of the limit per delivery still makes large batches."""
    core = Core(client, most=most)
    core.do(core.publish("b", *(str(number) for number in range(300))))
    token, reply = core.opened("first", "n", 1000)
    for delivery in range(1, most - 1 if not crashes else 1):  # each takeover is one delivery more
        token, reply = core.opened("first", f"n{delivery}", 1000, takeover=token)
    core.do(core.settle("first", token, verdict("nack", "1-300", named=False)))
    while (deliveries := int(state.contents(client, "orders").returned[0][25:28], 16)) < most - 1:
        token, reply = core.opened(f"l{deliveries}", "n", 1000)
        assert len(reply.entries) == 1000 // 4**deliveries, "until then some travel together"
        state.expire(client, "orders")
        core.do(core.reap(f"l{deliveries}", 1000))
    _, reply = core.opened("last", "n", 1000)
    assert len(reply.entries) == 1, "nothing else may die with it"


def _ended(core: Core) -> int:
    totals = state.counters(core.client, core.queue)
    return totals.get("acked", 0) + totals.get("buried", 0)
