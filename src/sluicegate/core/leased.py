"""The messages of a lease as Redis answered them, without an object per message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

from sluicegate.core.block import Block
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import bound_keys, read_prefix, was_delivered
from sluicegate.errors import MalformedStoredMessageError

__all__ = ["LeasedEntries", "only_between"]

_first_byte = itemgetter(0)
_UNBOUND = bytes(range(1, 256, 2))  # kinds of entries whose deduplication marker stays when the message ends
_NO_BLOCKS = bytes(kind for kind in range(256) if kind not in b"34")


class LeasedEntries:
    """The stored messages of one lease by position and by slot.

    A message has a position from 0, in claim order, and a slot from 1, by which Redis knows it. Both count alike unless
    some messages had been settled before the lease was taken over or attached.

    Only this class knows how stored values belong to slots. Everything else asks it. A value may be a block of many
    messages. Its messages become entries when one of them is asked for; `pieces` gives blocks as they are.

    Args:
        values: what Redis answered, in claim order.
        slots: their slots, ascending, of a block the first one; None or empty for 1 to n.
        begun: deliveries of each message that have begun and not ended, this one included.
    """

    __slots__ = ("_entries", "_pieces", "_positions", "_slots", "begun")

    def __init__(self, values: list[bytes], slots: Sequence[int] | None = None, begun: int = 1) -> None:
        self.begun = begun
        self._entries: list[bytes] | None = values
        self._pieces: list[bytes | Block] = []
        self._slots: Sequence[int] = slots or range(1, len(values) + 1)
        self._positions: dict[int, int] | None = None
        if bytes(map(_first_byte, values)).translate(None, _NO_BLOCKS):
            self._entries, self._pieces = None, [_read_block(value) if value[0] in b"34" else value for value in values]
            counts = [piece.count if isinstance(piece, Block) else 1 for piece in self._pieces]
            self._slots = range(1, sum(counts) + 1)
            if slots:
                held = [
                    slot for first, count in zip(slots, counts, strict=True) for slot in range(first, first + count)
                ]
                self._slots = held

    @property
    def _values(self) -> list[bytes]:
        """Return the entries of all messages; those of blocks are made at the first call."""
        if self._entries is None:
            entries: list[bytes] = []
            for piece in self._pieces:
                if isinstance(piece, Block):
                    entries += piece.entries()
                else:
                    entries.append(piece)
            self._entries = entries
        return self._entries

    @_values.setter
    def _values(self, entries: list[bytes]) -> None:
        self._entries, self._pieces = entries, []

    @property
    def has_blocks(self) -> bool:
        """Return whether some of its messages are in blocks, of which no entries were made yet."""
        return self._entries is None

    def pieces(self) -> Sequence[bytes | Block]:
        """Return all messages, in claim order: entries, and blocks of several."""
        return self._pieces or self._values

    def __len__(self) -> int:
        return len(self._slots)

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
        if self.begun > 1:
            return len(self)
        return sum(not isinstance(piece, Block) and was_delivered(piece) for piece in self.pieces())

    @property
    def size(self) -> int:
        """Return the size of all entries in bytes."""
        blocks = [piece for piece in self._pieces if isinstance(piece, Block)]
        singles = self._values if not self._pieces else [piece for piece in self._pieces if isinstance(piece, bytes)]
        return sum(map(len, singles)) + sum(sum(block.sizes()) for block in blocks)

    def bound(self) -> tuple[tuple[int, bytes], ...]:
        """List slot and key of each message whose marker must be freed when it ends, for `SettleRequest.bound`."""
        kinds = [piece.kind[0] if isinstance(piece, Block) else piece[0] for piece in self._pieces]
        if not bytes(kinds or map(_first_byte, self._values)).translate(None, _UNBOUND):
            return ()
        return bound_keys(zip(self._slots, self._values, strict=True))

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


def only_between(slots: Sequence[int], values: Sequence[bytes], first: int, last: int) -> tuple[list[int], list[bytes]]:
    """Return the slots from `first` to `last` with their values; of a block that reaches beyond, its entries there."""
    left: list[tuple[int, bytes]] = []
    for slot, value in zip(slots, values, strict=True):
        block = _read_block(value) if value[0] in b"34" else None
        if block is None or (first <= slot and slot + block.count - 1 <= last):
            left.append((slot, value))
        else:
            inside = range(max(0, first - slot), min(block.count, last - slot + 1))
            left += [(slot + place, block.entry(place)) for place in inside]
    return [slot for slot, _ in left], [value for _, value in left]


def _read_block(value: bytes) -> Block:
    block = Block.read(value)
    if block is None:
        raise MalformedStoredMessageError("a stored value is not a Sluicegate entry")
    return block
