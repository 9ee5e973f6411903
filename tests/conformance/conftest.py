"""What goes through a queue is run in all four flavours on one server; what tests scripts alone, on every server found."""

from __future__ import annotations

import pytest

from tests.conformance.flavours import FLAVOURS, Flavour
from tests.conftest import PROGRAMS


@pytest.fixture(params=FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    made: Flavour = request.param
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    """The flavours differ in Python alone: one server tells as much as all of them."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return "flavour" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
