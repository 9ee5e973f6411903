"""Calls of a group of a stream, for the tests of repeats, of wrong types and of full memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from sluicegate.core.call import Call
from sluicegate.core.keys import GroupKeys
from sluicegate.core.transitions.adopt import adopt_call
from sluicegate.core.transitions.cancel import cancel_operation
from sluicegate.core.transitions.group_pending import expire_leases_call, foreign_pending_call
from sluicegate.core.transitions.peek import peek_call
from sluicegate.core.transitions.promote import promote_call
from sluicegate.core.transitions.purge_unread import purge_unread_call
from sluicegate.core.transitions.redrive import redrive_call
from sluicegate.core.transitions.scan import Step, Target
from sluicegate.spark.transitions import browse_group_call
from tests.support import markers, state
from tests.support.core_calls import Core, verdict

KEYS = GroupKeys("orders", "g")


def group(core: Core, *names: str) -> Core:
    """Return the group, with these messages unread that hold their keys until they end."""
    made = Core(core.client, most=3, stale_seconds=10)
    made.keys = KEYS
    made.do = core.do  # type: ignore[method-assign]
    core.client.xgroup_create(KEYS.stream, "g", "0", mkstream=True)
    for name in names:
        entry = core.client.xadd(KEYS.stream, {"data": name, "key": name, "policy": "until_acked"})
        markers.hold(core.client, KEYS, name.encode(), entry + b"\x1fbatch", px=7 * 86_400_000)
    return made


def claim(core: Core) -> Call[Any]:
    return group(core, *"abc").claim("l", "n", 2)


def claim_nothing(core: Core) -> Call[Any]:
    return group(core).claim("l", "n", remember_empty=True)


def ack(core: Core) -> Call[Any]:
    made = group(core, *"abc")
    token, _ = made.opened("l", "n")
    return made.settle("l", token, verdict("ack", "1-2"), verdict("bury", "3"))


def reap_a_poison_message(core: Core) -> Call[Any]:
    made = group(core, "a")
    for nonce in ("n", "m", "o"):
        made.opened("l", nonce)
        state.expire(core.client, "orders", group="g")
        if nonce != "o":
            while not made.do(made.reap("l")).finished:
                pass
    return made.reap("l", wanted=[b"a"])


def promote(core: Core) -> Call[Any]:
    made = group(core, "a")
    token, _ = made.opened("l", "n")
    made.do(made.settle("l", token, verdict("nack", "1", delay_seconds=9)))
    core.client.zadd(KEYS.delayed, {b"foreign": 1})
    state.fall_due(core.client, "orders", group="g")
    return promote_call(KEYS)


def redrive(core: Core) -> Call[Any]:
    made = group(core, *"ab")
    token, opened = made.opened("l", "n")
    made.do(made.settle("l", token, verdict("bury", "1-2", why=b"r\x1f\x1f")))
    ids = [entry[29:].split(b"\x1f")[0] for entry in opened.entries]
    targets = [Target(one, name) for one, name in zip(ids, (b"a", b"b"), strict=True)]
    return redrive_call(KEYS, Step(b"n", 1), targets, mark=9_000_000_000_000, patient=False)


def depth(core: Core) -> Call[Any]:
    made = group(core)
    core.client.xadd(KEYS.stream, {"data": "a"}, id="9000000000000-1")  # of a time at which its age is always 0
    return made.depth()


def peek(core: Core) -> Call[Any]:
    group(core, *"abc")
    return peek_call(KEYS, "pending", 2)


def browse(core: Core) -> Call[Any]:
    group(core, *"abc")
    return browse_group_call(KEYS, "", 0, "", max_values=2, max_bytes=1_000, whole=True)


def adopt(core: Core) -> Call[Any]:
    group(core, *"abc")
    ((_, entries),) = core.client.xreadgroup("g", "node", {KEYS.stream: ">"})
    ids = [entry for entry, _ in entries]
    core.client.xdel(KEYS.stream, ids[1])
    core.client.xclaim(KEYS.stream, "g", "node", 0, ids, idle=60_000, justid=True)
    return adopt_call(KEYS, Core(core.client, stale_seconds=10).rules)


def look_at_foreign_consumers(core: Core) -> Call[Any]:
    group(core, "a")
    return foreign_pending_call(KEYS, count=5)


def expire_leases(core: Core) -> Call[Any]:
    made = group(core, "a")
    made.opened("l", "n")
    core.client.hset(KEYS.lease(b"l"), "by", "c")
    return expire_leases_call(KEYS, b"c", [b"l"])


def find_unread(core: Core) -> Call[Any]:
    group(core, "a")
    ((entry, _),) = core.client.xrange(KEYS.stream)
    return next(cancel_operation(KEYS, b"n", [entry.decode(), "1-1", "none"]))  # type: ignore[return-value]


def ask_what_to_purge(core: Core) -> Call[Any]:
    group(core, *"abc")
    return purge_unread_call(KEYS, Step(b"n", 1))


def purge_unread(core: Core) -> Call[Any]:
    done = core.do(ask_what_to_purge(core))
    return purge_unread_call(KEYS, Step(b"n", 2), done.mark, done.bound)


def run_all(client: redis.Redis, do: Callable[[Call[Any]], Any]) -> None:
    """Make every call of these cases through `do`, each on a stream of its own."""
    core = Core(client)
    core.do = do  # type: ignore[method-assign]
    for prepare in CASES:
        client.delete(*client.keys("sluicegate:*:stream*"), *client.keys("sluicegate:*:group:*"), "none")
        do(prepare(core))


CASES = [
    claim, claim_nothing, ack, reap_a_poison_message, promote, redrive, depth, peek, browse, adopt,
    look_at_foreign_consumers, expire_leases, find_unread, ask_what_to_purge, purge_unread,
]  # fmt: skip
TOLD_ONCE = (reap_a_poison_message, promote, adopt, look_at_foreign_consumers, expire_leases)
TYPES = {
    "claim for a group": (claim, "pending counters"),
    "depth of a group": (depth, "pending"),
    "peek for a group": (peek, "source counters"),
    "browse_group": (browse, "stream counters"),
    "adopt": (adopt, "stream counters returned wakeup"),
    "foreign_pending": (look_at_foreign_consumers, "stream"),
    "expire_leases": (expire_leases, "leases wakeup lease"),
    "find_unread": (find_unread, "stream"),
    "purge_unread": (purge_unread, "stream counters receipt marker_counters buckets"),
}
