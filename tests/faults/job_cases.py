"""Calls about jobs as the tests of repeats and of wrong types make them."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.jobs import (
    cancel_job_call,
    keep_jobs_call,
    list_jobs_call,
    peek_jobs_call,
    update_job_call,
)
from tests.faults import tracking_cases
from tests.support.core_calls import Core, verdict

JOB = b"G:0-0"


def update(core: Core) -> Call[Any]:
    token, _ = tracking_cases.lease(core)
    return update_job_call(core.keys, b"t", token, 1, JOB, progress=b"0.5", note=b"half")


def update_what_was_settled(core: Core) -> Call[Any]:
    token, _ = tracking_cases.lease(core)
    core.do(core.settle("t", token, verdict("ack", "1")))
    return update_job_call(core.keys, b"t", token, 1, JOB, progress=b"0.5", note=b"half")


def update_with_a_wrong_token(core: Core) -> Call[Any]:
    tracking_cases.lease(core)
    return update_job_call(core.keys, b"t", b"other:1-1", 1, JOB, progress=b"0.5", note=b"half")


def cancel_what_runs(core: Core) -> Call[Any]:
    tracking_cases.lease(core)
    return cancel_job_call(core.keys, JOB)


def cancel_what_waits(core: Core) -> Call[Any]:
    tracking_cases.batch(core)
    return cancel_job_call(core.keys, JOB)


def keep(core: Core) -> Call[Any]:
    return keep_jobs_call(core.keys, ttl_seconds=60, max_ended=70)


def peek(core: Core) -> Call[Any]:
    tracking_cases.lease(core)
    return peek_jobs_call(core.keys, [JOB, b"unknown"])


def peek_at_states(core: Core) -> Call[Any]:
    tracking_cases.lease(core)
    return peek_jobs_call(core.keys, [JOB, b"unknown"], whole=False)


def list_ended(core: Core) -> Call[Any]:
    token, _ = tracking_cases.lease(core)
    core.do(core.settle("t", token, verdict("ack", "1-3"), verdict("bury", "4")))
    return list_jobs_call(core.keys, "completed", count=2)


def of_unknown_jobs(keys: QueueKeys) -> list[Call[Any]]:
    """Return a call of each script about jobs."""
    return [
        update_job_call(keys, b"t", b"other:1-1", 1, JOB, progress=b"0.5", note=b""),
        cancel_job_call(keys, JOB),
        keep_jobs_call(keys, ttl_seconds=60, max_ended=70),
        peek_jobs_call(keys, [JOB]),
        list_jobs_call(keys, "failed", count=1),
    ]


CASES = [
    update, update_what_was_settled, update_with_a_wrong_token, cancel_what_runs, cancel_what_waits, keep, peek,
    peek_at_states, list_ended,
]  # fmt: skip
TYPES = {
    "update_job": (update, "lease leases tracking"),
    "cancel_job": (cancel_what_runs, "tracking leases"),
    "keep_jobs": (keep, "tracking leases"),
    "peek_jobs": (peek, "tracking"),
    "list_jobs": (list_ended, "tracking tracking_ended"),
}
