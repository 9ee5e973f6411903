"""The messages of a lease as Redis answered them, without an object per message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import bound_markers, read_prefix, was_delivered
from sluicegate.core.keys import QueueKeys

__all__ = ["LeasedEntries"]

_first_byte = itemgetter(0)
_UNBOUND = bytes(range(1, 256, 2))  # kinds of entries whose deduplication marker stays when the message ends


class LeasedEntries:
    """The stored messages of one lease by position and by slot.

    A message has a position from 0, in claim order, and a slot from 1, by which Redis knows it. Both count alike unless
    some messages had been settled before the lease was taken over or attached.

    Only this class knows how stored values belong to slots. Everything else asks it.

    Args:
        values: what Redis answered, in claim order.
        slots: their slots, ascending; None or empty for 1 to n.
        begun: deliveries of each message that have begun and not ended, this one included.
    """

    __slots__ = ("_positions", "_slots", "_values", "begun")

    def __init__(self, values: list[bytes], slots: Sequence[int] | None = None, begun: int = 1) -> None:
        self.begun = begun
        self._values = values
        self._slots: Sequence[int] = slots or range(1, len(values) + 1)
        self._positions: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self._values)

    @property
    def slots(self) -> Sequence[int]:
        """Return the slots of all messages, ascending; a range where none is missing."""
        return self._slots

    def slot(self, position: int) -> int:
        """Return the slot of the message at a position."""
        return self._slots[position]

    def position(self, slot: int) -> int | None:
        """Return the position of the message in a slot; None if the lease has none there."""
        slots = self._slots
        if isinstance(slots, range):
            return slots.index(slot) if slot in slots else None
        if self._positions is None:
            self._positions = {held: position for position, held in enumerate(slots)}
        return self._positions.get(slot)

    def entry(self, position: int) -> bytes:
        """Return the entry of the message at a position."""
        return self._values[position]

    def entries(self) -> list[bytes]:
        """Return the entries of all messages. The list must not be changed."""
        return self._values

    def size_at(self, slot: int) -> int:
        """Return the size in bytes of the entry in a slot.

        Raises:
            KeyError: the lease has no message there.
        """
        position = self.position(slot)
        if position is None:
            raise KeyError(slot)
        return len(self._values[position])

    def delivery_count(self, position: int) -> int:
        """Return the number of deliveries of the message at a position, including this one.

        Raises:
            MalformedStoredMessageError: the value there is not an entry.
        """
        return read_prefix(self._values[position]).deliveries + self.begun

    @property
    def redelivered(self) -> int:
        """Return how many messages were delivered before, whatever became of that delivery."""
        return len(self) if self.begun > 1 else sum(map(was_delivered, self._values))

    @property
    def size(self) -> int:
        """Return the size of all entries in bytes."""
        return sum(map(len, self._values))

    def bound(self, keys: QueueKeys) -> tuple[tuple[int, bytes], ...]:
        """List slot and marker key of each message whose marker must be freed when it ends, for `SettleRequest.bound`.

        Args:
            keys: the keys of the queue.
        """
        if not bytes(map(_first_byte, self._values)).translate(None, _UNBOUND):
            return ()
        return bound_markers(keys, zip(self._slots, self._values, strict=True))

    def only(self, slots: Sequence[int]) -> LeasedEntries:
        """Return the messages in these slots, ascending.

        Raises:
            KeyError: the lease has no message in one of them.
        """
        held = dict(zip(self._slots, self._values, strict=True))
        return LeasedEntries([held[slot] for slot in slots], slots, self.begun)

    def drop(self, slots: Collection[int]) -> None:
        """Leave out the messages in these slots."""
        left = [pair for pair in zip(self._slots, self._values, strict=True) if pair[0] not in slots]
        self._slots, self._values = [slot for slot, _ in left], [value for _, value in left]
        self._positions = None

    def drop_payloads(self) -> None:
        """Drop headers and payloads, for a consumer that only settles; ids, keys and counts stay."""
        self._values = [SEPARATOR.join((*value.split(SEPARATOR, 2)[:2], b"", b"")) for value in self._values]
