"""Reads what is in Redis without the library, and checks the invariants of a queue."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import redis

from sluicegate.core.entry import client_part, is_entry, split_entry
from sluicegate.core.keys import GroupKeys, QueueKeys, StreamKeys
from tests.support.blocks import entries_of, packed, slots_of

ROOT = re.compile(rb"^(sluicegate:\{[^{}]+\}:(?:group:[^:]+:)?)")  # of a queue and a stream, or of a group
WITHOUT_TTL = re.compile(
    rb"(pending|returned|delayed|leases|dead|dead:records|completed|failed|counters|bell|set_aside|tracking|"
    rb"tracking:ended|tracking:news|lease:.+|stream|stream:counters|stream:groups)"
)
WITH_TTL = re.compile(
    rb"(closed:.+|consumer:.+|markers:.*|moved|published:.+|run:.+|stage:.+|write:.+|"
    rb"stream:(moved|(markers|published|stage|write):.*))"
)


@dataclass
class Contents:
    """The stored values of one queue by state."""

    pending: list[bytes] = field(default_factory=list)  # the next one to be claimed comes first
    returned: list[bytes] = field(default_factory=list)
    delayed: list[bytes] = field(default_factory=list)
    in_flight: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)

    def ids(self) -> dict[str, list[str]]:
        return {
            state: [split_entry(value)[0].decode() for value in values if is_entry(value)]
            for state, values in vars(self).items()
        }


def read(client: redis.Redis, root: bytes) -> Contents:
    """Return everything that a queue holds."""
    in_flight = [
        value
        for key in client.scan_iter(match=_escaped(root) + b"lease:*", count=1000)
        for value in slots_of(client.hgetall(key)).values()
    ]
    return Contents(
        [entry for value in reversed(client.lrange(root + b"pending", 0, -1)) for entry in entries_of(value)],
        client.zrange(root + b"returned", 0, -1),
        client.zrange(root + b"delayed", 0, -1),
        in_flight,
        # The order of a hash means nothing, and changes by itself while Redis makes room in it.
        sorted(record.split(b"\x1f", 4)[4] for record in client.hvals(root + b"dead:records")),
    )


def contents(client: redis.Redis, queue: str) -> Contents:
    """Return everything that a queue holds, or the group `billing` where there is a stream of that name."""
    keys = keys_of(client, queue)
    found = read(client, keys.leases.removesuffix(b"leases"))
    if keys.group:
        found.pending = unread(client, keys)
    return found


def unread(client: redis.Redis, keys: QueueKeys) -> list[bytes]:
    """Return what a group has not read of its stream as entries without sequence and time, the oldest first."""
    positions = {info["name"].decode(): info["last-delivered-id"] for info in client.xinfo_groups(keys.pending)}
    return [
        b"%d%028d" % (2 if b"policy" in fields else 1, 0)
        + client_part(name, fields.get(b"key", b""), fields.get(b"headers", b""), fields[b"data"])
        for name, fields in client.xrange(keys.pending, b"(" + positions[keys.group])
    ]


def history(client: redis.Redis, queue: str, which: str) -> list[list[str]]:
    """Return the records of `completed` or `failed`, the newest first, without their times."""
    fields = {"completed": 1, "failed": 4}[which]
    found = []
    for record in client.lrange(getattr(keys_of(client, queue), which), 0, -1):
        _, *reported, entry = record.split(b"\x1f", fields)
        assert is_entry(entry)
        found.append([*(part.decode() for part in reported), split_entry(entry)[3].decode()])
    return found


def counters(client: redis.Redis, queue: str) -> dict[str, int]:
    """Return the totals of a queue, without the chain of its markers."""
    found = client.hgetall(keys_of(client, queue).counters)
    return {name.decode(): int(value) for name, value in found.items() if name != b"markers"}


def check(client: redis.Redis) -> None:
    """Assert the invariants of every queue of the database; they hold at any moment."""
    roots = {found.group(1) for key in client.scan_iter(count=1000) if (found := ROOT.match(key))}
    for root in roots:
        _check_leases(client, root)
        _check_one_place(client, root)
        _check_lives(client, root)
        assert client.lrange(root + b"bell", 0, -1) in ([], [b"1"], [b"2"], [b"1", b"2"])
        assert client.zcard(root + b"dead") == client.hlen(root + b"dead:records")


def dumps(client: redis.Redis) -> dict[bytes, object]:
    """Return every key with its type and value, without times to live, to compare before and after."""
    return {key: _value(client, key) for key in client.scan_iter(count=1000)}


def _value(client: redis.Redis, key: bytes) -> object:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"hash":
            return client.hgetall(key)
        case b"zset":
            return client.zrange(key, 0, -1, withscores=True)
        case b"set":
            return client.smembers(key)
        case b"stream":
            return client.xrange(key), client.xinfo_groups(key)
        case other:
            return other


def _check_leases(client: redis.Redis, root: bytes) -> None:
    names = {key.removeprefix(root + b"lease:") for key in client.scan_iter(match=_escaped(root) + b"lease:*")}
    assert names == set(client.zrange(root + b"leases", 0, -1)), "every open lease has a deadline, and only those"
    held = 0
    for name in names:
        lease = client.hgetall(root + b"lease:" + name)
        slots = len(slots_of(lease))
        assert slots > 0, "an open lease holds something"
        assert slots == int(lease[b"m"].split()[5]), "a lease knows how many slots it holds"
        held += slots
    assert held == int(client.hget(root + b"counters", "in_flight") or 0), "the gauge equals the leases"
    waiting = client.lrange(root + b"pending", 0, -1) if client.type(root + b"pending") == b"list" else []
    assert packed(waiting) == int(client.hget(root + b"counters", "packed") or 0), "the gauge equals the blocks"
    aside = int(client.hget(root + b"counters", "set_aside") or 0)
    assert client.zcard(root + b"set_aside") == aside, "the gauge equals what is set aside"


def _check_one_place(client: redis.Redis, root: bytes) -> None:
    places = Counter(name for names in read(client, root).ids().values() for name in names)
    assert [name for name, count in places.items() if count > 1] == [], "a message is in one place"


def _check_lives(client: redis.Redis, root: bytes) -> None:
    for key in client.scan_iter(match=_escaped(root) + b"*", count=1000):
        suffix = key.removeprefix(root)
        if suffix.startswith(b"group:"):
            continue  # it is checked by itself
        if client.pttl(key) == -1:
            assert WITHOUT_TTL.fullmatch(suffix), f"{key!r} lives for ever"
        else:
            assert WITH_TTL.fullmatch(suffix), f"{key!r} ends by itself"


def _escaped(root: bytes) -> bytes:
    return re.sub(rb"([\[\]*?\\])", rb"\\\1", root)


def keys_of(client: redis.Redis, queue: str) -> QueueKeys:
    """Return the keys of a queue; those of the group `billing` where there is a stream of that name."""
    return GroupKeys(queue, "billing") if client.exists(StreamKeys(queue).stream) else QueueKeys(queue)


def expire(client: redis.Redis, queue: str, *names: str, group: str = "") -> None:
    """Expire the leases of these ids, or all leases, as the passing of time would."""
    keys = GroupKeys(queue, group) if group else keys_of(client, queue)
    members = [keys.lease_name(name) for name in names] or client.zrange(keys.leases, 0, -1)
    for member in members:
        assert client.zadd(keys.leases, {member: _now_ms(client) - 1}, xx=True, ch=True) == 1


def fall_due(client: redis.Redis, queue: str, *, group: str = "") -> int:
    """Make all delayed messages due, in their order; return how many."""
    key = (GroupKeys(queue, group) if group else keys_of(client, queue)).delayed
    members = client.zrange(key, 0, -1)
    now = _now_ms(client)
    if members:
        client.zadd(key, {member: now - len(members) + at for at, member in enumerate(members)}, xx=True)
    return len(members)


def forget_end(client: redis.Redis, queue: str, name: str) -> None:
    """Expire the record of how a lease ended."""
    assert client.delete(keys_of(client, queue).closed(QueueKeys.lease_name(name))) == 1


def _now_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000
