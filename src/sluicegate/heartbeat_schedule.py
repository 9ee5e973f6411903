"""When which lease is to be extended: the part of the heartbeats without threads, tasks or I/O."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from weakref import ref

__all__ = ["MAX_HEARTBEAT_SECONDS", "MAX_SLEEP_SECONDS", "RETRY_SECONDS", "DueQueue", "Grouped", "Watch"]

# A gateway gives a beat 5 s; one that takes three times as long is in a callback of the user's, if anywhere.
MAX_HEARTBEAT_SECONDS = 15.0
# Sleeps do not count the suspension of a machine, and the clock of leases does.
MAX_SLEEP_SECONDS = 5.0
RETRY_SECONDS = 1.0
_SLACK = 64


class Grouped(Protocol):
    """Something whose beats wait for those of others."""

    @property
    def beats_through(self) -> object:
        """What the beats are sent through: those of one gateway wait for each other, and for no other's."""


T = TypeVar("T", bound=Grouped)


@dataclass(slots=True, eq=False)
class Watch(Generic[T]):
    """A lease that is beaten for.

    The lease itself is held by its holder alone: one that nobody can settle any more is to run out, not to be extended
    for ever, and one that has ended is not to be kept with all its messages until its beat would have been due.
    """

    number: int
    key: int
    lease: ref[T]
    group: int
    context: Context
    by: object = None
    """The thread or task of the beat that is under way."""


class DueQueue(Generic[T]):
    """The beats to come, and those that are due, by group: the leases whose beats are sent through one gateway.

    A group is worked on by one worker at a time: `fall_due` names the groups that need one, which then calls `begin`
    and `end` for each beat until `begin` gives None. Adding and removing costs the same for any lease. Not thread-safe.
    """

    def __init__(self) -> None:
        # The heap and the lines outlive what they name, and are sifted by the number of the live watch of a lease.
        self._due: list[tuple[float, int, int]] = []
        self._lines: dict[int, deque[tuple[int, int]]] = {}
        self._worked_on: set[int] = set()
        self._watches: dict[int, Watch[T]] = {}
        self._beating: dict[int, Watch[T]] = {}
        self._order = itertools.count()

    def __contains__(self, lease: T) -> bool:
        return (watch := self._watches.get(id(lease))) is not None and watch.lease() is lease

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, lease: T, at: float) -> bool:
        """Beat for a lease at that time, in the context of now; returns whether that is the earliest of all."""
        watch = Watch(next(self._order), id(lease), ref(lease), id(lease.beats_through), copy_context())
        self._watches[watch.key] = watch
        return self._push(watch, at)

    def remove(self, lease: T) -> None:
        """Beat no more for a lease; does nothing when it is not watched."""
        if lease in self:
            del self._watches[id(lease)]

    def next_at(self) -> float | None:
        """When the next beat falls due, None when there is none."""
        while self._due and self._live(*self._due[0][1:]) is None:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def fall_due(self, now: float) -> list[int]:
        """Line up the beats that are due; returns the groups that need a worker, which they are taken to get."""
        while (at := self.next_at()) is not None and at <= now:
            _, number, key = heapq.heappop(self._due)
            self._lines.setdefault(self._watches[key].group, deque()).append((number, key))
        waiting = [group for group in self._lines if group not in self._worked_on]
        self._worked_on.update(waiting)
        return waiting

    def begin(self, group: int) -> tuple[Watch[T], T] | None:
        """The next beat of a group, now under way; None when none is left, and its worker is to end."""
        line = self._lines.get(group, ())
        while line:
            watch = self._live(*line.popleft())
            lease = watch.lease() if watch is not None else None
            if watch is not None and lease is not None:
                self._beating[watch.key] = watch
                return watch, lease
        self._lines.pop(group, None)
        self._worked_on.discard(group)
        return None

    def end(self, watch: Watch[T], again_at: float | None) -> bool:
        """A beat is over; the next is at that time, or never. Returns whether that is the earliest of all."""
        self._beating.pop(watch.key, None)
        watch.by = None
        if self._live(watch.number, watch.key) is None:
            return False
        if again_at is not None:
            return self._push(watch, again_at)
        del self._watches[watch.key]
        return False

    def postpone(self, group: int, at: float) -> None:
        """What is due in a group finds no worker: its beats fall due again at that time."""
        for number, key in self._lines.pop(group, ()):
            heapq.heappush(self._due, (at, number, key))
        self._worked_on.discard(group)

    def under_way(self, lease: T) -> Watch[T] | None:
        """The beat of a lease that is going on."""
        return self._beating.get(id(lease))

    def _push(self, watch: Watch[T], at: float) -> bool:
        heapq.heappush(self._due, (at, watch.number, watch.key))
        if len(self._due) > 2 * len(self._watches) + _SLACK:
            self._due = [due for due in self._due if self._live(*due[1:]) is not None]
            heapq.heapify(self._due)
        return self._due[0][1] == watch.number

    def _live(self, number: int, key: int) -> Watch[T] | None:
        watch = self._watches.get(key)
        if watch is None or watch.number != number:
            return None
        if watch.lease() is None:
            del self._watches[key]
            return None
        return watch
