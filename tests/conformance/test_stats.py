"""Stats and the histories that peek shows: totals that live in Redis."""

from __future__ import annotations

import dataclasses

import pytest
import redis

from sluicegate.core.transitions.peek import peek_call
from sluicegate.core.transitions.stats import QueueStats
from tests.support import state
from tests.support.core_administration import Admin


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


def reported(stats: QueueStats) -> dict[str, int]:
    """Return the statistics that are not 0."""
    return {name: value for name, value in dataclasses.asdict(stats).items() if value}


def test_a_queue_that_never_was(admin: Admin) -> None:
    assert admin.stats() == QueueStats()
    assert not [key for key in admin.client.keys("*") if key != admin.keys.pending]


def test_every_transition_is_counted(admin: Admin) -> None:
    ids = admin.send(*"abcdefghijk", keyed=True)
    admin.do(admin.publish("again", "a", "b", keyed=True))
    admin.give_back(1, "ack")
    admin.give_back(1, "nack", delay_seconds=1000)
    admin.give_back(2, "release")
    admin.give_back(4, "bury")
    admin.add_junk(b"junk")
    lease, token, _ = admin.take(2)
    admin.opened(lease, "heir", takeover=token)
    state.expire(admin.client, "orders", lease)
    admin.do(admin.reap(lease))
    admin.take(1)
    admin.redrive(limit=2)
    assert admin.cancel([ids[1]]) == [ids[1]]
    assert admin.purge("pending") > 0
    stats = reported(admin.stats())
    purged, claimed = stats.pop("purged"), stats.pop("claimed")
    assert purged == admin.totals()["purged"]
    assert claimed == admin.totals()["claimed"]
    of_the_publish = {} if admin.keys.group else {"duplicates": 2}
    assert stats == {
        **of_the_publish, "published": 11, "acked": 1, "completed": 1, "nacked": 1, "released": 2, "buried": 4,
        "failed": 5, "taken_over": 1,
        "foreign": 1, "reaped": 2, "redriven": 2, "cancelled": 1, "in_flight": 1,
    }  # fmt: skip


def test_conservation(admin: Admin) -> None:
    """After any mixture, published = waiting + in flight + dead + acked + deleted."""
    for round_ in range(5):
        ids = admin.send(*(f"{round_}.{number}" for number in range(40)), keyed=True)
        admin.give_back(10, "ack")
        admin.give_back(10, "bury")
        admin.give_back(4, "nack", delay_seconds=1000)
        admin.give_back(4, "nack")
        if not admin.keys.group:  # they are unread, and other groups would miss them
            admin.cancel(ids[-3:])
        admin.redrive(limit=5)
        if round_ == 2:
            admin.purge("delayed")
            admin.purge("dead")
    stats, depth = admin.stats(), admin.do(admin.depth())
    waiting = depth.pending + depth.returned + depth.delayed
    unread = depth.pending if admin.keys.group else 0
    assert stats.published + unread == depth.published_total == 200
    assert (
        stats.published + unread
        == waiting + stats.in_flight + depth.dead + stats.acked + stats.purged + stats.cancelled
    )
    assert stats.purged > 0
    assert stats.redriven == sum(count for name, _, count in admin.events if name == "redrive") > 10


def test_paused_and_what_another_version_counts(admin: Admin) -> None:
    admin.pause()
    admin.client.hset(admin.keys.counters, "novelties", 3)
    assert reported(admin.stats()) == {"paused": True}


def test_looking_changes_nothing(admin: Admin) -> None:
    admin.send("a")
    before = state.dumps(admin.client)
    admin.stats()
    assert state.dumps(admin.client) == before


@pytest.mark.parametrize("where", ["completed", "failed"])
def test_peek_shows_the_newest_of_a_history_first(admin: Admin, where: str) -> None:
    admin.client.lpush(getattr(admin.keys, where), b"first", b"second", b"third")
    assert admin.do(peek_call(admin.keys, where, 2)) == [b"third", b"second"]
    assert admin.do(peek_call(admin.keys, where, 9)) == [b"third", b"second", b"first"]
