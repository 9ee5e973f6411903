"""Calls of administration as the tests of repeats, of wrong types and of stopped scripts make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.entry import identify, key_of
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.cancel import cancel_call
from sluicegate.core.transitions.eviction import eviction_call
from sluicegate.core.transitions.examine import examine_call, probe_rights_call
from sluicegate.core.transitions.forget import forget_call
from sluicegate.core.transitions.in_flight import in_flight_call
from sluicegate.core.transitions.pause import pause_call
from sluicegate.core.transitions.peek import peek_pending_call
from sluicegate.core.transitions.purge import purge_call
from sluicegate.core.transitions.redrive import redrive_call
from sluicegate.core.transitions.repair import recount_call, repair_call, repair_leases_call
from sluicegate.core.transitions.scan import Step, Target, scan_call
from sluicegate.core.transitions.stats import stats_call
from tests.support import markers
from tests.support.blocks import entries_of, pack_pending
from tests.support.core_calls import Core, verdict

STEP = Step(b"op", 1)


def with_messages_everywhere(core: Core) -> None:
    """Three messages with keys in each state, and dead letters of which one is blocked and one keeps its key."""
    core.do(core.publish("b", *"abcdefghijkl", keyed=True))
    entries = core.client.lrange(core.keys.pending, -1, -1)
    core.client.lset(core.keys.pending, -1, b"2" + entries[0][1:])
    token, _ = core.opened("t", "n", 9)
    core.do(
        core.settle(
            "t", token, verdict("bury", "1-3"), verdict("nack", "4-6", delay_seconds=1000), verdict("nack", "7-9")
        )
    )
    markers.hold(core.client, core.keys, b"b", "b-5", px=600_000)


def _named(values: Sequence[bytes], whole: bool = False) -> list[Target]:
    return [Target(value if whole else identify(value)[0], key_of(value)) for value in values]


def _letters(core: Core) -> list[bytes]:
    return [record.split(b"\x1f", 4)[4] for record in core.client.hvals(core.keys.dead_records)]


def scan_a_list(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return scan_call(core.keys, "pending", page_size=5, mark=1)


def scan_letters(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return scan_call(core.keys, "dead", page_size=5, mark=1 << 44, whole=True)


def redrive(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return redrive_call(core.keys, STEP, _named(_letters(core)), mark=1 << 44, patient=False)


def redrive_what_fits(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    named = _named(_letters(core))
    return redrive_call(core.keys, STEP, named, mark=1 << 44, max_pending_length=10, patient=False)


def purge_pending(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    named = _named(core.client.lrange(core.keys.pending, -2, -1))
    return purge_call(core.keys, "pending", STEP, named)


def purge_delayed(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    named = _named(core.client.zrange(core.keys.delayed, 0, 1), whole=True)
    return purge_call(core.keys, "delayed", STEP, named)


def purge_dead(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return purge_call(core.keys, "dead", STEP, _named(_letters(core)[1:]))


def purge_a_history(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    core.client.lpush(core.keys.failed, b"record", b"record")
    return purge_call(core.keys, "failed", STEP)


def _cancel(core: Core, where: str, values: Sequence[bytes]) -> Call[Any]:
    page = core.do(scan_call(core.keys, where, page_size=10))
    return cancel_call(core.keys, where, STEP, _named(values, where != "pending"), 0, page)


def cancel_pending(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return _cancel(core, "pending", core.client.lrange(core.keys.pending, 0, 1))


def cancel_returned(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return _cancel(core, "returned", core.client.zrange(core.keys.returned, 0, 1))


def ask_who_owns(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return forget_call(core.keys, b"a")


def _with_blocks(core: Core) -> None:
    with_messages_everywhere(core)
    core.do(core.publish("c", *[f"x{number}" for number in range(20)], keyed=True))
    pack_pending(core.client, core.queue, least=2, most=8)


def purge_blocks(core: Core) -> Call[Any]:
    _with_blocks(core)
    page = core.do(scan_call(core.keys, "pending", page_size=15, from_oldest=True))
    named = [Target(identify(value)[0], key_of(value)) for _, value in page.items]
    assert len(named) == 19
    return purge_call(core.keys, "pending", STEP, named)


def cancel_in_blocks(core: Core) -> Call[Any]:
    """Cancel a whole block, all but one of another, and some of a third."""
    _with_blocks(core)
    wanted = [b"c-%d" % number for number in (*range(7), *range(8, 16), 18, 19)]
    page = core.do(scan_call(core.keys, "pending", page_size=100, wanted=wanted))
    named = [Target(identify(value)[0], key_of(value)) for _, value in page.items]
    assert len(named) == len(wanted)
    return cancel_call(core.keys, "pending", STEP, named, 0, page)


def drop_from_blocks(core: Core) -> Call[Any]:
    """Make room for twelve: three single messages, a block and one message of the next."""
    _with_blocks(core)
    waiting = core.do(core.depth())
    most = waiting.pending + waiting.returned + waiting.delayed
    return core.publish("d", *"123456789012", max_pending_length=most, overload="drop_oldest")


def redrive_a_block(core: Core) -> Call[Any]:
    """Redrive a block that an older consumer buried as a foreign value."""
    _with_blocks(core)
    block = core.client.rpop(core.keys.pending)
    core.client.hincrby(core.keys.counters, "packed", 1 - len(entries_of(block)))
    core.client.zadd(core.keys.dead, {"foreign-1": 5})
    core.client.hset(core.keys.dead_records, "foreign-1", b"5\x1fforeign\x1f\x1f\x1f" + block)
    return redrive_call(core.keys, STEP, [Target(b"foreign-1")], mark=1 << 44, patient=False)


def repair_a_block(core: Core) -> Call[Any]:
    """Requeue a block that an older consumer set aside."""
    _with_blocks(core)
    block = core.client.rpop(core.keys.pending)
    core.client.hincrby(core.keys.counters, "packed", 1 - len(entries_of(block)))
    core.client.zadd(core.keys.set_aside, {block: 1})
    core.client.hset(core.keys.counters, "set_aside", 1)
    return repair_call(core.keys, "aside", place=b"0", page_size=9)


def recount_blocks(core: Core) -> Call[Any]:
    _with_blocks(core)
    core.client.hset(core.keys.counters, "packed", 99)
    return repair_call(core.keys, "packed", place=b"0", page_size=9)


def peek_into_blocks(core: Core) -> Call[Any]:
    _with_blocks(core)
    return peek_pending_call(core.keys, 9, offset=4)


def forget(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return forget_call(core.keys, b"a", b"b-0")


def pause(core: Core) -> Call[Any]:
    return pause_call(core.keys, True, 0)


def resume(core: Core) -> Call[Any]:
    core.client.delete(core.keys.wakeup)
    core.do(pause_call(core.keys, True, 0))
    return pause_call(core.keys, False, 1)


def stats(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return stats_call(core.keys)


def eviction(core: Core) -> Call[Any]:
    return eviction_call(core.keys)


def prepare_repair(core: Core) -> None:
    with_messages_everywhere(core)
    core.opened("open", "n", 2)
    core.client.zadd(core.keys.set_aside, {core.client.lpop(core.keys.pending): 1})
    core.client.hset(core.keys.counters, "set_aside", 1)
    core.do(recount_call(core.keys, "begin", b"R"))


def repair(core: Core, part: str = "counters") -> Call[Any]:
    prepare_repair(core)
    return repair_call(core.keys, part, place=b"0", page_size=9)


def recount(core: Core) -> Call[Any]:
    prepare_repair(core)
    return recount_call(core.keys, "count", b"R", upto=b"f", names=[b"open"])


def repair_what_was_set_aside(core: Core) -> Call[Any]:
    return repair(core, "aside")


def repair_letters(core: Core) -> Call[Any]:
    call = repair(core, "letters")
    core.client.hdel(core.keys.dead_records, core.client.zrange(core.keys.dead, 0, 0)[0])
    return call


def repair_records(core: Core) -> Call[Any]:
    call = repair(core, "records")
    core.client.zremrangebyrank(core.keys.dead, 0, 0)
    return call


def repair_leases(core: Core) -> Call[Any]:
    prepare_repair(core)
    call = repair_leases_call(core.keys, "check", names=[b"open"])
    core.client.zrem(core.keys.leases, "open")
    return call


def end_a_repair(core: Core) -> Call[Any]:
    core.do(recount(core))
    return recount_call(core.keys, "end", b"R")


REPAIRS = [repair, recount, repair_what_was_set_aside, repair_letters, repair_records, repair_leases, end_a_repair]


def examine(core: Core) -> Call[Any]:
    with_messages_everywhere(core)
    return examine_call(core.keys, [core.keys.lease_name("t")])


def probe_rights(core: Core) -> Call[Any]:
    return probe_rights_call(core.keys.published(b"spare"), [("GET", "@"), ("SET", "@", "x"), ("HGET", "@", "a")])


def look_around(keys: QueueKeys, do: Callable[[Call[Any]], Any]) -> None:
    """Make the calls that look into a queue without damage and without leases."""
    assert do(in_flight_call(keys)).messages == []
    assert do(examine_call(keys)).expired == 0
    assert do(probe_rights_call(keys.published(b"spare"), [("GET", "@")])) == [""]


READING = [scan_a_list, scan_letters, ask_who_owns, stats, eviction, examine, probe_rights]
DELETING_BLOCKS = [purge_blocks, cancel_in_blocks, drop_from_blocks]
CHANGING_BLOCKS = [redrive_a_block, repair_a_block, recount_blocks, *DELETING_BLOCKS]
DELETING = [purge_pending, purge_delayed, purge_dead, purge_a_history, cancel_pending, cancel_returned]
CHANGING = [redrive, redrive_what_fits, *DELETING, forget, pause, resume]
TYPES = {
    "scan pending": (scan_a_list, "source counters"),
    "scan dead": (scan_letters, "source dead_records counters"),
    "redrive": (redrive, "pending returned delayed dead dead_records counters wakeup receipt marker_counters buckets"),
    "purge pending": (purge_pending, "source leases counters receipt marker_counters buckets"),
    "purge delayed": (purge_delayed, "source leases counters receipt marker_counters buckets"),
    "purge dead": (purge_dead, "source dead_records leases counters receipt marker_counters buckets"),
    "purge failed": (purge_a_history, "source leases counters receipt"),
    "cancel pending": (cancel_pending, "source leases counters receipt marker_counters buckets"),
    "cancel returned": (cancel_returned, "source leases counters receipt marker_counters buckets"),
    "forget": (forget, "counters leases buckets"),
    "pause": (pause, "leases counters wakeup"),
    "resume": (resume, "leases counters wakeup"),
    "stats": (stats, "counters"),
    "repair": (repair, "leases counters wakeup pending returned set_aside dead dead_records"),
    "repair_leases": (repair_leases, "leases lease"),
    "recount_in_flight": (recount, "leases counters lease"),
}
