"""A careless command, a wrong restore or a newer version may put these values at a queue's keys."""

from __future__ import annotations

from collections.abc import Callable

import redis

from tests.support.core_calls import Core, verdict

NEWER = b"9" + b"0" * 11 + b"7" + b"0" * 16 + b"b-9\x1fk\x1f\x1f{}\x1f{}"
"""A message in a format that this version does not know."""
VALUES = {
    "nothing": b"",
    "text": b"garbage",
    "bytes": b"\xff\xfe\x00\x1f\x1f\x1f\x1f\x1f",
    "number": b"99999999999999999999",
    "infinity": b"inf",
    "zero": b"0",
    "negative": b"-5",
    "json": b'{"how": 5, "token": [], "reply": {}, "step": "x", "acked": "y"}',
    "deep json": b"[" * 5000,
    "null": b"null",
    "ranges": b"1-99999,5-",
    "endless ranges": b"1-999999999999",
    "half an entry": b"1" + b"0" * 28 + b"id",
    "an entry with no UTF-8": b"2" + b"0" * 28 + b"\xff\xfe\x1f\xff\x1f{broken\x1fx",
    "an entry of silly numbers": b"1" + b"f" * 28 + b"id\x1f\x1f\x1fx",
    "a newer entry": NEWER,
}
SCORES = ("-inf", "inf", "1e300", "-5", "0.5", "0")
LEASE_WORDS = (
    "garbage", "", "n:1-1", "- 1 1 0 4 4 60000 1 0", "n:1-1 1 1 0 4 4 0 1 0", "n:1-1 1 1 0 99999999 4 60000 1 0",
    "n:1-1 1 1 0 4 99 60000 1 0", "n:1-1 1 1 0 1 1 60000 1 0", "n:1-1 1 1 0 4 0 60000 1 0",
    "n:1-1 99999999999999999999 1 9999999 4 4 99999999999999999999 1 0", "n 1 1 0 4 4 60000 1 0",
    "n:1-1 1 1 0 9 9 60000 1 0",
)  # fmt: skip
Damage = Callable[[Core], object]


def busy(core: Core) -> bytes:
    """Put messages into every state and both histories, and hold four of them in a lease; return its token."""
    core.rules = type(core.rules)(max_delivery_count=10, completed_cap=0, failed_cap=0)
    core.do(core.publish("b", *"abcdefghij"))
    core.do(core.publish("k", "k", keyed=True))
    first, _ = core.opened("first", "n", 5)
    core.do(
        core.settle(
            "first",
            first,
            verdict("ack", "1"),
            verdict("nack", "2"),
            verdict("nack", "3", delay_seconds=1000),
            verdict("bury", "4-5"),
        )
    )
    core.client.zremrangebyrank(core.keys.returned, 0, -1)  # the lease is to take fresh ones
    token, _ = core.opened("l", "n", 4)
    core.client.zadd(core.keys.returned, {core.client.zrange(core.keys.delayed, 0, 0)[0]: 3})
    return token


def matrix() -> dict[str, Damage]:
    """Return, by name, a function for every key of a queue and every wrong value."""
    made: dict[str, Damage] = {}
    for name, value in VALUES.items():
        made |= {
            f"pending: {name}": lambda core, v=value: core.client.rpush(core.keys.pending, v),
            f"bell: {name}": lambda core, v=value: core.client.rpush(core.keys.wakeup, v, v),
            f"completed: {name}": lambda core, v=value: core.client.lpush(core.keys.completed, v),
            f"failed: {name}": lambda core, v=value: core.client.lpush(core.keys.failed, v),
            f"set_aside: {name}": lambda core, v=value: core.client.zadd(core.keys.set_aside, {v: 1}),
            f"dead: {name}": lambda core, v=value: core.client.zadd(core.keys.dead, {v: 1}),
            f"dead:records: {name}": lambda core, v=value: _overwrite(core, core.keys.dead_records, v),
            f"leases: {name}": lambda core, v=value: core.client.zadd(core.keys.leases, {v: 1}),
            f"lease, a slot: {name}": lambda core, v=value: _in_lease(core, {"1": v}),
            f"lease, all slots: {name}": lambda core, v=value: _in_lease(core, dict.fromkeys("1234", v)),
            f"lease, another field: {name}": lambda core, v=value: _in_lease(core, {"odd": v, "77": v}),
            f"lease, what it says: {name}": lambda core, v=value: _in_lease(core, {"m": v}),
            f"lease, what has left it: {name}": lambda core, v=value: _in_lease(
                core, {"returned": v, "buried": v, "left": v, "from": v, "fenced": v, "by": v}
            ),
            f"the end of a lease: {name}": lambda core, v=value: core.client.set(core.keys.closed(b"l"), v),
            f"counters: {name}": lambda core, v=value: _overwrite(core, core.keys.counters, v),
            f"marker: {name}": lambda core, v=value: _overwrite_marker(core, v),
        }
        for zset in ("returned", "delayed"):
            made[f"{zset}: {name}"] = lambda core, z=zset, v=value: core.client.zadd(getattr(core.keys, z), {v: 1})
    for score in SCORES:
        for zset in ("returned", "delayed", "leases", "dead", "set_aside"):
            made[f"{zset}: score {score}"] = lambda core, z=zset, s=score: _rescore(core, getattr(core.keys, z), s)
    for words in LEASE_WORDS:
        made[f"lease: {words}"] = lambda core, w=words: _in_lease(core, {"m": w})
    made["lease without m"] = lambda core: core.client.hdel(core.keys.lease(b"l"), "m")
    made["lease without slots"] = lambda core: core.client.hdel(core.keys.lease(b"l"), *"1234")
    made["lease without a slot"] = lambda core: core.client.hdel(core.keys.lease(b"l"), "1")
    made["lease without a deadline"] = lambda core: core.client.zrem(core.keys.leases, "l")
    for key in ("leases", "counters", "dead", "dead_records", "wakeup"):
        made[f"no {key}"] = lambda core, k=key: core.client.delete(getattr(core.keys, k))
    made["no lease"] = lambda core: core.client.delete(core.keys.lease(b"l"))
    return made


def applies(core: Core, damage: str) -> bool:
    """Return whether a queue can be damaged so, or a group, whose pending messages are in a stream."""
    return not core.keys.group or not damage.startswith("pending:")


def _in_lease(core: Core, fields: dict[str, bytes | str]) -> None:
    core.client.hset(core.keys.lease(b"l"), mapping=fields)


def _overwrite(core: Core, key: bytes, value: bytes) -> None:
    client: redis.Redis = core.client
    client.hset(key, mapping=dict.fromkeys([*client.hkeys(key), value or b"new"], value))


def _overwrite_marker(core: Core, value: bytes) -> None:
    core.learn()
    for one in core.keys.markers.generations:
        core.client.hset(core.keys.markers.bucket(one, b"k"), "k", value)


def _rescore(core: Core, key: bytes, score: str) -> None:
    client: redis.Redis = core.client
    client.zadd(key, {**dict.fromkeys(client.zrange(key, 0, -1), score), b"garbage": score})
