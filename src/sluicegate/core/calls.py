"""The prepared calls: the only place that knows Redis scripts, keys and argument orders. Pure functions from values
to `Call`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sluicegate.core import replies, scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import Batch, ClaimRequest, SettleRequest, Terms

__all__ = ["claim", "depth", "extend", "peek", "promote", "publish", "reap", "settle"]

_MOST_CLAIM_BYTES = 32 * 1024 * 1024


def publish(keys: QueueKeys, batch: Batch, *, age_seconds: float) -> Call[replies.Published]:
    """Make a batch pending, except what its markers refuse."""
    script_keys = (keys.pending, keys.counters, keys.bell, keys.published(batch.id), *batch.markers)
    args: list[bytes | int] = [
        batch.id,
        _ms(age_seconds),
        _ms(batch.oldest_seconds),
        _ms(batch.window_seconds),
        _ms(batch.receipt_seconds),
    ]
    args += batch.parts
    return Call(scripts.load("publish"), script_keys, args, replies.published, elapsed_arg=1)


def claim(
    keys: QueueKeys, terms: Terms, request: ClaimRequest, *, takeover: bytes = b"", tidy: bool = True
) -> Call[replies.ClaimReply]:
    """Open, adopt or take over a lease."""
    name = request.name
    return Call(
        scripts.load("claim"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.counters,
            keys.bell,
            keys.dead,
            keys.dead_records,
        ),
        (
            name,
            request.nonce,
            request.limit,
            _ms(request.lease_seconds),
            _ms(request.keep_seconds),
            _ms(request.empty_seconds),
            terms.most_deliveries,
            takeover,
            int(tidy),
            _MOST_CLAIM_BYTES,
        ),
        replies.claimed,
    )


def settle(keys: QueueKeys, terms: Terms, request: SettleRequest, *, held_seconds: float) -> Call[replies.Settled]:
    """Give slots of a lease their verdicts."""
    name = request.name
    args: list[bytes | int] = [
        name,
        request.token,
        _ms(request.keep_seconds),
        int(request.recorded),
        _ms(held_seconds),
        terms.most_deliveries,
    ]
    for group in request.groups:
        args += (group.verb.encode(), group.slots.encode(), _ms(group.delay_seconds), int(group.named), group.why)
    return Call(
        scripts.load("settle"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.returned,
            keys.delayed,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.bell,
        ),
        args,
        replies.settled,
        elapsed_arg=4,
    )


def extend(
    keys: QueueKeys, name: bytes, token: bytes, *, lease_seconds: float, longest_seconds: float = 0
) -> Call[replies.Extended]:
    """Move the deadline of an open lease."""
    return Call(
        scripts.load("extend"),
        (keys.lease(name), keys.leases),
        (name, token, _ms(lease_seconds), _ms(longest_seconds)),
        replies.extended,
    )


def reap(keys: QueueKeys, terms: Terms, name: bytes, *, step: int = 500) -> Call[replies.Reaped]:
    """Take the messages of an expired lease back, at most `step` of them."""
    return Call(
        scripts.load("reap"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.returned,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.bell,
        ),
        (name, step, terms.most_deliveries),
        replies.reaped,
    )


def promote(keys: QueueKeys, *, step: int = 1000) -> Call[int]:
    """Make delayed messages claimable that are due, at most `step` of them."""
    return Call(scripts.load("promote"), (keys.delayed, keys.pending, keys.returned, keys.bell), (step,), int)


def depth(keys: QueueKeys, expired: Sequence[bytes] = ()) -> Call[replies.Counted]:
    """Count messages by state; `expired` are the lease names of a first answer."""
    return Call(
        scripts.load("depth"),
        (
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.leases,
            keys.dead,
            keys.counters,
            *(keys.lease(name) for name in expired),
        ),
        tuple(expired),
        replies.counted,
    )


def peek(keys: QueueKeys, state: str, count: int) -> Call[list[bytes]]:
    """Show stored values of one state: pending, returned, delayed or dead."""
    source = {"pending": keys.pending, "returned": keys.returned, "delayed": keys.delayed, "dead": keys.dead}[state]
    kind = {"pending": b"list", "dead": b"dead"}.get(state, b"zset")
    return Call(scripts.load("peek"), (source, keys.dead_records), (kind, count), _values)


def _values(reply: list[Any]) -> list[bytes]:
    return [value for value in reply if value]


def _ms(seconds: float) -> int:
    """A duration as whole milliseconds, rounded up so that a short one is never none."""
    return math.ceil(seconds * 1000)
