"""The cursor of a sensor of many gates: what the last tick saw, and which queues the next tick reads first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

__all__ = ["GateCursor"]

_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GateCursor:
    """What one tick leaves to be shown in the UI.

    It decides nothing: without it a gate requests the same runs.

    Attributes:
        queues: per queue what was seen, such as "500 ready, 1 run in flight".
        idle: how many further queues had neither ready messages nor runs in flight.
        failed: per error the labels of the queues that it concerned.
        unread: labels of the queues that the tick had no time for, which the next tick reads first.
    """

    queues: Mapping[str, str] = field(default_factory=dict)
    idle: int = 0
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[str] = ()

    @classmethod
    def of(cls, context: dg.SensorEvaluationContext) -> GateCursor:
        """Return the cursor of the last tick; an empty one, with a warning, if it cannot be read."""
        if not context.cursor:
            return cls()
        try:
            found = json.loads(context.cursor)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']!r}")
            return cls(
                queues=dict(found["queues"]),
                idle=int(found.get("idle", 0)),
                failed=dict(found.get("failed", {})),
                unread=[str(label) for label in found.get("unread", [])],
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            context.log.warning(
                f"The cursor of this sensor cannot be read ({type(error).__name__}: {error}); it starts anew, which "
                "changes no decision."
            )
            return cls()

    def to_text(self) -> str:
        """Return the text for the UI; it is never empty, because Dagster ignores an empty cursor."""
        rest = {"idle": self.idle, "failed": self.failed, "unread": list(self.unread)}
        # The tick table shows the beginning.
        shown = {"queues": self.queues, **{name: value for name, value in rest.items() if value}, "version": _VERSION}
        return json.dumps(shown, ensure_ascii=False)
