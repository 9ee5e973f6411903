"""The messages of a lease, of which `Message` objects are made when somebody looks at one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from typing import overload

from sluicegate.collector import paused
from sluicegate.core.leased import LeasedEntries
from sluicegate.message import Message

__all__ = ["LeasedMessages"]


class LeasedMessages(Sequence[Message]):
    """A sequence of messages whose objects are made once, all together, when the first of them is read.

    Their number, their entries and their slots cost no objects. What makes columns of messages, or settles a lease as a
    whole, uses only these.

    Args:
        stored: the messages as Redis answered them.

    Attributes:
        stored: the same.
    """

    __slots__ = ("_made", "stored")

    def __init__(self, stored: LeasedEntries) -> None:
        self.stored = stored
        self._made: list[list[Message]] = []  # the first element counts: threads may make the objects at the same time

    def all(self) -> list[Message]:
        """Return the messages as a list, the same one at every call."""
        if not self._made:
            stored = self.stored
            with paused():
                made = list(map(Message, stored.entries(), stored.slots, repeat(stored.begun)))
            assert len(made) == len(stored), "a message without a slot would be acked unseen"
            self._made.append(made)
        return self._made[0]

    def at(self, slot: int) -> Message:
        """Return the message in a slot.

        Raises:
            KeyError: the lease has none there.
        """
        position = self.stored.position(slot)
        if position is None:
            raise KeyError(slot)
        return self.all()[position]

    def owns(self, message: Message) -> bool:
        """Return whether a message is one of these objects, and not one that equals it."""
        position = self.stored.position(message.slot)
        return position is not None and self.all()[position] is message

    def drop(self, slots: Collection[int]) -> None:
        """Leave out the messages in these slots."""
        messages = self.all()
        messages[:] = [message for message in messages if message.slot not in slots]
        self.stored.drop(slots)

    def drop_payloads(self) -> None:
        """Drop headers and payloads, for a consumer that only settles; ids, keys and counts stay."""
        self.stored.drop_payloads()
        for message, entry in zip(self._made[0], self.stored.entries(), strict=True) if self._made else ():
            message.entry = entry

    def __len__(self) -> int:
        return len(self.stored)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.all()[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.all())
