"""The run requests of a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import dagster as dg

from dagster_sluicegate.places import names_of
from dagster_sluicegate.sensors.decision import Decision
from dagster_sluicegate.sensors.runs import ATTEMPT_TAG, GENERATION_TAG, QUEUE_ID_TAG, READY_TAG, SENSOR_TAG
from sluicegate import Depth, checks
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

__all__ = ["RunTemplate", "tags_of_run"]

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

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of every run: its limit, and those of the user."""
        limit = {} if self.max_runtime_seconds is None else {_MAX_RUNTIME_TAG: str(self.max_runtime_seconds)}
        return {**limit, **self.run_tags}

    def requests(
        self, decision: Decision, *, tags: Mapping[str, str] = MappingProxyType({}), **options: Any
    ) -> list[dg.RunRequest]:
        """Return the requests for the runs of a decision.

        Args:
            decision: whose attempts are requested.
            tags: of the library, besides those of every run.
            options: Dagster's own.
        """
        queue = decision.queue
        return [
            dg.RunRequest(
                run_key=f"{queue.label}:{decision.generation}:{attempt}",
                tags={
                    **tags_of_run(queue.place, queue.queue_id, decision.generation, attempt, decision.depth),
                    SENSOR_TAG: self.sensor,
                    **tags,
                    **self.tags,
                },
                **options,
            )
            for attempt in decision.attempts
        ]


def tags_of_run(place: Place, queue_id: str, generation: str, attempt: int, depth: Depth) -> dict[str, str]:
    """Return the tags by which later ticks find a run, and what was ready when it was requested."""
    return {
        **names_of(place),
        QUEUE_ID_TAG: queue_id,
        GENERATION_TAG: generation,
        ATTEMPT_TAG: str(attempt),
        READY_TAG: str(depth.ready),
    }
