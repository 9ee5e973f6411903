"""After a repair, counts agree with the structures, whatever was deleted or overwritten, while others keep working."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import QueueEvent, RedisMessageQueue, RepairReport
from sluicegate.core.call import Call
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.transitions.claim import Opened
from sluicegate.core.transitions.repair import repair_operation
from tests.support import state
from tests.support.core_administration import Admin
from tests.support.damage import NEWER, applies, busy, matrix
from tests.support.servers import PROGRAMS

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def admin(bare_client: redis.Redis) -> Admin:
    return Admin(bare_client)


def mend(admin: Admin, nonce: bytes = b"repair") -> RepairReport:
    return admin.run(repair_operation(admin.keys, admin.rules, nonce, emits_events=True))


# ---------------------------------------------------------------------- what it mends


def test_where_all_agrees_it_changes_nothing(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(2)
    queue.claim().bury()
    before = state.dumps(client)
    assert queue.repair() == RepairReport()
    assert queue.repair().mended == 0
    assert state.dumps(client) == before
    lease.ack()


def test_a_deleted_lease_is_no_longer_counted(make_queue: MakeQueue, client: redis.Redis) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    queue.publish_many(["a", "b", "c", "d"])
    kept, lost = queue.claim(1, lease_id="kept"), queue.claim(3, lease_id="lost")
    client.delete(queue.session.keys.lease(lost.id.encode()))
    assert (queue.depth().in_flight, queue.depth().leases) == (4, 2)
    report = queue.repair()
    assert (report.in_flight, report.leases, report.recounted) == (-3, 1, True)
    assert (queue.depth().in_flight, queue.depth().leases, queue.stats().in_flight) == (1, 1, 1)
    assert [(event.operation, event.outcome, event.count) for event in events if event.operation == "repair"] == [
        ("repair", "success", 2)
    ]
    kept.ack()
    assert queue.depth().in_flight == 0


def test_letters_and_records_belong_together_again(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many(["a", "b", "c"])
    queue.claim(3).bury(reason="r")
    first, second, _ = client.zrange(queue.session.keys.dead, 0, -1)
    client.hdel(queue.session.keys.dead_records, first)
    client.zrem(queue.session.keys.dead, second)
    report = queue.repair()
    assert (report.letters, report.records) == (1, 1)
    assert (queue.depth().dead, len(queue.peek(state="dead"))) == (2, 2)
    assert (queue.redrive().redriven, queue.redrive().blocked) == (2, 0)


def test_what_was_set_aside_comes_back_once_it_can_be_read(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many(["b", "c"])
    queue.claim(2).release()
    entries = client.zrange(queue.session.keys.returned, 0, -1)
    client.delete(queue.session.keys.returned)
    client.zadd(
        queue.session.keys.set_aside,
        {**dict.fromkeys(entries, 5), NEWER: 4, **{NEWER + b"%d" % n: 6 for n in range(600)}},
    )
    report = queue.repair()
    assert report.returned == 2
    assert (queue.depth().returned, queue.depth().set_aside) == (2, 601)
    assert [message.text() for message in queue.claim(2).messages] == ["b", "c"], "in their first order"
    assert queue.claim().state.value == "empty"


def test_counters_that_are_no_numbers_begin_anew(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many(["a", "b", "c"])
    lease = queue.claim(2)
    client.hset(queue.session.keys.counters, mapping={"published": "x", "acked": "1.5", "in_flight": "many", "odd": ""})
    is_group = bool(queue.session.keys.group)  # what it has not read has no number yet
    assert queue.repair().counters == (4 if is_group else 5)  # and `published`, which must not fall behind
    assert (queue.stats().published, queue.stats().acked) == (0 if is_group else 3, 0)
    assert queue.stats().in_flight == 2
    client.delete(queue.session.keys.counters)
    lease.release()
    assert queue.repair().in_flight == 2, "two left that were not counted"
    queue.publish("d")
    assert [message.text() for message in queue.claim(9).messages] == ["a", "b", "c", "d"]


def test_leases_that_nothing_would_bring_back(admin: Admin) -> None:
    admin.do(admin.publish("b", *"abcdefgh"))
    for name in ("no deadline", "for ever", "no words", "empty"):
        admin.opened(name, "n", 2)
    lease = {name: admin.keys.lease_name(name) for name in ("no deadline", "for ever", "no words", "empty")}
    admin.client.zrem(admin.keys.leases, lease["no deadline"])
    admin.client.zadd(admin.keys.leases, {lease["for ever"]: "inf"})
    admin.client.hset(admin.keys.lease(lease["no words"]), "m", "garbage")
    admin.client.hdel(admin.keys.lease(lease["empty"]), "1", "2")
    report = mend(admin)
    assert (report.leases, report.reaped, report.in_flight) == (3, 1, -2)
    assert admin.do(admin.depth()).returned == 2
    now = admin.client.time()[0] * 1000
    assert admin.client.zscore(admin.keys.leases, lease["for ever"]) < now + 61_000
    assert admin.client.zscore(admin.keys.leases, lease["no deadline"]) < now + 1000
    state.check(admin.client)
    assert mend(admin, b"again").mended == 0


@pytest.mark.every_server
def test_after_any_damage_everything_agrees_again(admin: Admin, request: pytest.FixtureRequest) -> None:
    """Each server sees a part of the matrix, from its own beginning."""
    which = PROGRAMS.index(request.node.callspec.params["server"])
    for name, damage in list(matrix().items())[which :: len(PROGRAMS)]:
        if not applies(admin, name):
            continue
        admin.client.flushall()
        admin.begin()
        busy(admin)
        damage(admin)
        mend(admin)
        _agree(admin, name)
        assert mend(admin, b"again").in_flight == 0, name


def _agree(admin: Admin, damage: str) -> None:
    hashes = list(admin.client.scan_iter("*:lease:*"))
    counted = admin.client.hgetall(admin.keys.counters)
    assert sum(name.isdigit() for key in hashes for name in admin.client.hkeys(key)) == int(counted[b"in_flight"]), (
        damage
    )
    chain = counted.pop(b"markers", b"")
    if not damage.startswith("counters: "):  # an unreadable chain is one without generations, and stays until a publish
        assert re.fullmatch(rb"(\d+:\d+:\d+:\d+;)*", chain), damage
    assert all(value.lstrip(b"-").isdigit() for value in counted.values()), damage
    assert admin.client.zcard(admin.keys.dead) == admin.client.hlen(admin.keys.dead_records), damage
    assert admin.do(admin.depth()).leases == len(hashes), damage


# ---------------------------------------------------------------------- beside others


def test_a_recount_counts_what_others_do_meanwhile(admin: Admin) -> None:
    """Leases may open, settle, expire or be taken over between any two of its calls."""
    rnd = random.Random(5)
    open_leases: dict[str, tuple[bytes, list[int]]] = {}
    numbers = iter(range(10_000))

    def act(_: Call[Any]) -> None:
        for _ in range(3):
            match rnd.randrange(5):
                case 0 | 1:
                    number = next(numbers)
                    Admin(admin.client).do(admin.publish(f"b{number}", *"abc"))
                    reply = Admin(admin.client).do(admin.claim(f"l{number}", "n", rnd.randint(1, 3)))
                    if isinstance(reply, Opened):
                        open_leases[f"l{number}"] = (b"n:" + reply.opening, [*range(1, len(reply.entries) + 1)])
                case 2 | 3 if open_leases:
                    name = rnd.choice(list(open_leases))
                    token, slots = open_leases[name]
                    verb = rnd.choice(["ack", "nack", "release", "bury"])
                    slot = slots.pop()
                    Admin(admin.client).do(admin.settle(name, token, VerdictGroup(verb, str(slot))))  # type: ignore[arg-type]
                    if not slots:
                        del open_leases[name]
                case 4 if open_leases:
                    name = rnd.choice(list(open_leases))
                    del open_leases[name]
                    state.expire(admin.client, "orders", name)
                    Admin(admin.client).do(admin.reap(name, rnd.randint(1, 3)))
                    Admin(admin.client).do(admin.reap(name))

    for _ in range(30):
        act(None)  # type: ignore[arg-type]
    for round_ in range(20):
        wrong = rnd.randint(-50, 50)
        admin.client.hincrby(admin.keys.counters, "in_flight", wrong)
        admin.between = act
        report = mend(admin, b"%d" % round_)
        admin.between = lambda call: None
        assert report.in_flight == -wrong
        state.check(admin.client)


def test_of_two_repairs_one_recounts(admin: Admin) -> None:
    admin.do(admin.publish("b", *"abcdef"))
    admin.opened("l", "n", 2)
    admin.client.hset(admin.keys.counters, "in_flight", 40)
    other = Admin(admin.client)
    reports: list[RepairReport] = []

    def meanwhile(call: Call[Any]) -> None:
        if call.args[0] == b"count" and not reports:
            reports.append(RepairReport())
            reports[0] = mend(other, b"other")

    admin.between = meanwhile
    assert mend(admin) == RepairReport(recounted=False)
    assert reports == [RepairReport(in_flight=-38)]
    state.check(admin.client)


def test_a_repair_that_was_left_behind_harms_nothing(admin: Admin) -> None:
    operation = repair_operation(admin.keys, admin.rules, b"dead", emits_events=False)
    step = next(operation)
    while step.args[0] != b"end":  # type: ignore[union-attr]
        step = operation.send(admin.do(step))  # type: ignore[arg-type]
    admin.do(admin.publish("b", *"abc"))
    token, _ = admin.opened("l", "n", 3)
    admin.do(admin.settle("l", token, VerdictGroup("ack", "1")))
    mend(admin)
    before = state.dumps(admin.client)
    assert admin.do(step).over  # type: ignore[arg-type]
    assert state.dumps(admin.client) == before
    state.check(admin.client)


def test_it_works_beside_threads_that_publish_and_consume(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    stop, errors = threading.Event(), []

    def work(number: int) -> None:
        own = RedisMessageQueue("orders", url=f"unix://{client.connection_pool.connection_kwargs['path']}")
        try:
            while not stop.is_set():
                own.publish_many([[number]] * 5)
                lease = own.claim(4)
                lease.nack(lease.messages[:1])
                lease.ack()
        except Exception as error:
            errors.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for wrong in (7, -5, 11):
        client.hincrby(queue.session.keys.counters, "in_flight", wrong)
        assert queue.repair().in_flight == -wrong
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert queue.depth().in_flight == 0
