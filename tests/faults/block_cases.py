"""Prepared calls on leases over blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.in_flight import LeasePage, in_flight_call
from sluicegate.core.transitions.manifest import manifest_call
from tests.support import state
from tests.support.blocks import pack_pending
from tests.support.core_calls import Core, verdict

Prepare = Callable[[Core], Call[Any]]


def waiting(core: Core) -> None:
    core.do(core.publish("b", *(f"m{at}" for at in range(40))))
    core.bind("m10", "m11", "m12")
    pack_pending(core.client, core.queue, least=2, most=20)


def leased(core: Core) -> bytes:
    waiting(core)
    return core.opened("l", "n", 40)[0]


def claim_blocks(core: Core) -> Call[Any]:
    waiting(core)
    return core.claim("l", "n", 40)


def claim_and_cut_a_block(core: Core) -> Call[Any]:
    waiting(core)
    return core.claim("l", "n", 28)


def claim_and_open_a_block(core: Core) -> Call[Any]:
    waiting(core)
    return core.claim("l", "n", 2)


def ack_blocks(core: Core) -> Call[Any]:
    return core.settle("l", leased(core), verdict("ack", "1-40"))


def ack_whole_blocks(core: Core) -> Call[Any]:
    return core.ack_whole("l", leased(core), 40)


def settle_blocks(core: Core) -> Call[Any]:
    token = leased(core)
    core.rules = QueueRules(max_delivery_count=10, max_dead_length=1, completed_cap=5, failed_cap=5)
    return core.settle(
        "l", token, verdict("ack", "1-13"), verdict("nack", "15", delay_seconds=5), verdict("release", "16"),
        verdict("bury", "17"),
    )  # fmt: skip


def reap_blocks(core: Core) -> Call[Any]:
    token = leased(core)
    core.do(core.settle("l", token, verdict("ack", "2")))
    state.expire(core.client, core.queue)
    return core.reap("l")


def take_over_blocks(core: Core) -> Call[Any]:
    token = leased(core)
    core.do(core.settle("l", token, verdict("ack", "2")))
    return core.claim_known("l", "heir", takeover=token)


def look_at_a_lease_of_blocks(core: Core) -> Call[Any]:
    leased(core)
    return manifest_call(core.keys, b"l", 5, 25)


def look_into_leases_of_blocks(core: Core) -> Call[Any]:
    leased(core)
    return in_flight_call(core.keys, LeasePage(b"0", [b"l"]), count=12, offset=5)


CASES: list[Prepare] = [
    claim_blocks, claim_and_cut_a_block, claim_and_open_a_block, ack_blocks, ack_whole_blocks, settle_blocks,
    reap_blocks, take_over_blocks, look_at_a_lease_of_blocks, look_into_leases_of_blocks,
]  # fmt: skip
TOLD_ONCE = (reap_blocks,)
TYPES: dict[str, tuple[Prepare, str]] = {
    "claim blocks": (claim_and_cut_a_block, "lease leases closed pending returned delayed counters wakeup"),
    "settle blocks": (
        settle_blocks,
        "leases returned delayed dead dead_records counters wakeup set_aside lease closed completed failed buckets",
    ),
    "reap blocks": (reap_blocks, "lease leases closed returned dead dead_records counters wakeup set_aside"),
}
