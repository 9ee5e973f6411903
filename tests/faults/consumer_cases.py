"""Calls about acquiring a consumer as the tests of repeats, of wrong types and of stopped scripts make them."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call
from sluicegate.spark.transitions import acquire_consumer_call
from tests.support.core_calls import Core


def acquire_anew(core: Core) -> Call[Any]:
    old = core.do(acquire_consumer_call(core.keys, "c", b"first", 0))
    core.do(acquire_consumer_call(core.keys, "c", b"first", old.epoch, floor=2, top=5))
    return acquire_consumer_call(core.keys, "c", b"second", 0)


def acquire_again(core: Core) -> Call[Any]:
    old = core.do(acquire_consumer_call(core.keys, "c", b"first", 0))
    return acquire_consumer_call(core.keys, "c", b"second", old.epoch)


def keep_the_consumer(core: Core) -> Call[Any]:
    call = acquire_anew(core)
    new = core.do(call)
    return acquire_consumer_call(core.keys, "c", b"second", new.epoch, floor=1, top=9)


def ask_for_a_lost_consumer(core: Core) -> Call[Any]:
    core.do(acquire_again(core))
    return acquire_consumer_call(core.keys, "c", b"first", 0)


CASES = [acquire_anew, acquire_again, keep_the_consumer, ask_for_a_lost_consumer]
TYPES = {"acquire_consumer": (keep_the_consumer, "leases consumer")}
