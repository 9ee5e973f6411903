"""A redrive returns dead letters by filter, in pages, once each, and never in a loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from sluicegate import DeadMessage
from sluicegate.core.entry import read_prefix
from sluicegate.core.transitions.claim import Opened
from sluicegate.core.transitions.redrive import Redriven, redrive_call
from sluicegate.core.transitions.scan import Step, Target, scan_call
from sluicegate.errors import ConfigurationError
from tests.support import markers, state
from tests.support.core_administration import Admin
from tests.support.core_calls import verdict


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


def test_letters_join_at_the_tail_with_their_counts_reset(admin: Admin) -> None:
    admin.send("a", "b")
    admin.give_back(2, "nack")
    admin.give_back(2, "release")
    admin.bury_all()
    admin.send("z")
    admin.client.delete(admin.keys.wakeup)
    report = admin.redrive()
    assert (report.redriven, report.blocked, report.scanned, report.after) == (2, 0, 2, None)
    assert admin.names("pending") + (admin.names("returned") if admin.keys.group else []) == ["z", "a", "b"]
    assert admin.names("dead") == []
    stored = getattr(state.contents(admin.client, "orders"), admin.redriven_to)[-1]
    assert (read_prefix(stored).deliveries, read_prefix(stored).releases) == (0, 0)
    assert admin.totals()["redriven"] == 2
    assert admin.events == [("redrive", "success", 2)]
    assert admin.client.lrange(admin.keys.wakeup, 0, -1) == [b"1", b"2"], "two who wait are woken"


def test_those_of_one_page_join_in_their_first_order(admin: Admin) -> None:
    """A lease that is buried whole gives all of its dead letters the same time."""
    names = [str(number) for number in range(300)]
    admin.die(*names)
    admin.redrive()
    assert admin.names(admin.redriven_to) == names


def test_nothing_to_redrive(admin: Admin) -> None:
    report = admin.redrive()
    assert (report.redriven, report.scanned, report.after) == (0, 0, None)
    assert admin.events == []
    assert admin.names(admin.redriven_to) == []


# ---------------------------------------------------------------------- filters


def test_by_reason(admin: Admin) -> None:
    admin.die("a", "b", reason="spoilt")
    admin.die("c", reason="late")
    report = admin.redrive(reason="late")
    assert (report.redriven, report.blocked, report.scanned) == (1, 0, 3)
    assert (admin.names(admin.redriven_to), admin.names("dead")) == (["c"], ["a", "b"])


def test_by_age_on_the_servers_clock(admin: Admin) -> None:
    old = admin.die("a", "b")
    admin.die("c")
    admin.age_letters(old, 3600)
    assert admin.redrive(older_than_seconds=3700).redriven == 0
    assert admin.redrive(older_than_seconds=3500).redriven == 2
    assert admin.names("dead") == ["c"]


def test_by_deduplication_key(admin: Admin) -> None:
    admin.die("a", "b", "c", keyed=True)
    assert admin.redrive(deduplication_key="b").redriven == 1
    assert (admin.names(admin.redriven_to), admin.names("dead")) == (["b"], ["a", "c"])


def test_by_id_without_reading_the_others(admin: Admin) -> None:
    ids = admin.die(*(str(number) for number in range(1200)))
    report = admin.redrive(ids=(ids[1100], "unknown", ids[3], ids[3]))
    assert (report.redriven, report.scanned, report.after) == (2, 2, None)
    assert admin.names(admin.redriven_to) == ["3", "1100"]
    assert len(admin.names("dead")) == 1198


def test_by_predicate_on_what_a_peek_shows(admin: Admin) -> None:
    admin.die(*"abcd")
    seen: list[DeadMessage] = []

    def where(record: bytes) -> bool:
        seen.append(DeadMessage.from_record(record))
        assert seen[-1].message is not None
        return seen[-1].message.text() in "bd"

    assert admin.redrive(where=where).redriven == 2
    assert (admin.names(admin.redriven_to), admin.names("dead")) == (["b", "d"], ["a", "c"])
    assert [(letter.reason, letter.error_type, letter.error) for letter in seen] == [("hopeless", "E", "text")] * 4


def test_filters_combine(admin: Admin) -> None:
    admin.die("a", "b", reason="spoilt")
    ids = admin.die("c", "d", reason="late")
    assert admin.redrive(reason="late", ids=tuple(ids), where=lambda record: record.endswith(b"d")).redriven == 1
    assert admin.names(admin.redriven_to) == ["d"]


def test_a_predicate_that_raises_leaves_everything_in_place(admin: Admin) -> None:
    admin.die(*"abc")
    before = state.dumps(admin.client)

    def where(record: bytes) -> bool:
        if record.endswith(b"c"):
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        admin.redrive(where=where)
    assert state.dumps(admin.client) == before


def test_an_async_predicate_is_refused(admin: Admin) -> None:
    admin.die("a")

    async def where(record: bytes) -> bool:
        return True

    with pytest.raises(TypeError, match="plain function"):
        admin.redrive(where=where)
    assert admin.names("dead") == ["a"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"limit": 0}, ConfigurationError), ({"page_size": 0}, ConfigurationError),
        ({"page_size": 1001}, ConfigurationError), ({"older_than_seconds": -1}, ConfigurationError),
        ({"ids": "abc"}, TypeError), ({"after": "tomorrow"}, ConfigurationError), ({"dry_run": 1}, ConfigurationError),
        ({"after": "1:@:2"}, ConfigurationError), ({"after": "1:2:x", "ids": ("a",)}, ConfigurationError),
    ],
)  # fmt: skip
def test_arguments_that_cannot_work(admin: Admin, request_: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        admin.redrive(**request_)


# ---------------------------------------------------------------------- pages, limits and resuming


@pytest.mark.parametrize("by_id", [False, True], ids=["by filter", "by id"])
def test_a_limit_stops_and_the_next_call_goes_on(admin: Admin, by_id: bool) -> None:
    names = [str(number) for number in range(25)]
    ids = admin.die(*names)
    options: dict[str, Any] = {"ids": tuple(ids)} if by_id else {"where": lambda record: record[-1] in b"02468"}
    wanted = names if by_id else [name for name in names if name[-1] in "02468"]
    redriven, after, scanned = [], None, 0
    while True:
        report = admin.redrive(limit=4, after=after, page_size=6, **options)
        redriven.append(report.redriven)
        scanned += report.scanned
        after = report.after
        if after is None:
            break
    assert sum(redriven) == len(wanted)
    assert max(redriven) == 4
    assert sorted(admin.names(admin.redriven_to), key=int) == wanted
    assert scanned == 25, "each letter is looked at once"


@pytest.mark.parametrize("by_id", [False, True], ids=["by filter", "by id"])
def test_a_dry_run_counts_in_the_same_steps_and_moves_nothing(admin: Admin, by_id: bool) -> None:
    names = [str(number) for number in range(25)]
    ids = admin.die(*names)
    options: dict[str, Any] = {"ids": tuple(ids)} if by_id else {"where": lambda record: record[-1] in b"02468"}
    before = state.contents(admin.client, "orders")
    admin.events.clear()
    redriven = [admin.redrive(limit=4, page_size=6, dry_run=True, **options)]
    while redriven[-1].after is not None:
        redriven.append(admin.redrive(limit=4, after=redriven[-1].after, page_size=6, dry_run=True, **options))

    assert [report.redriven for report in redriven] == ([4] * 6 + [1] if by_id else [4, 4, 4, 1])
    assert state.contents(admin.client, "orders") == before
    assert admin.events == []


def test_what_dies_again_stays(admin: Admin) -> None:
    admin.die(*(str(number) for number in range(10)))
    died_again = []

    def bury_them(call: Any) -> None:
        if call.script.name == "scan" and len(admin.calls) > 1:
            died_again.append(admin.bury_all("again"))

    admin.between = bury_them
    report = admin.redrive(page_size=3)
    assert report.redriven == 10
    assert sum(died_again) + len(admin.names(admin.redriven_to)) == 10
    assert admin.totals()["redriven"] == 10


def test_what_dies_again_in_the_moment_of_the_first_look_stays(admin: Admin) -> None:
    """Deaths are dated in milliseconds: a letter goes only once the mark's is over."""
    admin.die("a")
    now = admin.do(scan_call(admin.keys, "dead", page_size=1)).mark
    step = Step(b"op", 1)
    named = [Target(member) for member in admin.client.zrange(admin.keys.dead, 0, -1)]
    assert admin.do(redrive_call(admin.keys, step, named, mark=now + 60_000)) is None
    assert admin.names("dead") == ["a"]
    done = admin.do(redrive_call(admin.keys, step, named, mark=now + 60_000, patient=False))
    assert done == Redriven(1, [], None)


def test_a_clock_that_was_set_back_does_not_stop_it(admin: Admin) -> None:
    admin.die("a")
    later = admin.do(scan_call(admin.keys, "dead", page_size=1)).mark + 3_600_000
    assert admin.redrive(after=f"{later}::").redriven == 1
    assert admin.names(admin.redriven_to) == ["a"]


def test_a_call_that_goes_on_keeps_to_the_first_mark(admin: Admin) -> None:
    first = admin.die(*"abc")
    admin.age_letters(first, 10)
    report = admin.redrive(limit=2)
    assert report.after is not None
    admin.bury_all("again")
    mark = int(report.after.split(":")[0])
    for one in admin.client.zrange(admin.keys.dead, 0, -1)[-2:]:
        admin.client.zadd(admin.keys.dead, {one: mark + 1})
    assert admin.redrive(after=report.after).redriven == 1
    assert admin.names(admin.redriven_to) == ["c"]


def test_ten_thousand_in_pages_while_others_die(admin: Admin) -> None:
    names = [str(number) for number in range(10_000)]
    admin.die(*names, reason="old")
    other, stop, died = Admin(admin.client), threading.Event(), 0

    def die_on() -> None:
        nonlocal died
        while not stop.is_set():
            token_lease = f"x{died}"
            reply = other.do(other.claim(token_lease, "n", 20))
            if isinstance(reply, Opened):
                group = verdict("bury", f"1-{len(reply.entries)}", why=b"again\x1f\x1f")
                other.do(other.settle(token_lease, b"n:" + reply.opening, group))
                died += len(reply.entries)

    thread = threading.Thread(target=die_on)
    thread.start()
    try:
        report = admin.redrive()
    finally:
        stop.set()
        thread.join()
    assert (report.redriven, report.scanned, report.blocked, report.after) == (10_000, 10_000, 0, None)
    assert died > 0
    assert len(admin.names("dead")) == died
    assert sorted(admin.names(admin.redriven_to) + admin.names("dead"), key=int) == names
    assert max(len(call.args) for call in admin.calls) < 1100


def test_many_letters_of_one_moment_that_stay_are_passed_over(admin: Admin) -> None:
    """A burial of a whole lease gives all of its dead letters the same time."""
    admin.die(*(str(number) for number in range(300)))
    report = admin.redrive(where=lambda record: record.endswith(b"99"), page_size=7)
    assert (report.redriven, report.scanned) == (3, 300)


def test_the_letter_behind_which_it_goes_on_may_be_gone(admin: Admin) -> None:
    ids = admin.die(*"abcdef")
    report = admin.redrive(where=lambda record: record.endswith(b"c"), limit=1)
    assert report.after is not None
    assert ids[1] in report.after, "b is the last that stays"
    admin.redrive(ids=(ids[1],))
    assert admin.redrive(after=report.after).redriven == 4, "those of that moment are looked at again"
    assert sorted(admin.names(admin.redriven_to)) == list("abcdef")


def test_earlier_letters_are_not_read_again_for_one_that_is_gone(admin: Admin) -> None:
    ids = admin.die(*"abcdef")
    for at, one in enumerate(ids):
        admin.age_letters([one], 100 - at)
    report = admin.redrive(where=lambda record: record.endswith(b"d"), limit=1)
    admin.redrive(ids=(ids[2],))
    rest = admin.redrive(after=report.after)
    assert (rest.redriven, rest.scanned) == (2, 2)
    assert admin.names("dead") == ["a", "b"]


def test_large_letters_are_read_in_smaller_pages(admin: Admin) -> None:
    large = ["x" * 1_000_000 + str(number) for number in range(12)]
    admin.die(*large)
    assert admin.redrive().redriven == 12
    moved = [call for call in admin.calls if call.script.name == "redrive"]
    assert len(moved) >= 2
    assert len(admin.names(admin.redriven_to)) == 12


# ---------------------------------------------------------------------- keys, caps, strangers


def test_its_own_marker_does_not_block_it(admin: Admin) -> None:
    (letter,) = admin.die("a", keyed=True)
    assert admin.marker("a") == letter.encode()
    assert admin.redrive().redriven == 1
    assert admin.marker("a") == letter.encode()


def test_a_key_that_another_message_holds_blocks(admin: Admin) -> None:
    admin.die("a", "b", keyed=True)
    markers.release(admin.client, admin.keys, b"a")
    (successor,) = admin.send("a", keyed=True)
    report = admin.redrive()
    assert (report.redriven, report.blocked, report.scanned, report.after) == (1, 1, 2, None)
    assert admin.names("dead") == ["a"]
    assert admin.names(admin.redriven_to) == ["a", "b"]
    assert admin.marker("a") == successor.encode()
    assert admin.events == [("redrive", "success", 1), ("redrive", "refused", 1)]


def test_a_free_key_does_not_block(admin: Admin) -> None:
    admin.die("a", keyed=True)
    markers.release(admin.client, admin.keys, b"a")
    assert admin.redrive().redriven == 1
    assert admin.marker("a") is None, "its window is over"


def as_bound(admin: Admin) -> None:
    """Turn the dead letters into such whose marker ends with them, as it has."""
    for one, record in admin.client.hgetall(admin.keys.dead_records).items():
        *why, entry = record.split(b"\x1f", 4)
        admin.client.hset(admin.keys.dead_records, one, b"\x1f".join([*why, b"2" + entry[1:]]))
        markers.release(admin.client, admin.keys, entry.rsplit(b"\x1f", 1)[1])


def test_a_marker_that_ends_with_its_message_is_set_again(admin: Admin) -> None:
    (letter,) = admin.die("a", keyed=True)
    as_bound(admin)
    assert admin.redrive().redriven == 1
    assert admin.marker("a") == letter.encode()
    week = 7 * 24 * 3_600_000
    assert week - 60_000 < markers.left_ms(admin.client, admin.keys, b"a") <= week


def test_of_two_letters_under_one_such_key_one_goes(admin: Admin) -> None:
    (first,) = admin.die("a", keyed=True)
    as_bound(admin)
    admin.die("a", keyed=True)
    as_bound(admin)
    report = admin.redrive()
    assert (report.redriven, report.blocked) == (1, 1)
    assert admin.marker("a") == first.encode()


def test_a_cap_lets_go_only_what_fits(admin: Admin) -> None:
    admin.send("a", "b", "c")
    admin.give_back(1, "nack", delay_seconds=1000)
    admin.give_back(1, "nack")
    admin.bury_all()
    admin.die(*"defghij")
    admin.send("x")
    waiting = admin.do(admin.depth())
    assert (waiting.pending, waiting.returned, waiting.delayed) == (1, 0, 1)
    report = admin.redrive(max_pending_length=5, page_size=2)
    assert report.redriven == 3
    assert report.after is not None
    assert admin.redrive(max_pending_length=5, after=report.after).redriven == 0
    rest = admin.redrive(after=report.after)
    assert (rest.redriven, rest.after) == (6, None)
    assert report.scanned + rest.scanned == 9


def test_foreign_values_stay(admin: Admin) -> None:
    admin.add_junk(b"junk", b"more\x1fjunk\x1fwith\x1fseparators\x1f!")
    admin.die("a")
    report = admin.redrive()
    assert (report.redriven, report.blocked, report.scanned) == (1, 2, 3)
    assert admin.names(admin.redriven_to) == ["a"]
    assert admin.redrive(reason="foreign").blocked == 2


def test_a_letter_whose_record_was_deleted_from_outside_is_blocked(client: redis.Redis) -> None:
    admin = Admin(client)
    first, _ = admin.die("a", "b")
    admin.client.hdel(admin.keys.dead_records, first)
    report = admin.redrive()
    assert (report.redriven, report.blocked, report.after) == (1, 1, None)
    admin.client.zrem(admin.keys.dead, first)


# ---------------------------------------------------------------------- repeats


def test_a_lost_reply_is_counted_once(admin: Admin) -> None:
    """Every call is executed twice, as after a lost reply."""
    admin.die(*(str(number) for number in range(9)), keyed=True)
    markers.hold(admin.client, admin.keys, b"3", "another", px=600_000)
    admin.between = admin.do
    report = admin.redrive(page_size=4)
    redriven = 9 if admin.keys.group else 8  # a group publishes nothing, so no key blocks it
    assert (report.redriven, report.blocked, report.scanned) == (redriven, 9 - redriven, 9)
    assert admin.totals()["redriven"] == redriven
    assert len(admin.names(admin.redriven_to)) == redriven


def test_a_step_executed_late_redrives_nothing_again(admin: Admin) -> None:
    admin.die(*(str(number) for number in range(6)))
    admin.redrive(page_size=3)
    admin.bury_all("again")
    for call in admin.calls:
        admin.do(call)
    assert admin.names(admin.redriven_to) == []
    admin.client.delete(*admin.client.keys("*published*"))
    mark = int(next(call for call in admin.calls if call.script.name == "redrive").args[2])
    for one in admin.client.zrange(admin.keys.dead, 0, -1):
        admin.client.zadd(admin.keys.dead, {one: max(mark + 1, int(admin.client.zscore(admin.keys.dead, one)))})
    for call in admin.calls:
        admin.do(call)
    assert admin.names(admin.redriven_to) == [], "even without the receipt: what died since is left alone"
