"""Reads and writes deduplication markers without the library's scripts."""

from __future__ import annotations

import redis

from sluicegate.core.keys import QueueKeys
from sluicegate.core.marker_chain import Generation, field_of

HOUR_MS = 3_600_000


def now_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def known(client: redis.Redis, keys: QueueKeys) -> tuple[Generation, ...]:
    """Learn the chain as it is stored, and return its generations."""
    keys.markers.learn(client.hget(keys.marker_counters, "markers") or b"")
    return keys.markers.generations


def _found(client: redis.Redis, keys: QueueKeys, key: bytes) -> list[tuple[bytes, bytes]]:
    """Return bucket and value of a key's markers, the newest generation first."""
    field = field_of(key)
    buckets = [keys.markers.bucket(one, field) for one in reversed(known(client, keys))]
    return [(bucket, value) for bucket in buckets if (value := client.hget(bucket, field)) is not None]


def owner(client: redis.Redis, keys: QueueKeys, key: bytes) -> bytes | None:
    """Return what holds a key, in its encoded form; None if it is free."""
    now = now_ms(client)
    return next((value[12:] for _, value in _found(client, keys, key) if int(value[:12], 16) > now), None)


def left_ms(client: redis.Redis, keys: QueueKeys, key: bytes) -> int:
    """Return how long a key is still held; 0 if it is free."""
    now = now_ms(client)
    return max([int(value[:12], 16) - now for _, value in _found(client, keys, key)], default=0)


def held(client: redis.Redis, keys: QueueKeys) -> dict[bytes, bytes]:
    """Return every marker that is held: its field and its owner."""
    now, found = now_ms(client), dict[bytes, bytes]()
    for generation in known(client, keys):
        for bucket in keys.markers.bucket_names(generation):
            for field, value in client.hgetall(bucket).items():
                if int(value[:12], 16) > now:
                    found[field] = value[12:]
    return found


def hold(client: redis.Redis, keys: QueueKeys, key: bytes, by: str | bytes, *, px: int = HOUR_MS) -> None:
    """Let something hold a key for so long, whatever holds it now."""
    release(client, keys, key)
    until = now_ms(client) + px
    fitting = [one for one in known(client, keys) if one.until_ms >= until]
    if not fitting:
        rotate(client, keys, span_ms=px)
        fitting = [known(client, keys)[-1]]
    bucket = keys.markers.bucket(fitting[-1], field_of(key))
    client.hset(bucket, field_of(key), b"%012x" % until + (by.encode() if isinstance(by, str) else by))
    client.pexpireat(bucket, fitting[-1].until_ms)


def release(client: redis.Redis, keys: QueueKeys, key: bytes) -> int:
    """Free a key, and return how many markers it had."""
    return sum(client.hdel(bucket, field_of(key)) for bucket, _ in _found(client, keys, key))


def shorten(client: redis.Redis, keys: QueueKeys, key: bytes, *, px: int) -> None:
    """Let the markers of a key expire at this distance from now."""
    for bucket, value in _found(client, keys, key):
        client.hset(bucket, field_of(key), b"%012x" % (now_ms(client) + px) + value[12:])


def rotate(client: redis.Redis, keys: QueueKeys, *, span_ms: int = HOUR_MS, bits: int = 0) -> None:
    """Open another generation, as a publish does when the newest one is too old or too full."""
    now = now_ms(client)
    stored = client.hget(keys.marker_counters, "markers") or b""
    number = max([one.number for one in known(client, keys)], default=0) + 1 if stored else 1
    item = b"%d:%d:%d:%d;" % (number, bits, span_ms, now + 2 * span_ms)
    client.hset(keys.marker_counters, "markers", stored + item)
    known(client, keys)
