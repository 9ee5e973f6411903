"""A script that stops at any of its writes loses no message of a block, and never counts too few that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate.core.call import Call
from sluicegate.core.entry import is_entry, split_entry
from sluicegate.core.transitions.claim import Opened
from tests.support import state
from tests.support.blocks import pack_pending, packed
from tests.support.core_calls import Core, verdict
from tests.support.stopping import is_stopped, numbers

NAMES = [f"m{at:02}" for at in range(40)]
Prepare = Callable[[Core], tuple[Call[Any], set[str]]]  # the call, and what it may end


def blocks(core: Core, most: int = 10, *names: str) -> None:
    core.do(core.publish("b", *(names or NAMES)))
    core.bind(*NAMES[10:20])
    assert pack_pending(core.client, core.queue, least=2, most=most) > 0


def claim_and_cut(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core, 20)
    return core.claim("l", "n", 36), set()


def claim_one_and_open(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    return core.claim("l", "n", 3), set()


def claim_all(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    return core.claim("l", "n", 100), set()


def claim_what_returned_and_cut(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("k", "k", 5)
    core.do(core.settle("k", token, verdict("release", "1-5")))
    return core.claim("l", "n", 12), set()


def settle_some(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("l", "n", 30)
    groups = [verdict("nack", "3"), verdict("release", "5-12"), verdict("ack", "13,15"), verdict("bury", "30")]
    return core.settle("l", token, *groups), {NAMES[12], NAMES[14]}


def ack_all_but_one(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("l", "n", 40)
    return core.settle("l", token, verdict("nack", "15"), verdict("ack", "1-14,16-40")), {*NAMES} - {NAMES[14]}


def ack_whole_with_markers(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("l", "n", 40)
    return core.settle("l", token, verdict("ack", "1-40")), set(NAMES)


def reap_blocks(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("l", "n", 40)
    core.do(core.settle("l", token, verdict("ack", "2")))
    state.expire(core.client, core.queue)
    return core.reap("l"), {NAMES[1]}


def take_over(core: Core) -> tuple[Call[Any], set[str]]:
    blocks(core)
    token, _ = core.opened("l", "n", 40)
    core.do(core.settle("l", token, verdict("ack", "2")))
    core.client.hset(core.keys.lease(b"l"), "b11", "junk")
    return core.claim_known("l", "m", takeover=token), {NAMES[1], *NAMES[10:20]}


CASES = [
    claim_and_cut, claim_one_and_open, claim_all, claim_what_returned_and_cut, settle_some, ack_all_but_one,
    ack_whole_with_markers, reap_blocks, take_over,
]  # fmt: skip


def everything(client: redis.Redis) -> set[str]:
    """Return the names of all messages that are stored somewhere."""
    found = [entry for entries in vars(state.contents(client, "orders")).values() for entry in entries]
    return {split_entry(entry)[3].decode() for entry in found if is_entry(entry)}


def waiting(core: Core) -> tuple[int, int]:
    """Return how many values and messages the counters say that `pending` holds, and how many messages it holds."""
    values = core.client.lrange(core.keys.pending, 0, -1)
    counted = len(values) + int(core.client.hget(core.keys.counters, "packed") or 0)
    return counted if values else 0, len(values) + packed(values)


def work(core: Core) -> list[str]:
    """Work on all that is left, and ack it; return what was delivered."""
    seen: list[str] = []
    state.expire(core.client, core.queue)
    for turn in range(200):
        reply = core.do(core.claim(f"w{turn}", f"w{turn}", 7))
        if isinstance(reply, Opened):
            leased = reply.leased()
            seen += [split_entry(entry)[3].decode() for entry in leased.entries()]
            token = f"w{turn}:".encode() + reply.opening
            core.do(core.settle(f"w{turn}", token, verdict("ack", f"1-{len(leased)}")))
        else:
            for name in getattr(reply, "expired", ()):
                core.do(core.reap(name.decode()))
            if not getattr(reply, "expired", ()):
                return seen
    raise AssertionError("the queue never becomes empty")


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
def test_a_stop_at_any_write_loses_nothing(bare_client: redis.Redis, prepare: Prepare) -> None:
    stopped = 0
    for writes in numbers():
        bare_client.flushall()
        core = Core(bare_client)
        call, may_end = prepare(core)
        before = everything(bare_client)
        if not is_stopped(core, call, writes):
            break
        stopped += 1
        assert before - everything(bare_client) <= may_end, f"after {writes} writes"
        counted, real = waiting(core)
        assert counted >= real, f"after {writes} writes fewer are counted than wait"
        left = everything(bare_client)
        again = core.do(call)  # the caller repeats it
        assert left - everything(bare_client) <= may_end, f"after {writes} writes and a repeat"
        assert waiting(core)[0] >= waiting(core)[1]
        assert again is not None
        dead = {
            split_entry(entry)[3].decode() for entry in state.contents(bare_client, "orders").dead if is_entry(entry)
        }
        assert everything(bare_client) <= set(work(core)) | dead, f"after {writes} writes some are never delivered"
    assert stopped >= 3
