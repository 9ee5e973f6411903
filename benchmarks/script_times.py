"""How long one call of each script keeps Redis busy: with 1,000 messages of 1 kB, and with all that it may carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import redis

from benchmarks.measure import median
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from sluicegate import Lease, RedisMessageQueue
from sluicegate.consumer import QueueConsumer
from sluicegate.core import scripts
from sluicegate.core.call import Call, alone
from sluicegate.core.keys import GroupKeys
from sluicegate.core.transitions.examine import examine_operation
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.jobs import RedisJobQueue
from sluicegate.spark.transitions import browse_group_call, stage_rows_call
from sluicegate.streams import RedisStreamQueue
from tests.support.servers import RedisServer, programs
from tests.support.waiting import wait_until

__all__ = ["run", "steps"]

_QUEUE = "times"
_LOG = 100_000
_CALL_BYTES, _PAGE_BYTES = 8_000_000, 4_000_000
_numbers = count()


@dataclass(frozen=True, slots=True)
class Load:
    """So many messages of one size."""

    messages: int
    size_bytes: int

    def payloads(self) -> list[str]:
        """Return payloads that no other call returns."""
        return [f"{next(_numbers):0{self.size_bytes}}" for _ in range(self.messages)]


_USUAL = "1,000 of 1 kB"
_LOADS = {
    _USUAL: (Load(1000, 1000),),
    # Blocks and single messages of 8 MB, the most messages of a lease, and few large ones.
    "the largest calls": (Load(1000, 7900), Load(1000, 8300), Load(10_000, 800), Load(9, 1_000_000)),
}
_LIMITS_MS = {name: 10 if name == _USUAL else 50 for name in _LOADS}
Times = dict[str, float]


def steps(settings: Settings) -> Iterator[Step]:
    """Yield one step, which makes every call with every load."""
    yield "scripts", lambda: _found(run(rounds=settings["limit_rounds"]), settings["limit_rounds"])


def run(*, rounds: int) -> dict[str, Times]:
    """Return the longest call of each script in milliseconds, by load: the median of the rounds."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in _LOADS}
    for _ in range(rounds):
        for name, loads in _LOADS.items():
            longest: Times = {}
            for load in loads:
                for script, took in _longest(load).items():
                    longest[script] = max(longest.get(script, 0), took)
            for script, took in longest.items():
                found[name][script].append(took)
    return {name: {script: median(times) for script, times in each.items()} for name, each in found.items()}


def _found(times: dict[str, Times], rounds: int) -> Found:
    named = sorted({script for each in times.values() for script in each})
    figures: Figures = {
        script: {f"ms, {name}": each[script] for name, each in times.items() if script in each} for script in named
    }
    bars = []
    for name, each in times.items():
        script = max(each, key=lambda one: each[one])
        detail = f"{script}; the longest call of each of {len(each)} scripts, median of {rounds} rounds"
        bars.append(Bar(f"longest script, {name}", "fast", each[script], _LIMITS_MS[name], False, "ms", detail))
    return Found({"Scripts, longest call": figures}, bars)


def _longest(load: Load) -> Times:
    """Run every scenario on a server of its own, and return the longest call of each script."""
    longest: Times = {}
    names = {script.sha: name for name, script in scripts.load_all().items()}
    for scenario in (_plain, _keyed, _recorded, _streamed, _with_jobs):
        server = RedisServer(programs()[0]).start()
        try:
            with server.client() as client:
                client.config_set("slowlog-max-len", _LOG)
                client.config_set("slowlog-log-slower-than", 0)
                scenario(client, load)
                for entry in client.slowlog_get(_LOG):
                    command, sha, *_ = [*entry["command"].split(b" ", 2), b""]
                    if command == b"EVALSHA" and sha in names:
                        longest[names[sha]] = max(longest.get(names[sha], 0), entry["duration"] / 1000)
        finally:
            server.remove()
    return longest


def _plain(client: redis.Redis, load: Load) -> None:
    with closing(RedisMessageQueue(_QUEUE, client=client)) as queue:
        _moves(queue, lambda: queue.publish_many(load.payloads()).ids, load)
        rows = [one.encode() for one in load.payloads()]
        for first in range(0, len(rows), step := max(1, min(1000, _CALL_BYTES // load.size_bytes))):
            _call(queue, stage_rows_call(queue.session.keys, b"w", first, rows[first : first + step], life_seconds=60))


def _keyed(client: redis.Redis, load: Load) -> None:
    """Markers that end with their messages, and duplicates."""
    options: dict[str, Any] = {"get_deduplication_key": lambda payload: payload[-16:]}
    with closing(RedisMessageQueue(_QUEUE, client=client, deduplication_policy="until_acked", **options)) as queue:
        payloads = load.payloads()
        queue.publish_many(payloads)
        again = queue.publish_many(payloads)
        mixed = queue.publish_many([one for pair in zip(payloads, load.payloads(), strict=True) for one in pair])
        assert (again.accepted, mixed.accepted) == (0, load.messages)
        queue.purge("pending")
        _moves(queue, lambda: queue.publish_many(load.payloads()).ids, load)


def _recorded(client: redis.Redis, load: Load) -> None:
    """Histories, and one message at a time."""
    with closing(
        RedisMessageQueue(_QUEUE, client=client, enable_completed_queue=True, enable_failed_queue=True)
    ) as queue:
        _moves(queue, lambda: queue.publish_many(load.payloads()).ids, load)
        queue.publish_many(load.payloads())
        _each(queue, load, lambda lease: lease.ack())
        queue.publish_many(load.payloads())
        _each(queue, load, lambda lease: lease.nack(delay_seconds=60, error=ValueError("x" * 1000)))
        queue.peek(load.messages, state="completed")
        queue.peek(load.messages, state="failed")
        queue.purge("completed")
        queue.publish_many(load.payloads()[:20])
        for message in queue.consume(wait_seconds=0):
            assert message.payload


def _moves(queue: RedisMessageQueue, publish: Callable[[], list[str]], load: Load) -> None:
    """Move messages through every state."""
    runner, keys = queue.session.runner, queue.session.keys
    publish()
    queue.peek(load.messages)
    queue.peek(load.messages, offset=load.messages // 2)
    queue.depth()
    queue.stats()
    runner.run(examine_operation(keys))
    for _ in range(2):  # the second takes the first over
        lease = queue.claim(
            load.messages, lease_id="r/0", take_over_after_seconds=0, lease_seconds=3600, heartbeat=False
        )
    _call(queue, manifest_call(keys, keys.lease_name("r/0"), 1, len(lease)))
    queue.peek(load.messages, state="in_flight")
    lease.ack(lease.messages[::2])
    if len(lease) > 1:
        lease.nack(error=ValueError("x" * 1000))
    _each(queue, load, lambda lease: lease.nack())
    queue.peek(load.messages, state="returned")
    _each(queue, load, lambda lease: lease.release())
    queue.purge("returned")
    queue.cancel(publish()[::2])
    queue.purge("pending")
    ids = publish()
    _each(queue, load, lambda lease: lease.nack(delay_seconds=3600))
    queue.peek(load.messages, state="delayed")
    queue.cancel(ids[::2])
    queue.purge("delayed")
    ids = publish()
    _each(queue, load, lambda lease: lease.nack())
    queue.cancel(ids)
    publish()
    _each(queue, load, lambda lease: lease.nack(delay_seconds=0.001))
    wait_until(lambda: queue.depth().due == queue.depth().delayed, "all are due")
    _each(queue, load, lambda lease: lease.bury())
    queue.peek(load.messages, state="dead")
    queue.redrive()
    _each(queue, load, lambda lease: lease.bury(reason="r" * 500))
    queue.purge("dead")
    publish()
    _each(queue, load, lambda lease: lease.extend(0.001))
    wait_until(lambda: queue.depth().in_flight == queue.depth().expired, "all leases have expired")
    _each(queue, load, lambda lease: lease.ack())
    queue.repair()


def _streamed(client: redis.Redis, load: Load) -> None:
    with RedisStreamQueue(_QUEUE, client=client, get_deduplication_key=lambda one: one[-16:], max_length=100) as stream:
        group = stream.group("billing")
        group.create("beginning")
        payloads = load.payloads()
        ids = stream.publish_many(payloads).ids
        assert stream.publish_many(payloads).accepted == 0
        stream.peek(load.messages)
        group.peek(load.messages)
        keys = group.session.keys
        assert isinstance(keys, GroupKeys)
        for whole in (True, False):
            _call(group, browse_group_call(keys, "", 0, "", max_values=10_000, max_bytes=_PAGE_BYTES, whole=whole))
        stream.cancel(ids[::2])
        _each(group, load, lambda lease: lease.nack())
        _each(group, load, lambda lease: lease.ack())
        stream.publish_many(load.payloads())
        client.xreadgroup("billing", "another", {stream.key.stream: ">"}, count=load.messages // 2)
        group.remove_consumer("another")
        group.depth()
        group.purge("pending")
        stream.trim()
        stream.info()


def _with_jobs(client: redis.Redis, load: Load) -> None:
    with RedisJobQueue(_QUEUE, client=client) as jobs:
        ids = jobs.enqueue_many([{"text": one} for one in load.payloads()], kind="k").ids
        jobs.get_many(ids)
        jobs.cancel(ids[::2])
        while lease := jobs.claim_jobs(load.messages, lease_seconds=3600):
            lease.complete_many({job: {"text": "x" * min(load.size_bytes, 60_000)} for job in lease.jobs})
        jobs.get_many(ids)
        jobs.list("completed", limit=1000)
        jobs.batch([{"text": one, "kind": "k"} for one in load.payloads()])


def _call(queue: QueueConsumer, call: Call[Any]) -> None:
    queue.session.runner.run(alone(call))


def _each(queue: QueueConsumer, load: Load, settle: Callable[[Lease], None]) -> None:
    """Claim all that may be claimed, in leases that stay open meanwhile, and settle each."""
    leases = []
    while lease := queue.claim(load.messages, lease_seconds=3600, heartbeat=False):
        leases.append(lease)
    while leases:
        settle(leases.pop())
