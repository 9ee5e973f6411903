"""What a queue remembers of messages that ended and of attempts that failed."""

from __future__ import annotations

import pytest
import redis

from sluicegate.core.entry import split_entry
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import Acked
from sluicegate.core.transitions.peek import peek_call
from sluicegate.core.transitions.settle import Settled
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt
from tests.support import state
from tests.support.core_calls import Core, verdict

WHY = b"\x1fKeyError\x1fno such key"


def history(core: Core, which: str) -> list[list[str]]:
    return state.history(core.client, core.queue, which)


def kept(client: redis.Redis, **caps: int | None) -> Core:
    core = Core(client, **{"completed_cap": 100, "failed_cap": 100, **caps})
    core.do(core.publish("b", *"abcdef"))
    return core


def test_nothing_is_remembered_unless_told(client: redis.Redis) -> None:
    core = Core(client)
    core.do(core.publish("b", *"abc"))
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("ack", "1"), verdict("nack", "2", why=WHY), verdict("bury", "3")))
    assert not client.exists(core.keys.completed, core.keys.failed)


@pytest.mark.parametrize("slots", [["1-6"], ["1-3", "4-6"], ["2,4", "1,3,5-6"]], ids=["whole", "halves", "scattered"])
def test_each_acked_message_is_recorded_once(client: redis.Redis, slots: list[str]) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n")
    for part in slots:
        for _ in range(2):
            assert core.do(core.settle("l", token, verdict("ack", part))).lost == []
    assert sorted(history(core, "completed")) == [[letter] for letter in "abcdef"]
    assert history(core, "failed") == []


def test_the_newest_record_comes_first_and_tells_the_deliveries(client: redis.Redis) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n", 3)
    core.do(core.settle("l", token, verdict("nack", "1", why=WHY), verdict("ack", "2"), verdict("ack", "3")))
    token, _ = core.opened("m", "n", 1)
    core.do(core.settle("m", token, verdict("ack", "1")))
    records = [CompletedMessage.from_record(record) for record in client.lrange(core.keys.completed, 0, -1)]
    assert [(record.message.text(), record.message.delivery_count) for record in records] == [
        ("a", 2), ("c", 1), ("b", 1),
    ]  # fmt: skip
    assert records[0].completed_at >= records[1].completed_at >= records[1].message.enqueued_at
    assert "payload" not in repr(records[0])
    assert repr(records[0]).startswith(f"CompletedMessage('{records[0].message.id}', completed_at=")


@pytest.mark.parametrize("cap", [1, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_the_cap_keeps_the_newest(client: redis.Redis, cap: int, whole: bool) -> None:
    core = kept(client, completed_cap=cap, failed_cap=cap)
    token, _ = core.opened("l", "n")
    for slots in ["1-6"] if whole else ["1-2", "3", "4-6"]:
        core.do(core.settle("l", token, verdict("ack", slots)))
    assert history(core, "completed") == [["f"], ["e"], ["d"]][:cap]
    core.do(core.publish("c", *"uvwxyz"))
    token, _ = core.opened("m", "n")
    core.do(core.settle("m", token, verdict("nack", "1-6", why=WHY)))
    assert [reported[-1] for reported in history(core, "failed")] == ["z", "y", "x"][:cap]
    assert len(history(core, "completed")) == cap


def test_a_lowered_cap_is_reached_in_bounded_steps(client: redis.Redis) -> None:
    core = kept(client, completed_cap=2)
    client.rpush(core.keys.completed, *[b"old"] * 2500)
    token, _ = core.opened("l", "n")
    lengths = []
    for slot in "123":
        core.do(core.settle("l", token, verdict("ack", slot)))
        lengths.append(client.llen(core.keys.completed))
    assert lengths == [1500, 500, 2]


def test_a_cap_of_nothing_keeps_all(client: redis.Redis) -> None:
    core = kept(client, completed_cap=0, failed_cap=0)
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("nack", "1-3"), verdict("ack", "4-6")))
    assert len(history(core, "completed")) == len(history(core, "failed")) == 3


def test_each_failed_attempt_is_recorded_with_its_error(client: redis.Redis) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n")
    call = core.settle(
        "l",
        token,
        verdict("nack", "1", why=WHY),
        verdict("nack", "2", delay_seconds=9, why=WHY),
        verdict("release", "3"),
        verdict("bury", "4", why=b"hopeless\x1fValueError\x1fbad"),
        verdict("discard", "5", why=WHY),
        verdict("ack", "6"),
    )
    for _ in range(2):
        core.do(call)
    assert history(core, "failed") == [
        ["KeyError", "no such key", "discard", "e"],
        ["ValueError", "bad", "bury", "d"],
        ["KeyError", "no such key", "nack", "b"],
        ["KeyError", "no such key", "nack", "a"],
    ]
    assert history(core, "completed") == [["f"]]
    attempts = [FailedAttempt.from_record(record) for record in client.lrange(core.keys.failed, 0, -1)]
    assert [attempt.message.delivery_count for attempt in attempts] == [1, 1, 1, 1]
    assert (attempts[0].verb, attempts[0].error_type, attempts[0].error) == ("discard", "KeyError", "no such key")
    assert attempts[0].failed_at >= attempts[0].message.enqueued_at
    assert repr(attempts[0]) == f"FailedAttempt('{attempts[0].message.id}', verb='discard', error_type='KeyError')"


def test_a_nack_that_buries_is_recorded_as_a_nack(client: redis.Redis) -> None:
    core = kept(client)
    core.rules = QueueRules(max_delivery_count=1, failed_cap=9)
    token, opened = core.opened("l", "n", 1)
    core.do(core.settle("l", token, verdict("nack", "1", why=WHY)))
    assert history(core, "failed") == [["KeyError", "no such key", "nack", "a"]]
    assert state.contents(client, core.queue).ids()["dead"] == [split_entry(opened.entries[0])[0].decode()]


def test_a_late_verdict_leaves_no_record(client: redis.Redis) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n")
    state.expire(client, core.queue)
    core.do(core.reap("l"))
    assert core.do(core.settle("l", token, verdict("ack", "1-3"), verdict("nack", "4-6"))).lost == [1, 2, 3, 4, 5, 6]
    assert not client.exists(core.keys.completed, core.keys.failed)


@pytest.mark.parametrize("slots", ["1-6", "2-3"], ids=["whole", "some"])
def test_a_discarded_message_is_gone_and_counted_apart(client: redis.Redis, slots: str) -> None:
    core = kept(client, failed_cap=None)
    token, _ = core.opened("l", "n")
    call = core.settle("l", token, verdict("discard", slots))
    count = 6 if slots == "1-6" else 2
    assert core.do(call) == core.do(call) == Settled([], 6 - count, [])
    assert state.counters(client, core.queue)["discarded"] == count
    assert "acked" not in state.counters(client, core.queue)
    assert not client.exists(core.keys.completed, core.keys.failed)
    assert core.do(core.depth()).dead == 0
    core.do(core.settle("l", token, verdict("ack", "1-6")))
    assert core.do(core.claim("l", "n2")) == Acked(6, 0, 0), "to a retry of its owner it is work that was done"


def test_a_nack_of_what_was_discarded_is_late(client: redis.Redis) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("discard", "1")))
    core.do(core.settle("l", token, verdict("nack", "2")))
    assert core.do(core.settle("l", token, verdict("nack", "1"))).lost == [1]
    assert core.do(core.settle("l", token, verdict("discard", "2"))).lost == [2]


def test_a_full_redis_still_takes_records(client: redis.Redis) -> None:
    core = kept(client)
    token, _ = core.opened("l", "n")
    client.config_set("maxmemory", "1")
    call = core.settle("l", token, verdict("ack", "1-3"), verdict("nack", "4", why=WHY), verdict("discard", "5-6"))
    assert core.do(call).lost == []
    client.config_set("maxmemory", "0")
    assert (len(history(core, "completed")), len(history(core, "failed"))) == (3, 3)


@pytest.mark.parametrize("script", ["ack_whole", "settle"])
def test_an_ack_without_history_reads_no_message(client: redis.Redis, script: str) -> None:
    core = Core(client)
    core.do(core.publish("b", *"abcdef"))
    token, _ = core.opened("l", "n")
    call = core.ack_whole("l", token, 6) if script == "ack_whole" else core.settle("l", token, verdict("ack", "1-6"))
    client.config_resetstat()
    core.do(call)
    stats = client.info("commandstats")
    assert stats["cmdstat_hmget"]["calls"] == 1, "of the counters"
    assert "cmdstat_hdel" not in stats
    assert stats["cmdstat_unlink"]["calls"] == 1


def test_a_dead_letter_tells_its_life(client: redis.Redis) -> None:
    core = kept(client)
    token, opened = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("bury", "1", why=b"hopeless\x1fValueError\x1fbad")))
    core.add_junk(b"junk")
    core.do(core.claim("m", "n"))
    found = {}
    for record in core.do(peek_call(core.keys, "dead", 10)):
        dead = DeadMessage.from_record(record)
        found[dead.reason] = dead
    hopeless, foreign = found["hopeless"], found["foreign"]
    assert (hopeless.id, hopeless.headers) == (split_entry(opened.entries[0])[0].decode(), {})
    assert hopeless.delivery_count == 1
    assert hopeless.message is not None
    assert (hopeless.first_at, hopeless.last_at) == (hopeless.message.enqueued_at, hopeless.buried_at)
    assert (foreign.id, foreign.headers, foreign.delivery_count) == (None, {}, 0)
    assert foreign.first_at == foreign.last_at == foreign.buried_at
    assert "junk" not in repr(foreign)
