"""Calls about the seat of a consumer as the tests of repeats, of wrong types and of stopped scripts make them."""

from __future__ import annotations

from typing import Any

from sluicegate.core import batch_calls
from sluicegate.core.call import Call
from tests.support.core_calls import Core


def seat_anew(core: Core) -> Call[Any]:
    old = core.do(batch_calls.fence(core.keys, "c", b"first", 0))
    core.do(batch_calls.fence(core.keys, "c", b"first", old.epoch, floor=2, top=5))
    return batch_calls.fence(core.keys, "c", b"second", 0)


def seat_again(core: Core) -> Call[Any]:
    old = core.do(batch_calls.fence(core.keys, "c", b"first", 0))
    return batch_calls.fence(core.keys, "c", b"second", old.epoch)


def keep_the_seat(core: Core) -> Call[Any]:
    call = seat_anew(core)
    new = core.do(call)
    return batch_calls.fence(core.keys, "c", b"second", new.epoch, floor=1, top=9)


def ask_for_a_lost_seat(core: Core) -> Call[Any]:
    core.do(seat_again(core))
    return batch_calls.fence(core.keys, "c", b"first", 0)


CASES = [seat_anew, seat_again, keep_the_seat, ask_for_a_lost_seat]
TYPES = {"fence": (keep_the_seat, "leases seat")}
