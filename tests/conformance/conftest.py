"""Tests through a queue run in four flavours on one server; tests of scripts run on every server program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from tests.support.flavours import FLAVOURS, Flavour, Loop, MakeQueue, Maker
from tests.support.servers import PROGRAMS
from tests.support.settings import UNIX_SPEAKS_RESP3

# `make test-matrix` names one; otherwise redis-py decides.
PROTOCOL = os.environ.get("SLUICEGATE_TEST_PROTOCOLS", "")


@pytest.fixture(params=FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    made: Flavour = request.param
    possible = made.asyncio or PROTOCOL != "3" or UNIX_SPEAKS_RESP3
    return replace(made, protocol=int(PROTOCOL)) if PROTOCOL.isdigit() and possible else made


# The modules whose queue may as well be a stream with a group of it.
WITH_GROUPS = {"attach", "blocks", "settle", "settle_much"}
# They look at keys or handles by the names that a queue gives them.
QUEUES_ONLY = {
    "test_a_holder_silent_for_long_asks_before_it_settles",
    "test_a_lease_used_after_it_was_lost_names_its_slots",
    "test_due_messages_return_in_their_first_order",
    "test_extend_moves_the_deadline_to_now_plus_the_lease",
    "test_the_count_is_kept_to_four_thousand",
    "test_the_handle_is_small_text_that_opens_nothing_else",
    "test_what_cannot_be_attached_says_so",
    "test_what_was_acked_before_the_loss_is_settled",
    "test_what_was_released_for_later_returns_to_its_first_place",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".test_")[2]
    if module in WITH_GROUPS and "make_queue" in metafunc.fixturenames:
        metafunc.parametrize("place", ["queue", "group"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Return what a test's queues are: queues, or groups of streams."""
    return str(getattr(request, "param", "queue"))


@pytest.fixture
def make_queue(client: redis.Redis, flavour: Flavour, loop: Loop, place: str) -> Iterator[MakeQueue]:
    """Yield a function that makes queues, or streams with a group that look like queues."""
    make = Maker(flavour, client, loop)
    yield make.pair if place == "group" else make
    make.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    """Flavours differ in Python only, so one server program is enough for them."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if params.get("place") == "group" and getattr(item, "originalname", "") in QUEUES_ONLY:
        return True
    return "flavour" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
