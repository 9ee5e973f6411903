"""A step of administration that arrives when later ones have run: answered from the receipt, whatever it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate.core.call import Call
from sluicegate.core.transitions.cancel import cancel_call
from sluicegate.core.transitions.purge import purge_call
from sluicegate.core.transitions.redrive import RedriveReport, redrive_call
from sluicegate.core.transitions.scan import Page, Step, Target, scan_call
from tests.support import state
from tests.support.core_administration import Admin


@pytest.fixture
def admin(bare_client: redis.Redis) -> Admin:
    return Admin(bare_client)


def _purges(admin: Admin) -> tuple[list[Call[Any]], Callable[[], object]]:
    admin.send("a", "b", "c")
    admin.give_back(3, "release")
    entries = admin.client.zrange(admin.keys.returned, 0, -1)
    steps = [purge_call(admin.keys, "returned", Step(b"op", at), [Target(entries[at - 1])]) for at in (1, 2)]
    return steps, lambda: admin.client.zadd(admin.keys.returned, {entries[0]: 1})


def _cancels(admin: Admin) -> tuple[list[Call[Any]], Callable[[], object]]:
    admin.send("a", "b", "c")
    admin.give_back(3, "release")
    entries = admin.client.zrange(admin.keys.returned, 0, -1)
    page: Page = admin.do(scan_call(admin.keys, "returned", page_size=10, whole=True))
    steps = [
        cancel_call(admin.keys, "returned", Step(b"op", at), [Target(entry) for entry in named], 0, page)
        for at, named in ((1, entries[:1]), (2, entries[1:]))
    ]
    return steps, lambda: admin.client.zadd(admin.keys.returned, {entries[0]: 1})


def _redrives(admin: Admin) -> tuple[list[Call[Any]], Callable[[], object]]:
    ids = [one.encode() for one in admin.die("a", "b", "c")]
    kept = admin.client.hget(admin.keys.dead_records, ids[0])
    mark = admin.do(scan_call(admin.keys, "dead", page_size=1)).mark
    steps = [
        redrive_call(admin.keys, Step(b"op", at), [Target(one) for one in named], mark=mark, patient=False)
        for at, named in ((1, ids[:1]), (2, ids[1:]))
    ]

    def again() -> None:
        admin.client.hset(admin.keys.dead_records, ids[0], kept)
        admin.client.zadd(admin.keys.dead, {ids[0]: 1})

    return steps, again


@pytest.mark.parametrize("make", [_purges, _cancels, _redrives])
def test_an_earlier_step_that_arrives_late_is_answered_from_the_receipt(
    admin: Admin, make: Callable[[Admin], tuple[list[Call[Any]], Callable[[], object]]]
) -> None:
    """Its messages may be in that state again by then, and no longer concern the operation."""
    (first, second), come_back = make(admin)
    admin.do(first)
    answer = admin.do(second)
    come_back()
    before = state.dumps(admin.client)
    assert admin.do(first) == answer
    assert admin.do(second) == answer
    assert state.dumps(admin.client) == before


def test_a_whole_history_is_purged_once(admin: Admin) -> None:
    admin.client.lpush(admin.keys.failed, "x", "y")
    call = purge_call(admin.keys, "failed", Step(b"op", 1))
    assert admin.do(call) == 2
    admin.client.lpush(admin.keys.failed, "z")
    assert admin.do(call) == 2
    assert admin.client.llen(admin.keys.failed) == 1


def test_the_steps_of_an_operation_count_up(admin: Admin) -> None:
    """So that a receipt can tell an earlier step from a later one."""
    admin.die(*(str(number) for number in range(5)))
    report: RedriveReport = admin.redrive(page_size=2)
    assert report.redriven == 5
    numbers = [int(call.args[0]) for call in admin.calls if call.script.name == "redrive"]
    assert sorted(set(numbers)) == [1, 2, 3]
    assert numbers == sorted(numbers), "those that came too early are sent again as they are"
