"""A job queue as the Redis documentation designs it, written anew for the comparison.

Its guide "Redis job queue with redis-py" stores a hash per job and moves ids between lists. An enqueue is one pipeline;
a claim is a BRPOPLPUSH and a pipeline; a completion is a script and a PUBLISH. So each job takes five round trips.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

import redis

__all__ = ["DocumentJob", "DocumentJobs"]

_TTL_SECONDS = 3600
_KEPT = 50
_COMPLETE = """
local record = KEYS[1] .. ARGV[1]
if redis.call('HGET', record, 'claim_token') ~= ARGV[2] then
  return 0
end
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', record, 'status', 'completed', 'completed_at_ms', ARGV[3], 'result', ARGV[4], 'claim_token', '')
redis.call('EXPIRE', record, ARGV[5])
redis.call('LPUSH', KEYS[3], ARGV[1])
redis.call('LTRIM', KEYS[3], 0, ARGV[6] - 1)
return 1
"""


@dataclass(frozen=True, slots=True)
class DocumentJob:
    """A claimed job."""

    id: str
    payload: dict[str, Any]
    attempts: int
    token: str


class DocumentJobs:
    """The parts of the design that a job passes through when nothing fails."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._client = client
        self._record = f"document:{name}:job:"
        self._pending, self._processing = f"document:{name}:pending", f"document:{name}:processing"
        self._completed, self._events = f"document:{name}:completed", f"document:{name}:events"
        self._script = client.register_script(_COMPLETE)

    def enqueue(self, payload: dict[str, Any]) -> str:
        job = secrets.token_hex(8)
        pipeline = self._client.pipeline()
        pipeline.hset(
            self._record + job,
            mapping={
                "id": job,
                "payload": json.dumps(payload),
                "status": "pending",
                "attempts": 0,
                "enqueued_at_ms": _now_ms(),
                "claim_token": "",
            },
        )
        pipeline.lpush(self._pending, job)
        pipeline.execute()
        return job

    def claim(self, timeout_seconds: float = 0.1) -> DocumentJob | None:
        job = self._client.brpoplpush(self._pending, self._processing, timeout=timeout_seconds)
        if job is None:
            return None
        token, record = secrets.token_hex(8), self._record + job
        pipeline = self._client.pipeline()
        pipeline.hset(record, mapping={"status": "processing", "claimed_at_ms": _now_ms(), "claim_token": token})
        pipeline.hincrby(record, "attempts", 1)
        pipeline.hgetall(record)
        meta = pipeline.execute()[2]
        return DocumentJob(job, json.loads(meta["payload"]), int(meta["attempts"]), token)

    def complete(self, job: DocumentJob, result: dict[str, Any]) -> bool:
        done = self._script(
            keys=[self._record, self._processing, self._completed],
            args=[job.id, job.token, _now_ms(), json.dumps(result), _TTL_SECONDS, _KEPT],
        )
        if not done:
            return False
        self._client.publish(self._events, json.dumps({"id": job.id, "status": "completed"}))
        return True


def _now_ms() -> int:
    return int(time.time() * 1000)
