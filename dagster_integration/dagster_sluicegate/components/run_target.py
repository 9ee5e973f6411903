"""What a sensor runs, as YAML names it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dagster_sluicegate.components.functions import Job
from dagster_sluicegate.components.models import DescribedModel
from sluicegate.errors import ConfigurationError

__all__ = ["RunTarget"]


class RunTarget(DescribedModel):
    """A selection of assets, or a job."""

    target: str | None = Field(
        default=None,
        description="What to run: a selection of assets without partitions. Give this or `job`.",
        examples=["key:orders", "group:shop"],
    )
    job: Job | None = Field(
        default=None,
        description="What to run: a job without partitions, as `module:name`. Give this or `target`.",
        examples=["shop.jobs:drain_orders"],
    )

    def resolve_target(self, owner: str) -> Any:
        """Return the selection or the job.

        Args:
            owner: who runs it, for errors.

        Raises:
            ConfigurationError: both are given, or none is.
        """
        if self.target is not None and self.job is not None:
            raise ConfigurationError(f"{owner}: give target, a selection of assets, or job, not both")
        if self.target is None and self.job is None:
            raise ConfigurationError(
                f"{owner}: target is missing; give a selection of assets, such as key:orders, or a job"
            )
        return self.job if self.target is None else self.target
