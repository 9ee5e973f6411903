"""Tests through a queue run in four flavours on one server; tests of scripts run on every server program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest
import redis

from tests.support.core_calls import on_groups
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
WITH_GROUPS = {
    "at_most_once", "attach", "blocks", "callback", "claim", "claim_operation", "consume", "consumer", "dead_cap",
    "depth_peek", "drain", "events", "heartbeat", "history", "lost_leases", "max_lease", "pause", "peek_in_flight",
    "peek_offset", "poison", "purge", "receipts", "redrive", "repair", "settle", "settle_much", "stats", "wakeup",
}  # fmt: skip
OF_CLIENTS = {"dead_cap", "history", "poison"}  # their tests make a `Core` themselves
# Tests that cannot be of a group, some with one parameter only, and why.
NO_DELAY = "a stream has no delayed publish"
NO_CAP = "a stream refuses no publish for its length"
NO_JUNK = "whatever is in a stream is a message: test_group_claim"
NO_PAGES = "returned messages are claimed first, so no fresh ones can be put behind them"
EACH_SECOND = "a waiting group looks once a second, because other clients append without a wake-up"
BLOCKED = "a redrive of a group publishes nothing, so no key blocks it: test_group_keys"
QUEUES_ONLY = {
    "test_a_cap_lets_go_only_what_fits": NO_CAP,
    "test_a_claim_that_leaves_nothing_behind_takes_the_spare_token_back[nothing]": "it deletes the pending key",
    "test_a_depth_says_when_the_next_message_becomes_claimable": NO_DELAY,
    "test_a_key_that_another_message_holds_blocks": BLOCKED,
    "test_a_long_idle_wait_costs_two_commands_in_ten_seconds": EACH_SECOND,
    "test_a_paused_queue_is_waited_for_as_cheaply": EACH_SECOND,
    "test_a_publish_that_is_refused_before_redis_is_asked_is_told[delay]": NO_DELAY,
    "test_a_publish_that_waits_for_room_ends_at_once": NO_CAP,
    "test_a_queue_of_nothing_but_foreign_values_is_empty": NO_JUNK,
    "test_a_sleep_that_broke_off_is_taken_up_again": EACH_SECOND,
    "test_an_answer_to_be_remembered_is_asked_for_once_more": EACH_SECOND,
    "test_an_idle_wait_costs_two_commands": EACH_SECOND,
    "test_drain_is_told_with_what_is_left": "the stream and its group are drained apart, and both say so",
    "test_duplicates_refusals_and_answers_without_messages": NO_CAP,
    "test_empty_values_go_too": NO_JUNK,
    "test_foreign_values_are_buried_and_never_block": NO_JUNK,
    "test_foreign_values_go_too[pending]": NO_JUNK,
    "test_it_sleeps_no_longer_than_until_something_happens": EACH_SECOND,
    "test_key_names_for_people": "the names of a stream's keys are those of docs/wire-format.md",
    "test_no_fresh_work_is_claimed_after_the_deadline": EACH_SECOND,
    "test_of_two_letters_under_one_such_key_one_goes": BLOCKED,
    "test_peek_at_a_foreign_value": NO_JUNK,
    "test_what_administers_is_told": "an unread message is the stream's to cancel: test_group",
    "test_what_comes_back_by_itself": NO_DELAY,
    "test_what_is_published_meanwhile_stays[delayed]": NO_PAGES,
    "test_what_is_published_meanwhile_stays[returned]": NO_PAGES,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".test_")[2]
    of_a_place = {"make_queue", "core", "admin"} & {*metafunc.fixturenames} or module in OF_CLIENTS
    if module in WITH_GROUPS and of_a_place:
        metafunc.parametrize("place", ["queue", "group"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Return what a test's queues are: queues, or groups of streams."""
    return str(getattr(request, "param", "queue"))


@pytest.fixture(autouse=True)
def _cores(place: str) -> Iterator[None]:
    """Let the calls that tests prepare be of the place too."""
    with on_groups() if place == "group" else nullcontext():
        yield


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
    if params.get("place") == "group" and _is_of_queues_only(item):
        return True
    return "flavour" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]


def _is_of_queues_only(item: pytest.Item) -> bool:
    name = getattr(item, "originalname", "")
    last = item.name.rstrip("]").rpartition("-")[2]
    if name == "test_a_callback_may_use_the_queue" and item.callspec.params["flavour"].asyncio:  # type: ignore[attr-defined]
        return True  # its callback awaits the object, and a pair of a stream and a group has no asyncio interface
    return name in QUEUES_ONLY or f"{name}[{last}]" in QUEUES_ONLY
