"""These checks validate single options. Every error names the option, its value and the valid values."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = [
    "MAX_SECONDS",
    "callback",
    "cap",
    "count",
    "finite",
    "flag",
    "is_async",
    "not_negative",
    "one_of",
    "positive",
    "synchronous",
    "unfit",
    "whole",
]

MAX_SECONDS = 100 * 365 * 86_400  # Redis and a float can both count this in milliseconds
_LARGEST = 2**53  # the largest int that Lua counts exactly


def positive(name: str, value: Any) -> None:
    """Require a number of seconds above 0."""
    if not _is_number(value) or not 0 < value <= MAX_SECONDS:
        raise unfit(f"{name} must be a number above 0 (at most 100 years), not {value!r}", _is_number(value))


def not_negative(name: str, value: Any) -> None:
    """Require a number of seconds, 0 or more."""
    if not _is_number(value) or not 0 <= value <= MAX_SECONDS:
        raise unfit(f"{name} must be a number of 0 or more (at most 100 years), not {value!r}", _is_number(value))


def finite(name: str, value: Any) -> None:
    """Require a number that is neither NaN nor infinite."""
    if not _is_number(value) or not math.isfinite(value):
        raise unfit(f"{name} must be a finite number, not {value!r}", _is_number(value))


def count(name: str, value: Any, most: int = _LARGEST, *, least: int = 1) -> None:
    """Require an int from `least` to `most`."""
    if not _is_int(value) or not least <= value <= most:
        raise unfit(f"{name} must be an int from {least} to {most}, not {value!r}", _is_int(value))


def whole(name: str, value: Any, most: int) -> None:
    """Require None or an int from 1 to `most`."""
    if value is not None and (not _is_int(value) or not 1 <= value <= most):
        raise unfit(f"{name} must be None or an int from 1 to {most}, not {value!r}", _is_int(value))


def cap(name: str, value: Any) -> None:
    """Require None for no bound, or an int of 1 or more."""
    if value is not None and (not _is_int(value) or not 1 <= value <= _LARGEST):
        raise unfit(f"{name} must be None (no bound) or an int of 1 or more (to 2**53), not {value!r}", _is_int(value))


def flag(name: str, value: Any) -> None:
    """Require True or False."""
    if not isinstance(value, bool):
        raise OptionTypeError(f"{name} must be True or False, not {value!r}")


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Require one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(repr(word) for word in allowed[:-1])
        raise unfit(f"{name} must be {words} or {allowed[-1]!r}, not {value!r}", isinstance(value, str))


def callback(name: str, value: Any) -> None:
    """Require None or a callable."""
    if value is not None and not callable(value):
        raise OptionTypeError(f"{name} must be None or a callable, not {value!r}")


def synchronous(name: str, value: Any) -> None:
    """Refuse an async callable, because its callers have no event loop."""
    if is_async(value):
        raise OptionTypeError(
            f"{name} is async, and it would not be awaited in sluicegate.RedisMessageQueue; give a plain callable, "
            "or use sluicegate.asyncio.RedisMessageQueue"
        )


def is_async(function: object) -> bool:
    """Return whether a callable is known to return an awaitable.

    That is an async function, a partial of one, or an object whose `__call__` is one.
    """
    while isinstance(function, functools.partial):
        function = function.func
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def unfit(text: str, right_type: bool) -> ConfigurationError:
    """Return the error for an invalid value, which is also a `TypeError` if the type is wrong."""
    return ConfigurationError(text) if right_type else OptionTypeError(text)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
