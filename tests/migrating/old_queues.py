"""Write what other libraries store, key by key, as their own code would."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import redis


def now_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


class OldMessageQueue:
    """The keys of a queue of redis-message-queue 2 to 11."""

    def __init__(self, client: redis.Redis, name: str = "orders", separator: str = "::") -> None:
        self.client = client
        self.root = f"{name}{separator}"
        self.separator = separator

    def key(self, suffix: str) -> str:
        return self.root + suffix

    @staticmethod
    def envelope(payload: str) -> bytes:
        return b"\x1eRMQ1:" + json.dumps({"id": uuid.uuid4().hex, "payload": payload}, separators=(",", ":")).encode()

    def publish(self, *payloads: str, raw: bool = False) -> None:
        values = [payload.encode() if raw else self.envelope(payload) for payload in payloads]
        for first in range(0, len(values), 5000):
            self.client.lpush(self.key("pending"), *values[first : first + 5000])

    def claim(self, *, deadline_in_ms: int | None = 300_000, count: int = 1) -> bytes:
        """Move the oldest value into processing, with a deadline unless there is no visibility timeout."""
        value: Any = self.client.lmove(self.key("pending"), self.key("processing"), "RIGHT", "LEFT")
        if deadline_in_ms is not None:
            claimed = self.key("processing")
            self.client.zadd(f"{claimed}:lease_deadlines", {value: now_ms(self.client) + deadline_in_ms})
            self.client.hset(f"{claimed}:lease_tokens", value, "17")
            self.client.hset(f"{claimed}:delivery_counts", value, str(count))
            self.client.set(f"{claimed}:claim_result:{uuid.uuid4().hex}", "[]", px=300_000)
        assert isinstance(value, bytes)
        return value

    def end(self, suffix: str, *payloads: str) -> None:
        """Add raw payloads to `completed`, `failed` or a list of dead letters."""
        self.client.lpush(self.key(suffix), *payloads)

    def hold(self, key: str, seconds: int = 1800) -> None:
        self.client.set(self.key(f"deduplication{self.separator}{key}"), "", ex=seconds)


class OldJobQueue:
    """The keys of the job queue of Redis's tutorial."""

    def __init__(self, client: redis.Redis, name: str = "queue:jobs") -> None:
        self.client = client
        self.name = name

    def enqueue(self, payloads: Iterable[Any], **fields: Any) -> list[str]:
        ids = []
        pipe = self.client.pipeline(transaction=False)
        for payload in payloads:
            ids.append(uuid.uuid4().hex[:16])
            content = {
                "id": ids[-1],
                "payload": json.dumps(payload),
                "status": "pending",
                "attempts": 0,
                "enqueued_at_ms": 1_715_441_000_000 + len(ids),
                "claim_token": "",
                **fields,
            }
            pipe.hset(f"{self.name}:job:{ids[-1]}", mapping=content)
            pipe.lpush(f"{self.name}:pending", ids[-1])
        pipe.execute()
        return ids

    def claim(self, ms_ago: int) -> str:
        job_id: Any = self.client.lmove(f"{self.name}:pending", f"{self.name}:processing", "RIGHT", "LEFT")
        key = f"{self.name}:job:{job_id.decode()}"
        claimed = now_ms(self.client) - ms_ago
        self.client.hset(key, mapping={"status": "processing", "claimed_at_ms": claimed, "claim_token": "b3"})
        self.client.hincrby(key, "attempts", 1)
        return str(job_id.decode())

    def end(self, status: str, **fields: Any) -> str:
        """End the oldest pending job, and return its id."""
        job_id: Any = self.client.lmove(f"{self.name}:pending", f"{self.name}:{status}", "RIGHT", "LEFT")
        key = f"{self.name}:job:{job_id.decode()}"
        self.client.hset(key, mapping={"status": status, "attempts": 3, "completed_at_ms": 1_715_441_000_456, **fields})
        self.client.expire(key, 300)
        return str(job_id.decode())
