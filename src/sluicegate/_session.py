"""The session: what the parts of one queue object share, and what the object has under way."""

from __future__ import annotations

import os
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sluicegate.config import QueueConfig
from sluicegate.core.deduplication import compile_key_function, portable_key_source
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.eviction import EvictionCheck
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.json_default import json_function

__all__ = ["Activity", "Hold", "QueueSession", "new_id", "publishing_for"]

R = TypeVar("R")


class Hold(Protocol):
    """A lease's knowledge of itself."""

    @property
    def is_held(self) -> bool:
        """Return whether the lease still has messages to settle, as far as its consumer knows."""


class Activity:
    """Knows who publishes and who holds a lease, so that a shutdown can wait for them.

    An owner is a thread or a task, by `runtime.current_owner`. Signal handlers may read all of this in any thread.

    Args:
        interrupt: the queue's interrupt handler; None when it has none.

    Attributes:
        closed: whether the queue object was shut down: it publishes and claims no more.
    """

    __slots__ = ("_interrupt", "_leases", "_publishes", "_stopping", "closed")

    def __init__(self, interrupt: BaseGracefulInterruptHandler | None = None) -> None:
        self.closed = False
        self._interrupt = interrupt
        self._stopping: Callable[[], bool] | None = None
        self._publishes: dict[object, int] = {}
        self._leases: dict[int, tuple[weakref.ref[Any], Hold, int]] = {}

    def stopping(self) -> bool:
        """Return whether this object has stopped claiming: it was shut down or interrupted."""
        if self._stopping is not None and self._stopping():
            return True
        return self.closed or (self._interrupt is not None and self._interrupt.is_interrupted())

    def branch(self, stopping: Callable[[], bool]) -> Activity:
        """Return an activity that stops earlier, when `stopping` says so, and has its leases and publishes in common.

        Args:
            stopping: also says that this activity, from which it branches, is stopping.
        """
        branch = copy(self)
        branch.follow(stopping)
        return branch

    def follow(self, stopping: Callable[[], bool]) -> None:
        """Stop when `stopping` says so too."""
        self._stopping = stopping

    @property
    def publishes(self) -> bool:
        """Return whether a publish is in progress."""
        return bool(self._publishes)

    def begin_publish(self, owner: int) -> object:
        """Register a publish; do so before checking `closed`, or a shutdown in between would not wait for it.

        Returns:
            What `end_publish` takes.
        """
        publish = object()
        self._publishes[publish] = owner
        return publish

    def end_publish(self, publish: object) -> None:
        """Remove a publish, whatever came of it."""
        del self._publishes[publish]

    def hold(self, lease: object, hold: Hold, owner: int) -> None:
        """Register a lease for as long as somebody refers to it.

        A lease object without references cannot be settled. It expires in Redis.
        """
        leases, number = self._leases, id(lease)
        leases[number] = (weakref.ref(lease, lambda _: leases.pop(number, None)), hold, owner)

    def holds(self, lease: object) -> bool:
        """Return whether a lease of this object still has messages to settle, as far as its consumer knows."""
        found = self._leases.get(id(lease))
        return found is not None and found[1].is_held

    def held(self) -> list[tuple[Any, int]]:
        """Return the leases that still have messages to settle, each with its owner."""
        found = [(reference(), hold, owner) for reference, hold, owner in list(self._leases.values())]
        return [(lease, owner) for lease, hold, owner in found if lease is not None and hold.is_held]

    def others_at_work(self, me: int) -> bool:
        """Return whether another owner publishes or holds a lease."""
        if any(owner != me for owner in list(self._publishes.values())):
            return True
        return any(owner != me for _, owner in self.held())


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
        notices: wakes those who wait for batches and jobs; a `Notices` of the same flavour.
        publishes: False for a queue made from a spec that lacks its key function: it only consumes.
        consumer: the name that its leases show as their consumer, as `consumer_name` encodes it; empty for none.
    """

    keys: QueueKeys
    config: QueueConfig
    rules: QueueRules
    publishing: Publishing
    eviction: EvictionCheck
    activity: Activity
    runner: R
    publishes: bool = True
    consumer: bytes = b""
    notices: Any = None


def publishing_for(keys: QueueKeys, config: QueueConfig, retry_seconds: float, *, awaits: bool) -> Publishing:
    """Return how a queue with these options turns payloads into batches.

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
        json_default=json_function(config.json_default),
        key_source=portable_key_source(source),
        awaits=awaits,
    )


def new_id() -> bytes:
    """Return sixteen random characters of `A-Z a-z 0-9 _`, unique in practice.

    Others name things by them: a `-` separates the position of a message, and Airflow's run ids hold no two dots.
    """
    return urlsafe_b64encode(os.urandom(12)).replace(b"-", b"_")
