"""A cancel deletes waiting messages by id, with their keys, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate.core.call import Call
from tests.conformance.test_purge import WAITING, fill
from tests.support import markers, state
from tests.support.core_administration import Admin


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


@pytest.mark.parametrize("where", WAITING)
def test_named_messages_go_with_their_keys(admin: Admin, where: str) -> None:
    ids = fill(admin, where, *"abcdef")
    assert admin.cancel([ids[4], ids[1], "unknown"]) == [ids[4], ids[1]]
    assert sorted(admin.names(where)) == list("acdf")
    assert (admin.marker("b"), admin.marker("e")) == (None, None)
    assert admin.marker("a") == ids[0].encode()
    assert admin.totals()["cancelled"] == 2
    assert admin.events == [("cancel", "success", 2)]
    admin.send("b", keyed=True)


def test_the_order_of_the_others_holds(admin: Admin) -> None:
    ids = fill(admin, "pending", *(str(number) for number in range(50)))
    admin.cancel([ids[at] for at in range(0, 50, 7)])
    assert admin.names("pending") == [str(number) for number in range(50) if number % 7]


def test_what_is_in_flight_dead_or_unknown_is_left_alone(admin: Admin) -> None:
    dead = fill(admin, "dead", "a")
    flying = fill(admin, "pending", "b")
    admin.take(1)
    before = state.dumps(admin.client)
    assert admin.cancel([*dead, *flying, "unknown", "", "é\ud800"]) == []
    assert state.dumps(admin.client) == before
    assert admin.events == []


def test_nothing_to_cancel(admin: Admin) -> None:
    assert admin.cancel([]) == []
    assert admin.calls == []


def test_a_single_str_and_other_types_are_refused(admin: Admin) -> None:
    with pytest.raises(TypeError, match="list"):
        admin.cancel("abc")
    with pytest.raises(TypeError, match="int"):
        admin.cancel([1])  # type: ignore[list-item]


@pytest.mark.parametrize("where", WAITING)
def test_thousands_among_thousands(admin: Admin, where: str) -> None:
    ids = fill(admin, where, *(str(number) for number in range(4500)))
    chosen = ids[::3] + ids[2000:2100]
    assert admin.cancel([*chosen, *chosen]) == list(dict.fromkeys(chosen))
    left = {str(number) for number, one in enumerate(ids) if one not in set(chosen)}
    assert set(admin.names(where)) == left
    assert {key.decode() for key in markers.held(admin.client, admin.keys)} == left
    assert max(len(call.args) for call in admin.calls) <= 2010


def test_a_search_ends_when_all_are_found(admin: Admin) -> None:
    ids = fill(admin, "pending", *(str(number) for number in range(5000)))
    admin.cancel([ids[-1]])
    assert [call.script.name for call in admin.calls] == ["scan", "scan", "cancel"], "delayed, then a page of pending"


def test_a_key_that_another_message_holds_stays_held(admin: Admin) -> None:
    (first,) = fill(admin, "pending", "a")
    markers.hold(admin.client, admin.keys, b"a", "another", px=600_000)
    assert admin.cancel([first]) == [first]
    assert admin.marker("a") == b"another"


def test_a_message_that_holds_its_key_to_the_end(admin: Admin) -> None:
    admin.do(admin.publish("b", "a", "b", keyed=True, kind=b"2"))
    assert admin.cancel(["b-0"]) == ["b-0"]
    assert (admin.marker("a"), admin.marker("b")) == (None, b"b-1")


def test_foreign_values_are_read_over(admin: Admin) -> None:
    admin.client.rpush(admin.keys.pending, b"junk", b"\x1fcancelled", b"junk")
    ids = fill(admin, "pending", "a", "b")
    assert admin.cancel([*ids, "junk"]) == ids
    assert admin.client.lrange(admin.keys.pending, 0, -1) == [b"junk", b"\x1fcancelled", b"junk"]


# ---------------------------------------------------------------------- at the same time


def before_call(admin: Admin, script: str, number: int, act: Any) -> None:
    """Let something happen before the so-manieth call of a script."""
    seen = []

    def between(call: Call[Any]) -> None:
        if call.script.name == script:
            seen.append(call)
            if len(seen) == number:
                act()

    admin.between = between


def test_what_is_claimed_meanwhile_is_not_cancelled(admin: Admin) -> None:
    ids = fill(admin, "pending", *"abcdef")
    other = Admin(admin.client)
    before_call(admin, "cancel", 1, lambda: other.take(2))
    assert admin.cancel([ids[0], ids[3]]) == [ids[3]]
    assert sorted(admin.names("in_flight")) == ["a", "b"]
    assert admin.names("pending") == ["c", "e", "f"]
    assert admin.marker("a") == ids[0].encode()


@pytest.mark.parametrize("more", [10, 2500])
@pytest.mark.parametrize(("script", "number"), [("cancel", 1), ("scan", 3)])
def test_publishes_meanwhile_hide_none(admin: Admin, more: int, script: str, number: int) -> None:
    """What is pushed moves the others on; here between a page and its step, and between two pages."""
    ids = fill(admin, "pending", *(str(number) for number in range(3000)))
    other = Admin(admin.client)
    before_call(admin, script, number, lambda: other.send(*(f"x{at}" for at in range(more))))
    chosen = ids[::100]
    assert admin.cancel(chosen) == chosen
    assert admin.do(admin.depth()).pending == 2970 + more


def test_other_cancels_meanwhile_hide_none(admin: Admin) -> None:
    """They move the others back, over the place where the next page would have begun."""
    ids = fill(admin, "pending", *(str(number) for number in range(3000)))
    other = Admin(admin.client)
    before_call(admin, "scan", 3, lambda: other.cancel(ids[2100:2900]))
    chosen = ids[0:2000:10]
    assert admin.cancel(chosen) == chosen
    assert admin.do(admin.depth()).pending == 3000 - 800 - 200


def test_other_cancels_between_a_page_and_its_step_hide_none(admin: Admin) -> None:
    ids = fill(admin, "pending", *(str(number) for number in range(1500)))
    other = Admin(admin.client)
    before_call(admin, "cancel", 2, lambda: other.cancel(ids[1000:1400]))
    assert admin.cancel(ids[:1000]) == ids[:1000]


def test_what_falls_due_meanwhile_is_found(admin: Admin) -> None:
    ids = fill(admin, "delayed", *"abc")

    def promote() -> None:
        state.fall_due(admin.client, "orders")
        other = Admin(admin.client)
        other.do(other.promote())

    before_call(admin, "scan", 2, promote)
    admin.client.zadd(admin.keys.delayed, {b"first": 1})
    before = [call.script.name for call in admin.calls]
    assert before == []
    assert admin.cancel(ids) == ids
    admin.client.delete(admin.keys.delayed)


# ---------------------------------------------------------------------- bounds and repeats


@pytest.mark.parametrize("where", WAITING)
def test_every_call_executed_twice_answers_and_counts_once(admin: Admin, where: str) -> None:
    ids = fill(admin, where, *(str(number) for number in range(2100)))
    admin.between = admin.do
    assert admin.cancel(ids[::2]) == ids[::2]
    assert admin.totals()["cancelled"] == 1050
    assert len(admin.names(where)) == 1050


@pytest.mark.parametrize("where", WAITING)
def test_a_step_executed_late_changes_nothing(admin: Admin, where: str) -> None:
    ids = fill(admin, where, *"abcd")
    admin.cancel(ids[:2])
    fill(admin, where, "a", "x")
    for receipts in (True, False):
        before = state.dumps(admin.client)
        for call in admin.calls:
            admin.do(call)
        after = state.dumps(admin.client)
        assert {key: value for key, value in after.items() if b"published" not in key} == {
            key: value for key, value in before.items() if b"published" not in key
        }
        if receipts:
            admin.client.delete(*admin.client.keys("*published*"))


def test_pages_are_bounded_by_bytes(admin: Admin) -> None:
    ids = fill(admin, "pending", *("x" * 700_000 + str(number) for number in range(20)), keyed=False)
    assert admin.cancel(ids[:1]) == ids[:1]
    assert [call.script.name for call in admin.calls].count("scan") >= 3
