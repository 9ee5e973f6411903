"""What a move would move, and what it has moved: values without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["MovePlan", "MoveProgress", "MoveReport", "MovedPart", "PlannedPart"]


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of what another library stores.

    Attributes:
        part: `pending`, `in flight`, `dead`, `failed`, `completed`, `deduplication keys`, `entries` or `group NAME`.
        key: where it is.
        count: its messages, jobs or keys.
        becomes: what it is in its new place; "left" for what is not moved.
        note: what is to be known about it; "" for nothing.
        problem: why it cannot be moved; "" when it can.
    """

    part: str
    key: str
    count: int
    becomes: str
    note: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move would do; a dry run shows it.

    Attributes:
        source: what is moved, in words.
        target: where to, in words.
        parts: of the source; those that hold nothing are left out.
        notes: about the move as a whole.
    """

    source: str
    target: str
    parts: tuple[PlannedPart, ...]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Return how many messages or jobs would move; deduplication keys are not counted."""
        return sum(part.count for part in self.parts if part.becomes not in ("left", "held as long as there", "group"))

    @property
    def problems(self) -> list[str]:
        """List why the move is refused; empty when it can run."""
        return [part.problem for part in self.parts if part.problem]


@dataclass(slots=True)
class MovedPart:
    """What became of a part.

    Attributes:
        part: as in the plan.
        moved: messages, jobs or keys that entered their new place in this run.
        raw: those among them that did not have the format of their library, and were moved as they are.
        left: those that could not be moved and were left at the source, in a list beside it where they had to be taken
            out of the way.
        known: those that had entered before, in a run that was interrupted, or whose id is known in the new place.
        reasons: why some were left, and how many for each reason.
    """

    part: str
    moved: int = 0
    raw: int = 0
    left: int = 0
    known: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def leave(self, reason: str, count: int = 1) -> None:
        """Count something that was left."""
        self.left += count
        self.reasons[reason] = self.reasons.get(reason, 0) + count


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move has come: `done` of `total` messages."""

    part: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a move did.

    Attributes:
        source: what was moved, in words.
        target: where to, in words.
        parts: by part.
        seconds: how long it took.
    """

    source: str
    target: str
    parts: tuple[MovedPart, ...]
    seconds: float

    @property
    def moved(self) -> int:
        """Return how many messages and jobs entered their new place in this run."""
        return sum(part.moved for part in self.parts if part.part != "deduplication keys")

    @property
    def left(self) -> int:
        """Return how many were left."""
        return sum(part.left for part in self.parts)
