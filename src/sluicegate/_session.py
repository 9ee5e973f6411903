"""The session: what the parts of one queue object share."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Generic, TypeVar

from sluicegate._activity import Activity
from sluicegate.config import QueueConfig
from sluicegate.core.deduplication import compile_key_function
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.eviction import EvictionCheck

__all__ = ["QueueSession", "new_id", "publishing_for"]

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class QueueSession(Generic[R]):
    """What the parts of one queue object share: publishing, leases, administration and the adapters get it whole.

    It is internal to this distribution. An adapter that needs more than the queue's methods takes it from
    `queue.session`. The two flavours differ in the type of the runner only; `sluicegate.session` and
    `sluicegate.asyncio.session` open one.

    Attributes:
        keys: the queue's Redis keys; `keys.name` is the queue's name.
        config: its options, checked.
        rules: the options that the Lua scripts need.
        publishing: turns payloads into batches.
        eviction: checks once per object whether the server may evict keys.
        activity: the publishes and leases that this object has under way.
        runner: runs operations; `runner.gateway` sends their calls.
        publishes: False for a queue made from a spec that lacks its key function: it only consumes.
    """

    keys: QueueKeys
    config: QueueConfig
    rules: QueueRules
    publishing: Publishing
    eviction: EvictionCheck
    activity: Activity
    runner: R
    publishes: bool = True


def publishing_for(keys: QueueKeys, config: QueueConfig, retry_seconds: float, *, awaits: bool) -> Publishing:
    """How a queue with these options turns payloads into batches.

    Args:
        keys: the queue's Redis keys.
        config: its options.
        retry_seconds: the gateway's retry budget; markers and receipts outlive it.
        awaits: whether the deduplication key function may be async.
    """
    source = config.get_deduplication_key
    return Publishing(
        keys,
        compile_key_function(source, awaits=awaits) if source is not None else None,
        config.deduplication_window_seconds,
        retry_seconds,
        policy=config.deduplication_policy,
        max_pending_length=config.max_pending_length or 0,
        overload=config.pending_overload_policy,
        limits=config.limits,
        sort_keys=config.sort_keys,
    )


def new_id() -> bytes:
    """Sixteen random characters that nobody else makes."""
    return urlsafe_b64encode(os.urandom(12)).replace(b"-", b".")
