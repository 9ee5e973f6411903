"""What goes through a queue runs in four flavours on one server; what tests scripts alone, on every server found."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.support.flavours import FLAVOURS, Flavour
from tests.support.servers import PROGRAMS

# `make test-matrix` names one; otherwise it is what redis-py speaks by itself.
PROTOCOL = os.environ.get("SLUICEGATE_TEST_PROTOCOLS", "")


@pytest.fixture(params=FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    made: Flavour = request.param
    return replace(made, protocol=int(PROTOCOL)) if PROTOCOL.isdigit() else made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    """The flavours differ in Python alone: one server tells as much as all of them."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return "flavour" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
