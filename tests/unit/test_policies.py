"""What `on_error` and `retry_backoff` mean for a message whose handler raised."""

from __future__ import annotations

from typing import Any

import pytest
import tenacity

from sluicegate.core.policies import DEFAULT_BACKOFF, Failure, after_error, backoff_seconds, why


def test_a_retry_waits_by_the_deliveries() -> None:
    wait = tenacity.wait_exponential(multiplier=1, max=300)
    found = [after_error("retry", wait, deliveries) for deliveries in (1, 2, 3, 20)]
    assert found == [Failure("nack", seconds) for seconds in (1, 2, 4, 300)]


def test_hopeless_and_unwanted_messages_do_not_wait() -> None:
    assert after_error("bury", DEFAULT_BACKOFF, 3) == Failure("bury", 0, "handler_error")
    assert after_error("discard", DEFAULT_BACKOFF, 3) == Failure("discard")


@pytest.mark.parametrize(
    ("wait", "deliveries", "seconds"),
    [
        (tenacity.wait_none(), 5, 0),
        (tenacity.wait_fixed(7), 5, 7),
        (tenacity.wait_incrementing(start=1, increment=2), 3, 5),
        (tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(9)), 2, 9),
        (tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), 1, 3),
        (lambda state: state.attempt_number * 10, 4, 40),
        (lambda state: -3, 1, 0),
        (tenacity.wait_fixed(7), 0, 7),
    ],
)
def test_any_strategy_of_tenacity_serves(wait: Any, deliveries: int, seconds: float) -> None:
    assert backoff_seconds(wait, deliveries) == seconds


def test_a_strategy_may_look_at_the_error() -> None:
    wait = tenacity.wait_exception(lambda error: 60 if isinstance(error, TimeoutError) else 1)
    assert after_error("retry", wait, 1, TimeoutError()).delay_seconds == 60
    assert after_error("retry", wait, 1, KeyError()).delay_seconds == 1


def test_the_default_grows_from_one_second_to_five_minutes() -> None:
    assert 1 <= backoff_seconds(DEFAULT_BACKOFF, 1) <= 2
    assert 300 <= backoff_seconds(DEFAULT_BACKOFF, 20) <= 301


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), 1e10])
def test_a_pause_without_end_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="retry_backoff gave"):
        backoff_seconds(lambda state: wrong, 2)


def test_a_separator_in_what_was_raised_leaves_the_record_in_one_piece() -> None:
    found = why("a\x1freason", RuntimeError("text with \x1f in it"))
    assert found.split(b"\x1f") == [b"a reason", b"RuntimeError", b"text with   in it"]
