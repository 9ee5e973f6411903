"""Calls of a run that notes what it gives back, for the tests of repeats, of wrong types and of stopped scripts."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.transitions.claim import ClaimRequest, claim_call
from sluicegate.core.transitions.keep_driver import keep_driver_call
from sluicegate.core.transitions.remember_returned import remember_returned_call
from tests.support.core_calls import Core, verdict


def note(core: Core) -> Call[Any]:
    return remember_returned_call(core.keys, core.keys.run("r"), [b"b-0", b"b-1"])


def ask_what_was_noted(core: Core) -> Call[Any]:
    core.do(note(core))
    return remember_returned_call(core.keys, core.keys.run("r"), [b"b-1", b"b-2"], life_seconds=0)


def claim_for_a_run(core: Core, name: str = "m") -> Call[Any]:
    request = ClaimRequest(core.keys.lease_name(name), b"n2", 10, 60, 3600, run=core.keys.run("r"))
    return claim_call(core.keys, core.rules, request)


def claim_and_pass_by(core: Core) -> Call[Any]:
    core.do(core.publish("b", *"abcdef"))
    token, _ = core.opened("l", "n", 3)
    core.do(note(core))
    core.do(core.settle("l", token, verdict("nack", "1-2"), verdict("ack", "3")))
    return claim_for_a_run(core)


def claim_what_was_given_back(core: Core) -> Call[Any]:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("m", "n", 1)
    core.do(remember_returned_call(core.keys, core.keys.run("r"), [b"\x1f" + core.keys.lease_name("m")]))
    core.do(core.settle("m", token, verdict("nack", "1")))
    return claim_for_a_run(core)


def keep_a_driver(core: Core) -> Call[Any]:
    core.do(keep_driver_call(core.keys, "r", b"other", "elsewhere", life_seconds=60))
    core.do(keep_driver_call(core.keys, "r", b"mine", "here", life_seconds=60))
    return keep_driver_call(core.keys, "r", b"mine", "here", life_seconds=60)


def end_a_driver(core: Core) -> Call[Any]:
    core.do(keep_a_driver(core))
    return keep_driver_call(core.keys, "r", b"mine", "here", life_seconds=0)


CASES = [keep_a_driver, end_a_driver, note, ask_what_was_noted, claim_and_pass_by, claim_what_was_given_back]
TOLD_ONCE = (note,)
TYPES = {
    "keep_driver": (keep_a_driver, "leases drivers"),
    "remember_returned": (note, "leases run"),
    "claim for a run": (claim_for_a_run, "run"),
}
