"""What has changed since a sample that a viewer has: histories and unchanged places are sent once per connection."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sluicegate.place import Place
from sluicegate.web.shapes import Row

__all__ = ["Changes"]

# Ages and waiting times differ in every sample. They stand for moments, which stay.
_AGES = {"oldest_ready_age_seconds": -1, "next_due_seconds": 1, "next_expiry_seconds": 1}
_SAME_SECONDS = 1.0  # the time of a sample is that of its beginning; Redis reads a place a little later
_Moments: TypeAlias = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    number: int
    facts: Mapping[str, Any]
    moments: _Moments


@dataclass(frozen=True)
class Changes:
    """Knows of every place in which sample its row has last changed.

    Attributes:
        since: in which sample a place was last added or removed; whoever has an earlier one needs all places.
    """

    since: int = 0
    _known: Mapping[Place, _Known] = field(default_factory=dict, repr=False)

    def after(self, number: int, at: float, rows: Mapping[Place, Row]) -> Changes:
        """Return what is known with one more sample.

        Args:
            number: of the sample.
            at: its time.
            rows: of all places, without their histories.
        """
        known = {place: self._one(place, number, at, row) for place, row in rows.items()}
        return Changes(self.since if known.keys() == self._known.keys() else number, known)

    def places(self, since: int) -> Set[Place]:
        """Return the places that have changed after a sample."""
        return {place for place, each in self._known.items() if each.number > since}

    def _one(self, place: Place, number: int, at: float, row: Row) -> _Known:
        """Return when a row has last changed, and what it was then, so that small differences do not add up."""
        depth = row["depth"] or {}
        moments = tuple(None if depth.get(name) is None else at + sign * depth[name] for name, sign in _AGES.items())
        facts = {name: value for name, value in row.items() if name not in ("depth", "history")}
        facts["depth"] = {name: value for name, value in depth.items() if name not in _AGES}
        known = self._known.get(place)
        if known is not None and known.facts == facts and _are_same(known.moments, moments):
            return known
        return _Known(number, facts, moments)


def _are_same(some: _Moments, others: _Moments) -> bool:
    return all(
        one is other if one is None or other is None else abs(one - other) <= _SAME_SECONDS
        for one, other in zip(some, others, strict=True)
    )
