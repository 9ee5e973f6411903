"""Durations below a millisecond: Redis counts in whole ones, and none of them may become no duration at all."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.core.call import Call
from sluicegate.core.durability import replicated
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.ack_and_claim import ack_and_claim_call
from sluicegate.core.transitions.claim import ClaimRequest, claim_call, claim_known_call
from sluicegate.core.transitions.extend import extend_call
from sluicegate.core.transitions.keep_driver import keep_driver_call
from sluicegate.core.transitions.publish import Batch, publish_call
from sluicegate.core.transitions.remember_returned import remember_returned_call
from sluicegate.core.transitions.scan import scan_call
from sluicegate.core.transitions.settle import SettleRequest, ack_whole_call, settle_call
from sluicegate.spark.transitions import acquire_consumer_call, commit_write_call, stage_rows_call

KEYS = QueueKeys("orders")
SHORT = 0.0004
RULES = QueueRules(max_lease_seconds=SHORT)


def _publish(**durations: float) -> Call[Any]:
    return publish_call(KEYS, Batch(id=b"B", parts=[b"p"], **durations), age_seconds=SHORT)  # type: ignore[arg-type]


def _claim() -> Call[Any]:
    request = ClaimRequest(b"L", b"N", 1, lease_seconds=SHORT, keep_seconds=SHORT, empty_seconds=SHORT, run=b"r")
    return claim_call(KEYS, RULES, request)


def _claim_known() -> Call[Any]:
    return claim_known_call(KEYS, RULES, ClaimRequest(b"L", b"N", 1, lease_seconds=SHORT, keep_seconds=SHORT))


def _ack_whole() -> Call[Any]:
    return ack_whole_call(KEYS, SettleRequest(b"L", b"T", SHORT, True, (), size=1), held_seconds=SHORT)


def _ack_and_claim() -> Call[Any]:
    request = ClaimRequest(b"L", b"L", 1, lease_seconds=SHORT, keep_seconds=SHORT)
    return ack_and_claim_call(KEYS, request, None, claims=True, max_lease_seconds=SHORT, held_seconds=SHORT)


def _settle() -> Call[Any]:
    group = VerdictGroup("nack", "1", delay_seconds=SHORT)
    return settle_call(KEYS, RULES, SettleRequest(b"L", b"T", SHORT, True, (group,)), held_seconds=SHORT)


CASES: dict[str, tuple[Call[Any], str]] = {
    "publish": (
        _publish(window_seconds=SHORT, receipt_seconds=SHORT, oldest_seconds=SHORT, delay_seconds=SHORT),
        "age_ms oldest_ms window_ms receipt_ms delay_ms",
    ),
    "claim": (_claim(), "lease_ms keep_ms empty_ms max_lease_ms exclude_ms"),
    "claim_known": (_claim_known(), "lease_ms max_lease_ms"),
    "settle": (_settle(), "keep_ms held_ms"),
    "ack_whole": (_ack_whole(), "keep_ms held_ms"),
    "ack_and_claim": (_ack_and_claim(), "lease_ms keep_ms max_lease_ms held_ms"),
    "extend": (extend_call(KEYS, b"L", b"T", lease_seconds=SHORT, max_lease_seconds=SHORT), "lease_ms max_lease_ms"),
    "scan": (scan_call(KEYS, "dead", page_size=1, older_seconds=SHORT), "older_ms"),
    "acquire_consumer": (acquire_consumer_call(KEYS, "c", b"N", 0, life_seconds=SHORT), "life_ms"),
    "remember_returned": (remember_returned_call(KEYS, b"run", [b"m"], life_seconds=SHORT), "life_ms"),
    "keep_driver": (keep_driver_call(KEYS, "r", b"N", "here", life_seconds=SHORT), "life_ms"),
    "stage_rows": (stage_rows_call(KEYS, b"S", 0, [b"p"], life_seconds=SHORT), "life_ms"),
    "commit_write": (commit_write_call(KEYS, b"W", "look", {}, life_seconds=SHORT), "life_ms"),
}


@pytest.mark.parametrize(("name", "arg"), [(name, arg) for name, (_, args) in CASES.items() for arg in args.split()])
def test_a_duration_below_a_millisecond_is_one(name: str, arg: str) -> None:
    call = CASES[name][0]
    assert call.args[call.script.header.args.index(arg)] == 1


def test_the_delay_of_a_verdict_below_a_millisecond_is_one() -> None:
    assert _settle().args[-3] == 1


def test_every_duration_of_every_call_is_among_them() -> None:
    named = {name: {arg for arg in call.script.header.args if arg.endswith("_ms")} for name, (call, _) in CASES.items()}
    fixed = {"publish": {"due_ms"}}  # a time, not a duration
    tried = {name: set(args.split()) | fixed.get(name, set()) for name, (_, args) in CASES.items()}
    assert {name: args for name, args in named.items() if name != "scan"} == {
        name: args for name, args in tried.items() if name != "scan"
    }


def test_none_stays_none_and_whole_milliseconds_stay_as_they_are() -> None:
    call = _publish(window_seconds=0, receipt_seconds=0, oldest_seconds=2, delay_seconds=0.007)
    names = call.script.header.args
    reported = {name: call.args[names.index(name)] for name in ("window_ms", "receipt_ms", "oldest_ms", "delay_ms")}
    assert reported == {"window_ms": 0, "receipt_ms": 0, "oldest_ms": 2000, "delay_ms": 7}


def test_a_wait_for_replicas_below_a_millisecond_is_not_for_ever() -> None:
    assert replicated(1, timeout_seconds=SHORT).command() == (b"WAIT", 1, 1)
