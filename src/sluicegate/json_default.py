"""The option `json_default`: how a queue writes values that JSON cannot carry."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

from sluicegate.checks import is_async, unfit
from sluicegate.errors import OptionTypeError

__all__ = ["JsonDefault", "check_json_default", "json_function"]

JsonDefault = Callable[[Any], Any] | Literal["iso"]
"""A function from such a value to one that JSON can carry, as `json.dumps(default=)` takes it, or `"iso"`."""


def check_json_default(name: str, value: Any) -> None:
    """Require `"iso"` or a plain function of one argument.

    Raises:
        ConfigurationError: anything else.
    """
    if value == "iso" or (callable(value) and not is_async(value)):
        return
    if callable(value):
        raise OptionTypeError(f"{name} must be a plain function: nobody awaits it while a payload is encoded")
    raise unfit(
        f'{name} must be None, "iso" (dates and times as ISO 8601 text, Decimal as text) or a function that returns '
        f"what JSON can carry, not {value!r}",
        isinstance(value, str),
    )


def json_function(option: JsonDefault | None) -> Callable[[Any], Any] | None:
    """Return the function that an option names; None for none."""
    return _iso if option == "iso" else option


def _iso(value: Any) -> Any:
    """Return dates and times as ISO 8601 text, in the zone they have, a Decimal as its digits, others as they are.

    What is no time (pandas' NaT) and no number becomes a NaN, which JSON refuses.
    """
    if isinstance(value, (datetime, date, time)):
        return value.isoformat() if value == value else math.nan  # noqa: PLR0124  (NaT is unequal to itself)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else math.nan
    return value
