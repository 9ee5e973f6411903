"""Prepared calls in short: on one queue and one gateway, with ids and nonces chosen by the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import redis

from sluicegate import RedisGateway
from sluicegate.core import scripts
from sluicegate.core.call import Call, ChainChanged
from sluicegate.core.entry import PREFIX_LENGTH, bound_keys, client_part, split_entry
from sluicegate.core.keys import GroupKeys, QueueKeys, StreamKeys
from sluicegate.core.ledger import Verb, VerdictGroup
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.ack_and_claim import OpenLease, Stepped, ack_and_claim_call
from sluicegate.core.transitions.claim import ClaimReply, ClaimRequest, Known, Opened, claim_call, claim_known_call
from sluicegate.core.transitions.depth import Depth, ExpiredPage, depth_call
from sluicegate.core.transitions.extend import Extended, extend_call
from sluicegate.core.transitions.promote import promote_call
from sluicegate.core.transitions.publish import Batch, Published, publish_call
from sluicegate.core.transitions.publish_to_stream import publish_to_stream_call
from sluicegate.core.transitions.reap import Reaped, reap_call
from sluicegate.core.transitions.settle import BLOCKS_OPENED, Settled, SettleRequest, ack_whole_call, settle_call
from tests.support import markers
from tests.support.blocks import slots_of, unpack_pending

T = TypeVar("T")
WEEK_MS = 7 * 86_400_000
_groups = {""}  # holds the name of the group that cores are of; "" for queues


@contextmanager
def on_groups() -> Iterator[None]:
    """Let every `Core` that is made meanwhile work on the group `billing` of a stream instead of on a queue."""
    _groups.add("billing")
    yield
    _groups.discard("billing")


class Core:
    """Makes calls on one queue and executes them once, without retries."""

    def __init__(self, client: redis.Redis, queue: str = "orders", *, most: int = 10, **rules: Any) -> None:
        self.client = client
        self.queue = queue
        group = max(_groups)
        self.keys = GroupKeys(queue, group) if group else QueueKeys(queue)
        self.begin()
        self.rules = QueueRules(max_delivery_count=most, **rules)
        self.gateway = RedisGateway(redis_client=client, retry_budget_seconds=0)

    def begin(self) -> None:
        """Create the group, if it is one and its stream does not exist."""
        if self.keys.group and not self.client.exists(self.keys.pending):
            self.client.xgroup_create(self.keys.pending, self.keys.group, "0", mkstream=True)

    def do_once(self, call: Call[T]) -> T:
        """Execute one call, and again where the chain of markers has changed since it was prepared."""
        reply: Any = self.gateway.execute(call, retry=False)
        changed = reply[0] if call.then else reply
        if not isinstance(changed, ChainChanged):
            return reply  # type: ignore[no-any-return]
        changed.learn()
        assert call.again is not None
        return self.do_once(replace(call.again(), decode=call.decode))

    def learn(self) -> None:
        """Know the chain of markers, so that the next call that names some is not answered by it."""
        markers.known(self.client, self.keys)

    def do(self, call: Call[T]) -> T:
        """Execute one call, and the claim of a known lease where a claim asks for it, and repeat a busy settle."""
        reply = self.do_once(call)
        while reply is BLOCKS_OPENED:
            reply = self.do_once(call)
        return self.do_once(self._of_known_lease(call)) if isinstance(reply, Known) else reply

    @staticmethod
    def _of_known_lease(claim: Call[T]) -> Call[T]:
        script = scripts.load("claim_known")
        keys = dict(zip(claim.script.header.keys, claim.keys, strict=False))
        args = dict(zip(claim.script.header.args, claim.args, strict=False))
        return replace(
            claim,
            script=script,
            keys=tuple(keys[name] for name in script.header.keys),
            args=tuple(args[name] for name in script.header.args),
        )

    def publish(
        self,
        batch: str,
        *names: str,
        keyed: bool = False,
        window: float = 3600,
        receipt: float | None = None,
        oldest: float = 500,
        age: float = 0,
        **more: Any,
    ) -> Call[Published]:
        """Make a call that publishes messages with their names as payloads.

        If `keyed`, the name is the deduplication key as well; otherwise the batch gets a receipt.

        `more` is as in `Batch`.
        """
        parts = [client_part(b"", name.encode() if keyed else b"", b"", name.encode()) for name in names]
        made = Batch(
            batch.encode(),
            parts,
            [name.encode() for name in names] if keyed else [],
            window_seconds=window if keyed else 0,
            receipt_seconds=receipt if receipt is not None else 0 if keyed else 600,
            oldest_seconds=oldest,
            **more,
        )
        if keyed:
            self.learn()
        if self.keys.group:
            wakeups = {self.keys.group.encode(): self.keys.wakeup}
            return publish_to_stream_call(self._stream_keys(), made, wakeups, age_seconds=age)
        return publish_call(self.keys, made, age_seconds=age)

    def _stream_keys(self) -> StreamKeys:
        """Return the keys of the group's stream, with the chain of markers as the group knows it."""
        keys = StreamKeys(self.queue)
        keys.markers.learn(self.keys.markers.text)
        return keys

    def add_junk(self, *values: str | bytes) -> None:
        """Put values that are no messages where they are claimed first; of a group, among its returned messages."""
        if self.keys.group:
            self.client.zadd(self.keys.returned, dict.fromkeys(values, 0))
        else:
            self.client.rpush(self.keys.pending, *values)

    def claim(
        self,
        lease: str,
        nonce: str,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        takeover: bytes = b"",
        maintain: bool = True,
        remember_empty: bool = False,
    ) -> Call[ClaimReply]:
        request = ClaimRequest(
            self.keys.lease_name(lease), nonce.encode(), limit, lease_seconds, 3600, 600 if remember_empty else 0
        )
        return claim_call(self.keys, self.rules, request, takeover=takeover, maintain=maintain)

    def claim_known(self, lease: str, nonce: str, *, takeover: bytes = b"") -> Call[ClaimReply]:
        request = ClaimRequest(self.keys.lease_name(lease), nonce.encode(), 10, 60, 3600)
        return claim_known_call(self.keys, self.rules, request, takeover=takeover)

    def opened(self, lease: str, nonce: str, limit: int = 10, **options: object) -> tuple[bytes, Opened]:
        """Claim; the lease must be opened or taken over. Return the token and the reply."""
        reply = self.do(self.claim(lease, nonce, limit, **options))  # type: ignore[arg-type]
        assert isinstance(reply, Opened), reply
        return nonce.encode() + b":" + reply.opening, reply

    def settle(
        self, lease: str, token: bytes, *groups: VerdictGroup, recorded: bool = True, held_seconds: float = 0
    ) -> Call[Settled]:
        """Make a call with these verdicts, and with the markers that the consumer knows from its claim."""
        stored = self.client.hgetall(self.keys.lease(self.keys.lease_name(lease)))
        bound = bound_keys(sorted(slots_of(stored).items()))
        self.learn()
        request = SettleRequest(self.keys.lease_name(lease), token, 3600, recorded, groups, bound)
        return settle_call(self.keys, self.rules, request, held_seconds=held_seconds)

    def ack_whole(
        self, lease: str, token: bytes, size: int, *, recorded: bool = True, held_seconds: float = 0
    ) -> Call[Settled | None]:
        request = SettleRequest(self.keys.lease_name(lease), token, 3600, recorded, (), size=size)
        return ack_whole_call(self.keys, request, held_seconds=held_seconds)

    def ack_and_claim(
        self,
        lease: str,
        last: tuple[str, bytes] | None = None,
        *,
        held_seconds: float = 0,
        claims: bool = True,
        lease_seconds: float = 60,
        longest: float = 0,
        consumer: bytes = b"",
    ) -> Call[Stepped]:
        """Make a call that opens a lease whose id is its nonce, and acks the one of this id and token."""
        name = self.keys.lease_name(lease)
        request = ClaimRequest(name, name, 1, lease_seconds, 3600, consumer=consumer)
        held = OpenLease(self.keys.lease_name(last[0]), last[1], 0) if last else None
        return ack_and_claim_call(
            self.keys, request, held, claims=claims, max_lease_seconds=longest, held_seconds=held_seconds
        )

    def bind(self, *names: str) -> None:
        """Turn pending messages of these names into messages of `until_acked`, which hold their key until they end."""
        entries = unpack_pending(self.client, self.queue)
        for at, entry in enumerate(entries):
            name = entry.rsplit(b"\x1f", 1)[1]
            if name.decode() in names:
                part = client_part(split_entry(entry)[0], name, b"", name)
                self.client.lset(self.keys.pending, len(entries) - 1 - at, b"2" + entry[1:PREFIX_LENGTH] + part)
                markers.hold(self.client, self.keys, name, split_entry(entry)[0], px=WEEK_MS)

    def owner(self, name: str) -> str | None:
        """Return the message id in the marker of a deduplication key."""
        owner = markers.owner(self.client, self.keys, name.encode())
        return owner.decode() if owner is not None else None

    def extend(self, lease: str, token: bytes, seconds: float = 60, longest: float = 0) -> Call[Extended]:
        name = self.keys.lease_name(lease)
        return extend_call(self.keys, name, token, lease_seconds=seconds, max_lease_seconds=longest)

    def reap(self, lease: str, step: int = 500, wanted: Sequence[bytes] = ()) -> Call[Reaped]:
        self.learn()
        return reap_call(self.keys, self.rules, self.keys.lease_name(lease), step=step, wanted=wanted)

    def promote(self, step: int = 1000) -> Call[int]:
        return promote_call(self.keys, step=step)

    def depth(self, *expired: bytes) -> Call[Depth]:
        """Make a call that counts, and counts the messages of these expired leases."""
        place = (b"9999999999999", b"0", expired[-1], expired) if expired else ()
        call = depth_call(self.keys, ExpiredPage(*place))
        return replace(call, decode=lambda reply: call.decode(reply).depth)


def verdict(verb: Verb, slots: str, **options: object) -> VerdictGroup:
    return VerdictGroup(verb, slots, **options)  # type: ignore[arg-type]


def ids(reply: ClaimReply) -> list[str]:
    """Return the names of the messages of an open lease."""
    assert isinstance(reply, Opened), reply
    return [entry.rsplit(b"\x1f", 1)[1].decode() for entry in reply.leased().entries()]
