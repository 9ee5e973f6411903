"""What the gates of one sensor run: jobs, or assets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import dagster as dg

from sluicegate.errors import ConfigurationError

__all__ = ["JOB_CLASSES", "Target", "Targets"]

Target: TypeAlias = Any
"""One job, or assets or a selection of them, as `target` of `dg.sensor` takes them."""

JOB_CLASSES = (dg.JobDefinition, type(dg.define_asset_job("any")))  # Dagster has no public name for the second


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of several gates, in their order: either all are jobs, or all are selections of assets.

    Attributes:
        jobs: one per gate; none if they are assets.
        selections: one per gate; none if they are jobs.
    """

    jobs: Sequence[Any] = ()
    selections: Sequence[dg.AssetSelection] = ()

    @classmethod
    def of(cls, targets: Sequence[Target]) -> Targets:
        """Separate jobs from assets.

        Raises:
            ConfigurationError: some are jobs and some are assets, which Dagster allows in no sensor.
        """
        jobs = [target for target in targets if isinstance(target, JOB_CLASSES)]
        if not jobs:
            return cls(selections=[_selection(target) for target in targets])
        if len(jobs) < len(targets):
            raise ConfigurationError(
                "some gates target jobs and some target assets, which Dagster allows in no sensor; make jobs of the "
                "assets with dg.define_asset_job, or build two sensors"
            )
        return cls(jobs=jobs)

    @property
    def of_sensor(self) -> Mapping[str, Any]:
        """Return how the sensor declares what it may run."""
        if self.jobs:
            return {"jobs": list({job.name: job for job in self.jobs}.values())}
        return {"asset_selection": reduce(or_, self.selections)}

    def of_request(self, gate: int, context: dg.SensorEvaluationContext) -> Mapping[str, Any]:
        """Return how a run request names the target of one gate."""
        if self.jobs:
            return {"job_name": self.jobs[gate].name}
        if context.repository_def is None:
            raise ConfigurationError(
                "this sensor looks its assets up in its code location; in a test, give "
                "dg.build_sensor_context(definitions=defs, ...)"
            )
        keys = self.selections[gate].resolve(context.repository_def.asset_graph)
        return {"asset_selection": sorted(keys, key=lambda key: key.path)}


def _selection(target: Any) -> dg.AssetSelection:
    if isinstance(target, dg.AssetSelection):
        return target
    if isinstance(target, str):
        return dg.AssetSelection.from_string(target)
    several = isinstance(target, Sequence)
    return dg.AssetSelection.assets(*target) if several else dg.AssetSelection.assets(target)
