"""A purge deletes what is in a state when it begins, with its keys; anything later or elsewhere stays."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from sluicegate.core.call import Call
from sluicegate.core.transitions.claim import Opened
from sluicegate.errors import ConfigurationError
from tests.support import markers, state
from tests.support.core_administration import Admin
from tests.support.core_calls import verdict

WAITING = ["pending", "returned", "delayed"]


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


def fill(admin: Admin, where: str, *names: str, keyed: bool = True) -> list[str]:
    """Messages of these names in a state."""
    ids = admin.send(*names, keyed=keyed, bound=keyed and bool(admin.keys.group))  # a group frees no others
    if where == "dead":
        admin.bury_all()
    elif where != "pending":
        leases = []
        while sum(len(taken) for *_, taken in leases) < len(names):  # a claim ends at 1,000 messages or 8 MB
            leases.append(admin.take(1000))
        for lease, token, taken in leases:
            back = verdict("nack", f"1-{len(taken)}", delay_seconds=1000 if where == "delayed" else 0)
            admin.do(admin.settle(lease, token, back))
    return ids


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_a_state_is_emptied_and_its_keys_are_free(admin: Admin, where: str) -> None:
    names = [str(number) for number in range(2500)]
    fill(admin, where, *names)
    assert admin.purge(where) == 2500
    assert admin.names(where) == []
    assert markers.held(admin.client, admin.keys) == {}
    assert admin.totals()["purged"] == 2500
    assert admin.do(admin.depth()).published_total == 2500, "the sequence goes on"
    assert {(operation, outcome) for operation, outcome, _ in admin.events} == {("purge", "success")}
    assert sum(count for *_, count in admin.events) == 2500
    admin.send(*names[:10], keyed=True)


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_the_other_states_stay(admin: Admin, where: str) -> None:
    for state_, name in (("dead", "d"), ("delayed", "l"), ("returned", "r"), ("pending", "p")):
        fill(admin, state_, name)
    lease, token, _ = admin.take(1)  # what was returned is in flight now
    fill(admin, "returned", "r2") if where == "returned" else None
    before = {name: admin.names(name) for name in (*WAITING, "dead", "in_flight")}
    assert admin.purge(where) == len(before[where])
    assert {name: admin.names(name) for name in before} == {**before, where: []}
    admin.do(admin.settle(lease, token, verdict("ack", "1")))


@pytest.mark.parametrize("where", [*WAITING, "dead", "completed", "failed"])
def test_an_empty_state(admin: Admin, where: str) -> None:
    assert admin.purge(where) == 0
    assert admin.events == []
    assert "purged" not in admin.totals()


@pytest.mark.parametrize("where", ["completed", "failed"])
def test_a_history_is_dropped(admin: Admin, where: str) -> None:
    admin.client.lpush(getattr(admin.keys, where), *(b"record %d" % number for number in range(3000)))
    fill(admin, "pending", "a")
    admin.between = admin.do
    assert admin.purge(where) == 3000
    assert not admin.client.exists(getattr(admin.keys, where))
    assert admin.names("pending") == ["a"]
    assert admin.totals()["purged"] == 3000


def test_an_unknown_state(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="in_flight"):
        admin.purge("in_flight")


# ---------------------------------------------------------------------- keys


def test_a_key_that_another_message_holds_stays_held(admin: Admin) -> None:
    fill(admin, "dead", "a")
    markers.release(admin.client, admin.keys, b"a")
    (successor,) = admin.send("a", keyed=True)
    assert admin.purge("dead") == 1
    assert admin.marker("a") == successor.encode()


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_messages_that_hold_their_key_to_the_end(admin: Admin, where: str) -> None:
    admin.do(admin.publish("b", "a", "b", keyed=True, kind=b"2"))
    if where != "pending":
        verb, delay = ("bury", 0) if where == "dead" else ("nack", 1000 if where == "delayed" else 0)
        admin.give_back(2, verb, delay_seconds=delay)
    assert admin.purge(where) == 2
    assert markers.held(admin.client, admin.keys) == {}


@pytest.mark.parametrize("where", WAITING)
def test_foreign_values_go_too(admin: Admin, where: str) -> None:
    fill(admin, where, "a")
    key = getattr(admin.keys, where)
    for junk in (b"junk", b"junk\x1f2", b"\x1f\x1f\x1f", b"1\x1f"):
        admin.client.rpush(key, junk, junk) if where == "pending" else admin.client.zadd(key, {junk: 5})
    assert admin.purge(where) == (9 if where == "pending" else 5)
    assert not admin.client.exists(key)
    assert markers.held(admin.client, admin.keys) == {}


def test_a_letter_without_its_record_goes(admin: Admin) -> None:
    (letter,) = fill(admin, "dead", "a")
    admin.client.hdel(admin.keys.dead_records, letter)
    assert admin.purge("dead") == 1
    assert not admin.client.exists(admin.keys.dead)


# ---------------------------------------------------------------------- at the same time


def after_first_page(admin: Admin, act: Any) -> None:
    """Let something happen between the first page and the step that acts on it."""
    done = []

    def between(call: Call[Any]) -> None:
        is_second = call.script.name == "purge_unread" and call.args[3] != b""
        if (call.script.name == "purge" or is_second) and not done:
            done.append(act())

    admin.between = between


@pytest.mark.parametrize("where", WAITING)
def test_what_is_published_meanwhile_stays(admin: Admin, where: str) -> None:
    fill(admin, where, *(str(number) for number in range(1500)))
    other = Admin(admin.client)
    later = [f"later {number}" for number in range(1200)]  # more than a page of them
    after_first_page(admin, lambda: other.send(*later) if where == "pending" else publish_into(other, where, *later))
    assert admin.purge(where) == 1500
    assert sorted(admin.names(where)) == sorted(later)


def publish_into(admin: Admin, where: str, *names: str) -> None:
    """Fresh messages in a state, as if others had been claimed around them; they come before the older ones."""
    admin.send(*names)
    entries = admin.client.lrange(admin.keys.pending, 0, -1)
    admin.client.delete(admin.keys.pending)
    key = getattr(admin.keys, where)
    admin.client.zadd(key, {entry: int(entry[1:13], 16) if where == "returned" else 5 for entry in entries})


def test_older_messages_that_join_meanwhile_stay_behind_younger_ones(admin: Admin) -> None:
    admin.die("dead", "dead too")
    fill(admin, "pending", "a", "b")
    other = Admin(admin.client)

    def join() -> None:
        other.send("younger")
        other.redrive()

    after_first_page(admin, join)
    assert admin.purge("pending") == 2
    assert admin.names("pending") + (admin.names("returned") if admin.keys.group else []) == [
        "younger", "dead", "dead too",
    ]  # fmt: skip


@pytest.mark.parametrize("where", WAITING)
def test_what_was_claimed_meanwhile_is_not_deleted(admin: Admin, where: str) -> None:
    fill(admin, where, *(str(number) for number in range(100)))
    other, taken = Admin(admin.client), []

    def claim() -> None:
        if where == "delayed":
            state.fall_due(admin.client, "orders")
            other.do(other.promote(10))
        limit = 10 if where == "pending" else 40  # what failed once is claimed in a fourth of the number
        taken.extend(other.take(limit, maintain=False)[2])

    after_first_page(admin, claim)
    assert admin.purge(where) == 90
    assert len(taken) == 10
    assert sorted(admin.names("in_flight")) == sorted(taken)
    assert all(admin.marker(name) for name in taken)
    assert len(markers.held(admin.client, admin.keys)) == 10


def test_a_letter_that_dies_meanwhile_stays(admin: Admin) -> None:
    fill(admin, "dead", "a")
    other = Admin(admin.client)

    def die() -> None:
        (letter,) = other.die("b")
        other.age_letters([letter], -1)

    after_first_page(admin, die)
    admin.purge("dead")
    assert admin.names("dead") == ["b"]


def test_publishers_and_consumers_go_on_and_nothing_else_is_lost(admin: Admin) -> None:
    """Every message is purged, acked or left over: exactly one of them."""
    fill(admin, "pending", *(f"old {number}" for number in range(6000)))
    stop = threading.Event()
    published: list[str] = []
    acked: list[str] = []
    errors: list[BaseException] = []

    def publish() -> None:
        other = Admin(admin.client)
        while not stop.is_set() and len(published) < 5000:
            names = [f"new {len(published) + at}" for at in range(50)]
            other.send(*names, keyed=True)
            published.extend(names)

    def consume(start: int) -> None:
        other = Admin(admin.client)
        while not stop.is_set():
            lease = f"c{start}.{len(acked)}"
            reply = other.do(other.claim(lease, "n", 7))
            if isinstance(reply, Opened):
                other.do(other.settle(lease, b"n:" + reply.opening, verdict("ack", f"1-{len(reply.entries)}")))
                acked.extend(entry.rsplit(b"\x1f", 1)[1].decode() for entry in reply.entries)

    def watched(work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=watched, args=args) for args in ((publish,), (consume, 1), (consume, 2))]
    for thread in threads:
        thread.start()
    try:
        purged = admin.purge("pending")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    left = admin.names("pending")
    assert len(set(acked)) == len(acked)
    assert purged == admin.totals()["purged"] > 0
    assert purged + len(acked) + len(left) == 6000 + len(published), "conservation"
    assert not [name for name in left if name.startswith("old")]
    gone = set(published) - set(acked) - set(left)
    begun = admin.answers[0].published - 6000 if not admin.keys.group else len(published)
    assert {int(name.split()[1]) for name in gone} <= set(range(begun))


# ---------------------------------------------------------------------- bounds and repeats


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_steps_are_bounded(admin: Admin, where: str) -> None:
    fill(admin, where, *("x" * 700_000 + str(number) for number in range(20)), keyed=False)
    assert admin.purge(where) == 20
    steps = [call for call in admin.calls if call.script.name in ("purge", "purge_unread")]
    assert len(steps) >= 2, "by bytes"
    fill(admin, where, *(str(number) for number in range(3000)))
    assert admin.purge(where) == 3000
    assert max(len(call.args) for call in admin.calls) <= 2010, "by messages"


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_every_call_executed_twice_counts_once(admin: Admin, where: str) -> None:
    fill(admin, where, *(str(number) for number in range(1100)))
    admin.between = admin.do
    assert admin.purge(where) == 1100
    assert admin.totals()["purged"] == 1100


@pytest.mark.parametrize("where", [*WAITING, "dead"])
def test_a_step_executed_late_deletes_nothing_new(admin: Admin, where: str) -> None:
    fill(admin, where, "a", "b")
    admin.purge(where)
    fill(admin, where, "a", "c")
    before = state.dumps(admin.client)
    for call in admin.calls:
        admin.do(call)
    admin.client.delete(*admin.client.keys("*published*"))
    for call in admin.calls:
        admin.do(call)
    after = state.dumps(admin.client)
    assert {key: value for key, value in after.items() if b"published" not in key} == {
        key: value for key, value in before.items() if b"published" not in key
    }


@pytest.mark.parametrize("behind", [0, 600])
def test_empty_values_go_too(bare_client: redis.Redis, behind: int) -> None:
    admin = Admin(bare_client)
    bare_client.lpush(admin.keys.pending, "", "x", "")
    admin.send(*(str(number) for number in range(behind)))
    assert admin.purge("pending") == 3 + behind
    assert bare_client.llen(admin.keys.pending) == 0
