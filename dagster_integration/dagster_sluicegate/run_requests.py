"""The run requests of a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from dagster_sluicegate.gates import Decision
from dagster_sluicegate.runs import ATTEMPT_TAG, GENERATION_TAG, QUEUE_ID_TAG, QUEUE_TAG, READY_TAG, SENSOR_TAG
from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = ["RunTemplate"]

_MAX_RUNTIME_TAG = "dagster/max_runtime"
_OUR_TAGS = "sluicegate/"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTemplate:
    """What the requests of one sensor have in common.

    Attributes:
        sensor: its name.
        max_runtime_seconds: after which Dagster's `run_monitoring` ends a run; None for no limit.
        run_tags: further tags of the runs.

    Raises:
        ConfigurationError: a limit that cannot work, or tags that are the library's own.
    """

    sensor: str
    max_runtime_seconds: int | None = None
    run_tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_runtime_seconds is not None:
            checks.count("max_runtime_seconds", self.max_runtime_seconds)
        ours = sorted(tag for tag in self.run_tags if tag.startswith(_OUR_TAGS))
        if ours:
            raise ConfigurationError(f"the run tags {ours} are the sensor's own; use other names")

    def requests(self, decision: Decision, **options: Any) -> list[dg.RunRequest]:
        """Return the requests for the runs of a decision; the options are Dagster's own."""
        generation = decision.depth.claimed_total
        return [
            dg.RunRequest(
                run_key=f"{decision.queue.label}:{generation}:{attempt}",
                tags={
                    QUEUE_TAG: decision.queue.name,
                    QUEUE_ID_TAG: decision.queue.queue_id,
                    SENSOR_TAG: self.sensor,
                    GENERATION_TAG: str(generation),
                    ATTEMPT_TAG: str(attempt),
                    READY_TAG: str(decision.depth.ready),
                    **({} if self.max_runtime_seconds is None else {_MAX_RUNTIME_TAG: str(self.max_runtime_seconds)}),
                    **self.run_tags,
                },
                **options,
            )
            for attempt in decision.attempts
        ]
