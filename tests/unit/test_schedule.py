"""`delay_seconds` and `due_at`, as a publish is given them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pandas
import pytest

from sluicegate.core.publishing import NOW, Schedule, parse_schedule
from sluicegate.errors import ConfigurationError


@pytest.mark.parametrize("delay", [0, 0.0])
def test_no_delay(delay: float) -> None:
    assert parse_schedule(delay) == NOW


def test_a_delay_stays_one() -> None:
    assert parse_schedule(1.5) == Schedule(delay_seconds=1.5)


@pytest.mark.parametrize(
    "delay", [-1, -0.001, float("nan"), float("inf"), -float("inf"), "5", None, True, timedelta(seconds=5), 4e9]
)
def test_a_delay_that_is_none(delay: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"delay_seconds must be .*, not "):
        parse_schedule(delay)


def test_due_at_in_milliseconds_rounded_up() -> None:
    due = datetime(1970, 1, 1, 2, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))
    assert parse_schedule(0, due) == Schedule(due_ms=3_600_001)


def test_due_at_before_1970_is_past_like_any_other() -> None:
    assert parse_schedule(0, datetime(1960, 1, 1, tzinfo=UTC)) == Schedule(due_ms=1)


def test_a_naive_due_at_names_no_instant() -> None:
    with pytest.raises(ConfigurationError, match=r"naive datetime: it names no instant without a time zone"):
        parse_schedule(0, datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("due_at", [1_900_000_000, "2030-01-01T00:00:00Z", date(2030, 1, 1)])
def test_due_at_is_a_datetime(due_at: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"must be an aware datetime, not {type(due_at).__name__}"):
        parse_schedule(0, due_at)


def test_both_at_once_contradict_each_other() -> None:
    with pytest.raises(ConfigurationError, match="delay_seconds or due_at, not both"):
        parse_schedule(5, datetime.now(UTC))


def test_no_time_at_all_is_an_error_of_ours() -> None:
    with pytest.raises(ConfigurationError, match=r"due_at is not a time \(NaT\)"):
        parse_schedule(due_at=pandas.NaT)
