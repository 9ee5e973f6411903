"""Who waits for the end of which batch or job: the part without threads, tasks or I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.transitions.batches import Ended

__all__ = ["LINGER_SECONDS", "POLL_SECONDS", "READERS", "REREAD_SECONDS", "RETRY_SECONDS", "Board", "Watcher"]

REREAD_SECONDS = 10.0  # the longest time between two looks at what has ended
POLL_SECONDS = 0.5  # between looks, through a gateway that cannot follow a stream
RETRY_SECONDS = 1.0  # after an error
LINGER_SECONDS = 2.0  # how long a thread stays after the last waiter
READERS = 8  # waiters that read a state at a time: a thousand that are woken at once need no thousand connections
MANY = b"*"  # in a notification: more have ended than it names


class Watcher(Protocol):
    """Something that waits for one member."""

    @property
    def member(self) -> bytes:
        """Return the batch or job, as notifications name it."""

    def wake(self) -> None:
        """Have the waiter look at the state itself."""


W = TypeVar("W", bound=Watcher)


class Board(Generic[W]):
    """Those who wait, and the place up to which notifications were read. Not thread-safe.

    Attributes:
        position: id of the last notification that was read; None before the first look.
        number: its number.
    """

    def __init__(self) -> None:
        self.position: bytes | None = None
        self.number = 0
        self._watchers: dict[bytes, set[W]] = {}

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def __iter__(self) -> Iterator[W]:
        return iter([watcher for watchers in self._watchers.values() for watcher in watchers])

    def add(self, watcher: W) -> None:
        """Let somebody wait."""
        self._watchers.setdefault(watcher.member, set()).add(watcher)

    def remove(self, watcher: W) -> None:
        """Let somebody wait no longer."""
        watchers = self._watchers.get(watcher.member, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(watcher.member, None)

    def members(self) -> list[bytes]:
        """List what is waited for."""
        return list(self._watchers)

    def looked(self, ended: Ended) -> None:
        """Take the answer to a look: what has ended wakes its waiters, and notifications are read from there on."""
        self.position, self.number = ended.newest, ended.number
        self._wake(ended.members)

    def heard(self, news: Sequence[tuple[bytes, Sequence[bytes]]]) -> bool:
        """Take notifications; returns whether some were missed, or named too many, so that another look is needed.

        Args:
            news: the id of each, and its fields and values in turn.
        """
        complete = True
        for position, fields in news:
            values = dict(zip(fields[::2], fields[1::2], strict=False))
            raw = values.get(b"n", b"")
            number = int(raw) if raw.isdigit() else 0
            names = values.get(b"ended", MANY)
            complete = complete and number == self.number + 1 and names != MANY
            self.position, self.number = position, number
            self._wake(names.split(SEPARATOR))
        return not complete

    def wake_all(self) -> None:
        """Have everybody look for themselves."""
        self._wake(self.members())

    def _wake(self, members: Iterable[bytes]) -> None:
        for member in members:
            for watcher in self._watchers.get(member, ()):
                watcher.wake()
