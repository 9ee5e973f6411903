"""When each lease has to be extended: the part of the heartbeats without threads, tasks or I/O."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from weakref import ref

__all__ = ["MAX_HEARTBEAT_SECONDS", "MAX_SLEEP_SECONDS", "RETRY_SECONDS", "DueQueue", "Grouped", "Watch"]

# A gateway gives a heartbeat 5 s. One that takes three times as long is inside a user's callback.
MAX_HEARTBEAT_SECONDS = 15.0
# Sleeping does not count the suspension of a machine; the clock of leases does.
MAX_SLEEP_SECONDS = 5.0
RETRY_SECONDS = 1.0
_SLACK = 64


class Grouped(Protocol):
    """Something whose heartbeats are sent one after the other with those of others."""

    @property
    def beats_through(self) -> object:
        """Return what the heartbeats are sent through; only those of the same gateway wait for each other."""


T = TypeVar("T", bound=Grouped)


@dataclass(slots=True, eq=False)
class Watch(Generic[T]):
    """A lease for which heartbeats are sent.

    It refers to the lease weakly. A lease that its consumer has dropped expires, because nobody can settle it any more,
    and a lease that has ended is freed with its messages before its next heartbeat would have been due.
    """

    number: int
    key: int
    lease: ref[T]
    group: int
    context: Context
    by: object = None
    """The thread or task of the heartbeat that is under way."""


class DueQueue(Generic[T]):
    """The heartbeats to come and those that are due, by group: the leases whose heartbeats use the same gateway.

    One worker at a time serves a group. `fall_due` names the groups that need a worker, which then calls `begin` and
    `end` for each heartbeat until `begin` returns None. Adding and removing costs the same for any number of leases.
    Not thread-safe.
    """

    def __init__(self) -> None:
        # Entries of the heap and of the groups may outlive their leases; only those with the number of a watch count.
        self._heap: list[tuple[float, int, int]] = []
        self._ready: dict[int, deque[tuple[int, int]]] = {}
        self._served: set[int] = set()
        self._watches: dict[int, Watch[T]] = {}
        self._under_way: dict[int, Watch[T]] = {}
        self._numbers = itertools.count()

    def __contains__(self, lease: T) -> bool:
        return (watch := self._watches.get(id(lease))) is not None and watch.lease() is lease

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, lease: T, at: float) -> None:
        """Schedule the heartbeat of a lease, in a copy of the current context; replaces an earlier schedule."""
        watch = Watch(next(self._numbers), id(lease), ref(lease), id(lease.beats_through), copy_context())
        self._watches[watch.key] = watch
        self._push(watch, at)

    def remove(self, lease: T) -> None:
        """Schedule no more heartbeats for a lease; does nothing when it is not watched."""
        if lease in self:
            del self._watches[id(lease)]

    def next_at(self) -> float | None:
        """Return when the next heartbeat falls due, None when there is none."""
        while self._heap and self._live(*self._heap[0][1:]) is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fall_due(self, now: float) -> list[int]:
        """Take up the heartbeats that are due; returns the groups that need a worker, each of them once."""
        while (at := self.next_at()) is not None and at <= now:
            _, number, key = heapq.heappop(self._heap)
            self._ready.setdefault(self._watches[key].group, deque()).append((number, key))
        waiting = [group for group in self._ready if group not in self._served]
        self._served.update(waiting)
        return waiting

    def begin(self, group: int) -> tuple[Watch[T], T] | None:
        """Return the next heartbeat of a group, which is under way from now on; None ends the group's worker."""
        ready = self._ready.get(group, ())
        while ready:
            watch = self._live(*ready.popleft())
            lease = watch.lease() if watch is not None else None
            if watch is not None and lease is not None:
                self._under_way[watch.key] = watch
                return watch, lease
        self._ready.pop(group, None)
        self._served.discard(group)
        return None

    def end(self, watch: Watch[T], again_at: float | None) -> None:
        """End a heartbeat; the next one of its lease falls due at that time, or never."""
        self._under_way.pop(watch.key, None)
        watch.by = None
        if self._live(watch.number, watch.key) is None:
            return
        if again_at is not None:
            self._push(watch, again_at)
        else:
            del self._watches[watch.key]

    def postpone(self, group: int, at: float) -> None:
        """Let the due heartbeats of a group that has no worker fall due again at that time."""
        for number, key in self._ready.pop(group, ()):
            heapq.heappush(self._heap, (at, number, key))
        self._served.discard(group)

    def under_way(self, lease: T) -> Watch[T] | None:
        """Return the watch of a lease whose heartbeat is under way."""
        return self._under_way.get(id(lease))

    def _push(self, watch: Watch[T], at: float) -> None:
        heapq.heappush(self._heap, (at, watch.number, watch.key))
        if len(self._heap) > 2 * len(self._watches) + _SLACK:
            self._heap = [due for due in self._heap if self._live(*due[1:]) is not None]
            heapq.heapify(self._heap)

    def _live(self, number: int, key: int) -> Watch[T] | None:
        watch = self._watches.get(key)
        if watch is None or watch.number != number:
            return None
        if watch.lease() is None:
            del self._watches[key]
            return None
        return watch
