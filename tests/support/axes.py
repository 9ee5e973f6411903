"""Some combinations of parameters run with `make test-all` only.

A behaviour below the queue is tested on the first server program, a behaviour of the queue in one synchronous and one
asyncio flavour, that of a group of a stream in the synchronous one, and a topology by one way of reaching it. Every
other combination carries the marker `full`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.flavours import Flavour
from tests.support.servers import PROGRAMS
from tests.support.settings import PRODUCT

# One of each shell and one of each kind of client.
_USUAL = (Flavour(), Flavour(asyncio=True, decodes=True))


def mark_full(items: list[pytest.Item]) -> None:
    """Give the marker `full` to the tests that only a complete run needs."""
    for item in items:
        if _is_full(item, getattr(getattr(item, "callspec", None), "params", {})):
            item.add_marker(pytest.mark.full)


def _is_full(item: pytest.Item, params: dict[str, Any]) -> bool:
    if not item.get_closest_marker("every_server"):
        program = params.get("server", params.get("program"))
        if isinstance(program, Path) and program != PROGRAMS[0]:
            return True
    flavour = params.get("flavour")
    if params.get("place") == "group" and (flavour or _USUAL[0]) != _USUAL[0] and not PRODUCT:
        return True
    if isinstance(flavour, Flavour) and not PRODUCT and not _shows_payloads(item):
        return (flavour.asyncio, flavour.decodes) not in [(usual.asyncio, usual.decodes) for usual in _USUAL]
    return not getattr(params.get("way"), "usual", True)  # ways to a topology say so; other tests use the name too


def _shows_payloads(item: pytest.Item) -> bool:
    """Return whether a test takes `flavour` as an argument, to compare payloads with what that flavour returns."""
    return "flavour" in inspect.signature(item.function).parameters  # type: ignore[attr-defined]


def quick(values: Iterable[Any], *usual: Any) -> list[Any]:
    """Return the values of a parameter; `make test` runs the usual ones only."""
    found = list(values)
    assert all(each in found for each in usual), usual
    full = pytest.mark.full
    return [value if value in usual else pytest.param(*_parts(value), marks=full) for value in found]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
