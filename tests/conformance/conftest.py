"""Tests through a queue run in four flavours on one server; tests of scripts run on every server program."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.support.flavours import FLAVOURS, Flavour
from tests.support.servers import PROGRAMS
from tests.support.settings import UNIX_SPEAKS_RESP3

# `make test-matrix` names one; otherwise redis-py decides.
PROTOCOL = os.environ.get("SLUICEGATE_TEST_PROTOCOLS", "")


@pytest.fixture(params=FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    made: Flavour = request.param
    possible = made.asyncio or PROTOCOL != "3" or UNIX_SPEAKS_RESP3
    return replace(made, protocol=int(PROTOCOL)) if PROTOCOL.isdigit() and possible else made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    """Flavours differ in Python only, so one server program is enough for them."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return "flavour" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
