"""Calls that end messages with markers, history and caps, as the tests of repeats and of stopped scripts make them."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.rules import QueueRules
from tests.support import state
from tests.support.core_calls import Core, verdict

WHY = b"r\x1fE\x1ft"


def _lease(core: Core, letters: str = "abcdef", **rules: Any) -> bytes:
    core.rules = QueueRules(
        **{"max_delivery_count": 10, "completed_cap": 3, "failed_cap": 3, "max_dead_length": 1} | rules
    )
    core.do(core.publish("b", *letters))
    core.bind(*letters)
    return core.opened("l", "n", len(letters))[0]


def ack_bound(core: Core) -> Call[Any]:
    return core.settle("l", _lease(core), verdict("ack", "1-6"))


def discard_some_bound(core: Core) -> Call[Any]:
    return core.settle("l", _lease(core), verdict("discard", "2,4-5", why=WHY))


def settle_bound_mixture(core: Core) -> Call[Any]:
    return core.settle(
        "l",
        _lease(core, max_dead_length=0),
        verdict("ack", "1"),
        verdict("nack", "2", why=WHY),
        verdict("nack", "3", delay_seconds=1000, why=WHY),
        verdict("release", "4"),
        verdict("bury", "5", why=WHY),
        verdict("discard", "6", why=WHY),
    )


def put_bound_back(core: Core) -> Call[Any]:
    return core.settle(
        "l",
        _lease(core, max_dead_length=0),
        verdict("nack", "1", why=WHY),
        verdict("nack", "2-3", delay_seconds=1000, why=WHY),
        verdict("release", "4"),
        verdict("bury", "5-6", why=WHY),
    )


def bury_beyond_the_cap(core: Core) -> Call[Any]:
    return core.settle("l", _lease(core), verdict("bury", "1-3", why=WHY))


def _expired_alone(core: Core) -> None:
    _lease(core, "a", max_delivery_count=1)
    state.expire(core.client, core.queue)


def reap_that_asks(core: Core) -> Call[Any]:
    _expired_alone(core)
    return core.reap("l")


def reap_to_death(core: Core) -> Call[Any]:
    _expired_alone(core)
    return core.reap("l", wanted=[b"a"])


def claim_with_foreign_values_kept(core: Core) -> Call[Any]:
    core.rules = QueueRules(max_delivery_count=10, strict=True)
    core.client.rpush(core.keys.pending, b"junk", b"more")
    core.do(core.publish("b", *"abc"))
    return core.claim("l", "n", 2)


def claim_nothing_but_foreign_values(core: Core) -> Call[Any]:
    core.rules = QueueRules(max_delivery_count=10, strict=True)
    core.client.rpush(core.keys.pending, b"junk", b"more")
    return core.claim("l", "n", 2)


def claim_with_foreign_values_beyond_the_cap(core: Core) -> Call[Any]:
    core.rules = QueueRules(max_delivery_count=10, max_dead_length=1)
    core.client.rpush(core.keys.pending, b"junk", b"more")
    core.do(core.publish("b", *"abc"))
    return core.claim("l", "n", 2)


# Where nothing is dropped on purpose.
KEEPING = [put_bound_back, reap_to_death, claim_with_foreign_values_kept]
# What a maintenance call or a cap did is reported once.
TOLD_ONCE = [bury_beyond_the_cap, reap_to_death]
CASES = [
    ack_bound, discard_some_bound, settle_bound_mixture, put_bound_back, bury_beyond_the_cap, reap_that_asks,
    reap_to_death, claim_with_foreign_values_kept, claim_nothing_but_foreign_values,
    claim_with_foreign_values_beyond_the_cap,
]  # fmt: skip
