"""What one queue object has under way: its publishes, and the leases that it holds."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from sluicegate.interrupts import BaseGracefulInterruptHandler

__all__ = ["Activity", "Hold"]


class Hold(Protocol):
    """A lease's knowledge of itself."""

    @property
    def is_held(self) -> bool:
        """Whether the lease still has messages to settle, as far as its consumer knows."""


class Activity:
    """Knows who publishes and who holds a lease, so that a shutdown can wait for them.

    An owner is a thread or a task, by `runtime.current_owner`. Signal handlers may read all of this in any thread.

    Args:
        interrupt: the queue's interrupt handler; None when it has none.

    Attributes:
        closed: whether the queue object was shut down: it publishes and claims no more.
    """

    __slots__ = ("_interrupt", "_leases", "_publishes", "closed")

    def __init__(self, interrupt: BaseGracefulInterruptHandler | None = None) -> None:
        self.closed = False
        self._interrupt = interrupt
        self._publishes: dict[object, int] = {}
        self._leases: dict[int, tuple[weakref.ref[Any], Hold, int]] = {}

    def stopping(self) -> bool:
        """Whether this object claims no more: it was shut down, or its interrupt handler was interrupted."""
        return self.closed or (self._interrupt is not None and self._interrupt.is_interrupted())

    @property
    def publishes(self) -> bool:
        """Whether any publish is under way."""
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

        A lease object that nobody refers to any more cannot be settled. It expires in Redis.
        """
        leases, number = self._leases, id(lease)
        leases[number] = (weakref.ref(lease, lambda _: leases.pop(number, None)), hold, owner)

    def holds(self, lease: object) -> bool:
        """Whether a lease of this queue object still has messages to settle, as far as its consumer knows."""
        found = self._leases.get(id(lease))
        return found is not None and found[1].is_held

    def held(self) -> list[tuple[Any, int]]:
        """The leases that still have messages to settle, each with its owner."""
        found = [(reference(), hold, owner) for reference, hold, owner in list(self._leases.values())]
        return [(lease, owner) for lease, hold, owner in found if lease is not None and hold.is_held]

    def others_at_work(self, me: int) -> bool:
        """Whether another owner publishes or holds a lease."""
        if any(owner != me for owner in list(self._publishes.values())):
            return True
        return any(owner != me for _, owner in self.held())
