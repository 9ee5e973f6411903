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
from sluicegate.core.ranges import format_ranges, parse_ranges
from sluicegate.core.values import Batch, ClaimRequest, QueueRules, SettleRequest

__all__ = ["claim", "depth", "extend", "peek", "promote", "publish", "reap", "settle"]

_MAX_CLAIM_BYTES = 32 * 1024 * 1024
_MAX_PASS_SECONDS = 30.0  # others wait so long, too, for what a run passes by


def publish(keys: QueueKeys, batch: Batch, *, age_seconds: float) -> Call[replies.Published]:
    """Make a batch pending or delayed, except what its markers or the cap refuse."""
    script_keys = (
        keys.pending,
        keys.counters,
        keys.wakeup,
        keys.published(batch.id),
        keys.returned,
        keys.delayed,
        *batch.markers,
    )
    args: list[bytes | int] = [
        batch.id,
        _ms(age_seconds),
        _ms(batch.oldest_seconds),
        _ms(batch.window_seconds),
        _ms(batch.receipt_seconds),
        batch.kind,
        _ms(batch.delay_seconds),
        batch.due_ms,
        batch.max_pending_length,
        batch.overload.encode(),
    ]
    args += batch.parts
    then = batch.durability.command()
    return Call(scripts.load("publish"), script_keys, args, replies.published, elapsed_arg=1, then=then)


def claim(
    keys: QueueKeys, rules: QueueRules, request: ClaimRequest, *, takeover: bytes = b"", maintain: bool = True
) -> Call[replies.ClaimReply]:
    """Open, adopt or take over a lease."""
    name = request.name
    run = (request.run,) if request.run else ()
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
            keys.wakeup,
            keys.dead,
            keys.dead_records,
            keys.set_aside,
            *run,
        ),
        (
            name,
            request.nonce,
            request.limit,
            _ms(request.lease_seconds),
            _ms(request.keep_seconds),
            _ms(request.empty_seconds),
            rules.max_delivery_count,
            takeover,
            int(maintain),
            _MAX_CLAIM_BYTES,
            _ms(rules.max_lease_seconds),
            rules.max_dead_length,
            int(rules.strict),
            *((_ms(min(request.lease_seconds, _MAX_PASS_SECONDS)),) if run else ()),
        ),
        replies.claimed,
    )


def settle(keys: QueueKeys, rules: QueueRules, request: SettleRequest, *, held_seconds: float) -> Call[replies.Settled]:
    """Give slots of a lease their verdicts."""
    name = request.name
    bound = _ended_by(request) if request.bound else ()
    args: list[bytes | int] = [
        name,
        request.token,
        _ms(request.keep_seconds),
        int(request.recorded),
        _ms(held_seconds),
        rules.max_delivery_count,
        rules.max_dead_length,
        _cap(rules.completed_cap),
        _cap(rules.failed_cap),
        format_ranges(slot for slot, _ in bound).encode(),
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
            keys.wakeup,
            keys.completed,
            keys.failed,
            keys.set_aside,
            *(marker for _, marker in bound),
        ),
        args,
        replies.settled,
        elapsed_arg=4,
    )


def extend(
    keys: QueueKeys, name: bytes, token: bytes, *, lease_seconds: float, max_lease_seconds: float = 0
) -> Call[replies.Extended]:
    """Move the deadline of an open lease."""
    return Call(
        scripts.load("extend"),
        (keys.lease(name), keys.leases),
        (name, token, _ms(lease_seconds), _ms(max_lease_seconds)),
        replies.extended,
    )


def reap(
    keys: QueueKeys, rules: QueueRules, name: bytes, *, step: int = 250, wanted: Sequence[bytes] = ()
) -> Call[replies.Reaped]:
    """Take the messages of an expired lease back, at most `step` of them; `wanted` is what an answer asked for."""
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
            keys.wakeup,
            keys.set_aside,
            *(keys.dedup(key) for key in wanted),
        ),
        (name, step, rules.max_delivery_count, rules.max_dead_length, *wanted),
        replies.reaped,
    )


def promote(keys: QueueKeys, *, step: int = 500) -> Call[int]:
    """Make delayed messages claimable that are due, at most `step` of them."""
    return Call(scripts.load("promote"), (keys.delayed, keys.pending, keys.returned, keys.wakeup), (step,), int)


def depth(keys: QueueKeys, page: replies.ExpiredPage = replies.NO_PAGE, *, most: int = 500) -> Call[replies.Counted]:
    """Count messages by state, expired ones in the leases that the answer before named; name `most` leases more."""
    place = (page.mark, page.score, page.after, *page.names) if page.names else ()
    return Call(
        scripts.load("depth"),
        (
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.leases,
            keys.dead,
            keys.counters,
            *(keys.lease(name) for name in page.names),
        ),
        (most, *place),
        replies.counted,
    )


def peek(keys: QueueKeys, state: str, count: int, *, offset: int = 0) -> Call[list[bytes]]:
    """Show stored values of one state behind so many: pending, returned, delayed, dead, completed or failed."""
    kind = {"pending": b"list", "dead": b"dead", "completed": b"history", "failed": b"history"}.get(state, b"zset")
    return Call(scripts.load("peek"), (getattr(keys, state), keys.dead_records), (kind, count, offset), _values)


def _values(reply: list[Any]) -> list[bytes]:
    return [value for value in reply if value]


def _ended_by(request: SettleRequest) -> Sequence[tuple[int, bytes]]:
    """The slots with a marker to which a settle gives a verdict that may end them or put them off.

    A release ends a message at most that is alone in its lease.
    """
    groups = [group for group in request.groups if group.verb != "release" or len(request.bound) == 1]
    given = {slot for group in groups for slot in parse_ranges(group.slots)}
    return [pair for pair in request.bound if pair[0] in given]


def _cap(length: int | None) -> int:
    return -1 if length is None else length


def _ms(seconds: float) -> int:
    """A duration as whole milliseconds, rounded up so that a short one is never none."""
    return math.ceil(seconds * 1000)
