"""The prepared calls with little to say: one queue, one gateway, ids and nonces chosen by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import redis

from sluicegate import RedisGateway
from sluicegate.core import calls, replies
from sluicegate.core.call import Call
from sluicegate.core.entry import client_part
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import Batch, ClaimRequest, SettleRequest, Terms, Verb, VerdictGroup

T = TypeVar("T")


class Core:
    """Makes calls on one queue and executes them once, without retries."""

    def __init__(self, client: redis.Redis, queue: str = "orders", *, most: int = 10) -> None:
        self.client = client
        self.queue = queue
        self.keys = QueueKeys(queue)
        self.terms = Terms(most_deliveries=most)
        self.gateway = RedisGateway(redis_client=client, retry_budget_seconds=0)

    def do(self, call: Call[T]) -> T:
        return self.gateway.execute(call, retry=False)

    def publish(
        self,
        batch: str,
        *names: str,
        keyed: bool = False,
        window: float = 3600,
        receipt: float = 600,
        oldest: float = 500,
        age: float = 0,
    ) -> Call[replies.Published]:
        """Messages whose payload, and deduplication key, is their name."""
        parts = [client_part(b"", name.encode() if keyed else b"", b"", name.encode()) for name in names]
        markers = [self.keys.dedup(name.encode()) for name in names] if keyed else []
        made = Batch(
            batch.encode(),
            parts,
            markers,
            window_seconds=window if keyed else 0,
            receipt_seconds=0 if keyed else receipt,
            oldest_seconds=oldest,
        )
        return calls.publish(self.keys, made, age_seconds=age)

    def claim(
        self,
        lease: str,
        nonce: str,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        takeover: bytes = b"",
        tidy: bool = True,
        remember_empty: bool = False,
    ) -> Call[replies.ClaimReply]:
        request = ClaimRequest(
            self.keys.lease_name(lease), nonce.encode(), limit, lease_seconds, 3600, 600 if remember_empty else 0
        )
        return calls.claim(self.keys, self.terms, request, takeover=takeover, tidy=tidy)

    def opened(self, lease: str, nonce: str, limit: int = 10, **options: object) -> tuple[bytes, replies.Opened]:
        """Claim, which must open or adopt; returns the token and the reply."""
        reply = self.do(self.claim(lease, nonce, limit, **options))  # type: ignore[arg-type]
        assert isinstance(reply, replies.Opened), reply
        return nonce.encode() + b":" + reply.opening, reply

    def settle(
        self, lease: str, token: bytes, *groups: VerdictGroup, recorded: bool = True, held_seconds: float = 0
    ) -> Call[replies.Settled]:
        request = SettleRequest(self.keys.lease_name(lease), token, 3600, recorded, groups)
        return calls.settle(self.keys, self.terms, request, held_seconds=held_seconds)

    def extend(self, lease: str, token: bytes, seconds: float = 60, longest: float = 0) -> Call[replies.Extended]:
        name = self.keys.lease_name(lease)
        return calls.extend(self.keys, name, token, lease_seconds=seconds, longest_seconds=longest)

    def reap(self, lease: str, step: int = 500) -> Call[replies.Reaped]:
        return calls.reap(self.keys, self.terms, self.keys.lease_name(lease), step=step)

    def promote(self, step: int = 1000) -> Call[int]:
        return calls.promote(self.keys, step=step)

    def depth(self, expired: Sequence[bytes] = ()) -> Call[replies.Counted]:
        return calls.depth(self.keys, expired)


def verdict(verb: Verb, slots: str, **options: object) -> VerdictGroup:
    return VerdictGroup(verb, slots, **options)  # type: ignore[arg-type]


def ids(reply: replies.ClaimReply) -> list[str]:
    """The names of the messages of an open lease."""
    assert isinstance(reply, replies.Opened), reply
    return [entry.rsplit(b"\x1f", 1)[1].decode() for entry in reply.entries]
