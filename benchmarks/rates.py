"""Messages per second: the queue beside a bare redis-py loop that does the same, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import redis
from redis.client import NEVER_DECODE

from benchmarks.measure import Sample, measured, median
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, Order, orders
from benchmarks.report import Bar
from sluicegate import RedisMessageQueue
from sluicegate.core import scripts
from sluicegate.core.block import Block
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import ClaimRequest, claim_call
from sluicegate.core.transitions.settle import SettleRequest, ack_whole_call

__all__ = ["Rates", "run"]

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
_RAW: dict[str, Any] = {NEVER_DECODE: True}
_TERMS = QueueRules(max_delivery_count=10)
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Rates:
    """Samples by name, one per round, and the messages of each."""

    count: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, []).append(sample)

    def ratio(self, ours: str, bare: str) -> float:
        """Return how many times as fast as the bare loop: the median over the rounds."""
        pairs = zip(self.samples[ours], self.samples[bare], strict=True)
        return median(bare_sample.wall / our_sample.wall for our_sample, bare_sample in pairs)

    def figures(self) -> dict[str, dict[str, float]]:
        """Medians per message."""
        return {name: self._figures(samples, self._messages(name)) for name, samples in self.samples.items()}

    def bars(self, mode: Literal["fast", "plain"], where: str) -> list[Bar]:
        rounds = len(self.samples["publish_many"])
        how = f"median of {rounds} rounds of {self.count:,}, {where}"
        table = Bar(
            "publish_table / bare SET NX PX + LPUSH",
            mode,
            self.ratio("publish_table", "bare pipeline"),
            6,
            True,
            "x",
            how,
        )
        return [
            *([table] if mode == "fast" else []),
            Bar(
                "publish_many / bare SET NX PX + LPUSH",
                mode,
                self.ratio("publish_many", "bare pipeline"),
                4.5 if mode == "fast" else 2,
                True,
                "x",
                how,
            ),
            Bar(
                "claim + JSON + ack / bare EVALSHA",
                mode,
                self.ratio("claim+json+ack", "bare evalsha"),
                0.6,
                True,
                "x",
                how,
            ),
        ]

    def _messages(self, name: str) -> int:
        return _singles_of(self.count) if name.startswith("single") else self.count

    @staticmethod
    def _figures(samples: list[Sample], count: int) -> dict[str, float]:
        return {
            "messages/s": count / median(sample.wall for sample in samples),
            "client CPU µs": 1e6 * median(sample.client_cpu for sample in samples) / count,
            "Redis CPU µs": 1e6 * median(sample.redis_cpu for sample in samples) / count,
        }


def run(client: redis.Redis, *, rounds: int, count: int, encode: Encode, decode: Decode) -> Rates:
    """Measure every way of publishing and of claiming in turn, `rounds` times; even rounds go the other way about."""
    rates, messages = Rates(count), orders(count)
    queue = RedisMessageQueue(QUEUE, client=client, get_deduplication_key=KEY_FIELD)
    bare = _Bare(client, count, encode, decode)
    for number in range(rounds + 1):
        sides = [partial(_ours, rates, client, queue, messages), partial(_bare, rates, client, queue, bare, messages)]
        for side in sides if number % 2 else sides[::-1]:
            side()
        _singles(rates, client, queue, messages[: _singles_of(count)])
        if number == 0:  # the first round loads scripts and fills caches
            rates.samples.clear()
    queue.close()
    return rates


def _ours(rates: Rates, client: redis.Redis, queue: RedisMessageQueue, messages: list[Order]) -> None:
    client.flushall()
    with measured(client) as sample:
        report = queue.publish_many(messages)
    assert report.accepted == len(messages)
    rates.add("publish_many", sample)
    with measured(client) as sample:
        drained = _drain(queue)
    assert drained == len(messages)
    rates.add("claim+json+ack", sample)
    table = pa.Table.from_pylist(messages)
    client.flushall()
    with measured(client) as sample:
        report = queue.publish_table(table)
    assert report.accepted == len(messages)
    rates.add("publish_table", sample)


def _bare(rates: Rates, client: redis.Redis, queue: RedisMessageQueue, bare: _Bare, messages: list[Order]) -> None:
    client.flushall()
    with measured(client) as sample:
        bare.publish(messages)
    assert client.llen("bare:pending") == len(messages)
    rates.add("bare pipeline", sample)
    client.flushall()
    queue.publish_many(messages)
    bare.prepare()
    with measured(client) as sample:
        drained = bare.drain()
    assert drained == len(messages)
    rates.add("bare evalsha", sample)


def _singles(rates: Rates, client: redis.Redis, queue: RedisMessageQueue, messages: list[Order]) -> None:
    client.flushall()
    with measured(client) as sample:
        accepted = sum(queue.publish(message) for message in messages)
    assert accepted == len(messages)
    rates.add("single publish", sample)
    with measured(client) as sample:
        drained = _drain(queue, limit=1)
    assert drained == len(messages)
    rates.add("single claim+json+ack", sample)


def _singles_of(count: int) -> int:
    """Return how many of the messages are sent one by one."""
    return max(1, count // 20)


def _drain(queue: RedisMessageQueue, limit: int = BATCH) -> int:
    drained = 0
    while True:
        with queue.claim(limit) as lease:
            if not lease:
                return drained
            for message in lease:
                message.json()
            drained += len(lease)


class _Bare:
    """What somebody would write by hand, with no queue around it."""

    def __init__(self, client: redis.Redis, count: int, encode: Encode, decode: Decode) -> None:
        self._client, self._encode, self._decode = client, encode, decode
        self._keys = QueueKeys(QUEUE)
        self._leases = -(-count // BATCH)
        self._claims: list[tuple[ClaimRequest, Call[Any]]] = []
        for name in ("claim", "ack_whole"):
            client.script_load(scripts.load(name).text)

    def publish(self, messages: list[Order]) -> None:
        """Send a marker and a list entry per message, pipelined without MULTI; the replies of SET NX are ignored."""
        encode = self._encode
        for first in range(0, len(messages), BATCH):
            pipeline = self._client.pipeline(transaction=False)
            for message in messages[first : first + BATCH]:
                pipeline.set(f"bare:dedup:{message[KEY_FIELD]}", "1", nx=True, px=_HOUR_MS)
                pipeline.lpush("bare:pending", encode(message))
            pipeline.execute()

    def prepare(self) -> None:
        """Names and arguments of all claims, outside of the measured time."""
        requests = [
            ClaimRequest(b"bare-%d" % number, b"nonce-%d" % number, BATCH, 300, 3600) for number in range(self._leases)
        ]
        self._claims = [(request, claim_call(self._keys, _TERMS, request)) for request in requests]

    def drain(self) -> int:
        """EVALSHA, decode every payload, EVALSHA: no objects, no checks, no heartbeat."""
        drained, decode = 0, self._decode
        for request, claim in self._claims:
            reply = self._evalsha(claim)
            held = 0
            for value in reply[4]:
                payloads = self._payloads(value)
                for payload in payloads:
                    decode(payload)
                held += len(payloads)
            drained += held
            token = request.nonce + b":" + reply[1]
            ack = SettleRequest(request.name, token, request.keep_seconds, True, (), size=held)
            self._evalsha(ack_whole_call(self._keys, ack, held_seconds=0))
        return drained

    @staticmethod
    def _payloads(value: bytes) -> list[bytes]:
        if not Block.is_one(value):
            return [value.split(b"\x1f", 3)[3]]
        offsets, data = Block(value).payloads()
        ends = memoryview(offsets).cast("i")
        return [bytes(data[start:end]) for start, end in pairwise(ends)]

    def _evalsha(self, call: Call[Any]) -> Any:
        return self._client.execute_command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args, **_RAW)
