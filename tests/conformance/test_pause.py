"""Pause and resume: claims take nothing new, messages in flight are not affected, and late calls change nothing."""

from __future__ import annotations

import pytest
import redis

from sluicegate.core.transitions.claim import Paused
from sluicegate.core.transitions.extend import Extended
from sluicegate.core.transitions.promote import promote_call
from tests.support.core_administration import Admin
from tests.support.core_calls import verdict


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


def test_claims_take_nothing_new_until_resume(admin: Admin) -> None:
    admin.send("a", "b")
    lease, token, _ = admin.take(1)
    assert admin.pause() is True
    assert isinstance(admin.do(admin.claim("other", "n")), Paused)
    assert admin.do(admin.depth()).paused
    assert admin.do(admin.extend(lease, token)) is Extended.OK
    assert admin.do(admin.settle(lease, token, verdict("ack", "1"))).lost == []
    admin.send("c")
    assert admin.resume() is True
    assert admin.take(5)[2] == ["b", "c"]
    assert not admin.do(admin.depth()).paused
    assert admin.events == [("pause", "success", 0), ("resume", "success", 0)]


def test_again_changes_nothing(admin: Admin) -> None:
    assert admin.resume() is False
    assert admin.pause() is True
    assert admin.pause() is False
    assert admin.resume() is True
    assert admin.resume() is False
    assert len(admin.events) == 2


def test_resume_rings_the_bell(admin: Admin) -> None:
    admin.pause()
    assert admin.client.llen(admin.keys.wakeup) == 0
    admin.resume()
    assert admin.client.lrange(admin.keys.wakeup, 0, -1) == [b"1", b"2"]


def test_executed_twice_or_late_nothing_is_undone(admin: Admin) -> None:
    admin.between = admin.do
    admin.pause()
    paused = list(admin.calls)
    admin.resume()
    for call in paused:
        admin.do(call)
    assert not admin.do(admin.depth()).paused, "a pause that arrives late"
    resumed = admin.calls[len(paused) :]
    admin.pause()
    for call in resumed:
        admin.do(call)
    assert admin.do(admin.depth()).paused


def test_of_two_at_the_same_time_both_have_their_way(admin: Admin) -> None:
    other = Admin(admin.client)
    seen: list[object] = []

    def between(call: object) -> None:
        seen.append(call)
        if len(seen) == 2:
            other.pause()
            other.resume()

    admin.between = between
    assert admin.pause() is True
    assert admin.do(admin.depth()).paused
    assert len(seen) == 3, "asked, found changed, done"


def test_a_paused_queue_is_administered(admin: Admin) -> None:
    admin.die("a")
    admin.pause()
    assert admin.redrive().redriven == 1
    assert admin.do(promote_call(admin.keys)) == 0
    assert admin.purge(admin.redriven_to) == 1
