"""A gate opens for the conditions that were given, and says why nothing is ready while it is closed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sluicegate import ConfigurationError, Depth
from sluicegate.gates import Gate, why_not_ready

EMPTY = Depth(
    ready=0, pending=0, returned=0, delayed=0, due=0, in_flight=0, leases=0, expired=0, dead=0,
    oldest_ready_age_seconds=None, paused=False, published_total=7, claimed_total=0,
)  # fmt: skip
NOON = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("gate", "state", "fired_by"),
    [
        (Gate(min_ready=3), {"ready": 2}, None),
        (Gate(min_ready=3), {"ready": 3}, "depth"),
        (Gate(min_ready=1), {"ready": 3, "paused": True}, None),
        (Gate(max_age_seconds=60), {"ready": 1, "oldest_ready_age_seconds": 59.9}, None),
        (Gate(max_age_seconds=60), {"ready": 1, "oldest_ready_age_seconds": 60.0}, "age"),
        (Gate(max_age_seconds=60), {"ready": 1, "oldest_ready_age_seconds": 99.0, "paused": True}, None),
        (Gate(max_age_seconds=60), {}, None),
        (Gate(min_ready=9, max_age_seconds=60), {"ready": 9, "oldest_ready_age_seconds": 60.0}, "depth"),
        (Gate(min_dead=2), {"ready": 5, "dead": 1}, None),
        (Gate(min_dead=2), {"dead": 2}, "dead"),
        (Gate(min_dead=2, min_ready=1), {"ready": 5, "dead": 2, "paused": True}, "dead"),
    ],
)
def test_a_gate_fires_by_the_first_condition_that_is_met(
    gate: Gate, state: dict[str, object], fired_by: str | None
) -> None:
    assert gate.fired_by(replace(EMPTY, **state)) == fired_by  # type: ignore[arg-type]


def test_the_condition_in_words() -> None:
    every = Gate(min_ready=1, max_age_seconds=90, min_dead=3)
    assert every.condition == "1 message is ready or the oldest has been ready for 90 s or 3 messages are dead"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "give min_ready, max_age_seconds or min_dead"),
        ({"min_ready": 0}, "min_ready must be None or an int of 1 or more, not 0; an empty queue opens no gate"),
        ({"min_ready": "3"}, "min_ready must be None or an int of 1 or more, not '3'"),
        ({"min_ready": True}, "min_ready must be None or an int of 1 or more, not True"),
        ({"min_dead": 0}, "min_dead must be None or an int of 1 or more, not 0"),
        ({"max_age_seconds": 0}, "max_age_seconds must be None or a finite number above 0, not 0"),
        ({"max_age_seconds": float("inf")}, "finite number above 0, not inf"),
        ({"max_age_seconds": float("nan")}, "finite number above 0, not nan"),
    ],
)
def test_conditions_that_cannot_work_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Gate(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"published_total": 0}, "no such queue yet"),
        ({}, "empty"),
        ({"ready": 4, "dead": 1}, ""),
        ({"ready": 4, "paused": True}, "paused, 4 ready"),
        ({"paused": True, "published_total": 0}, "paused"),
        ({"in_flight": 3, "leases": 1, "next_expiry_seconds": 240.0}, "3 in flight until 12:04:10"),
        ({"in_flight": 3, "leases": 2, "next_expiry_seconds": 240.0}, "3 in flight, the first until 12:04:10"),
        ({"delayed": 1, "next_due_seconds": 90000.0}, "1 delayed until 2026-03-02 13:00:10"),
        ({"delayed": 2, "next_due_seconds": 1e14}, "2 delayed"),
        ({"dead": 12}, "12 dead letters"),
        (
            {"paused": True, "ready": 3, "in_flight": 5, "leases": 3, "expired": 2, "next_expiry_seconds": 0.0},
            "paused, 3 ready, 3 in flight",
        ),
        (
            {"paused": True, "ready": 1, "delayed": 3, "due": 1, "next_due_seconds": 0.0},
            "paused, 1 ready, 2 delayed",
        ),
        (
            {
                "in_flight": 1,
                "leases": 1,
                "next_expiry_seconds": 5.0,
                "delayed": 2,
                "next_due_seconds": 60.0,
                "dead": 1,
            },
            "1 in flight until 12:00:15, 2 delayed, the first until 12:01:10, 1 dead letter",
        ),
    ],
)
def test_why_nothing_is_ready(state: dict[str, object], reason: str) -> None:
    assert why_not_ready(replace(EMPTY, **state), NOON) == reason  # type: ignore[arg-type]
