"""The step of an asset, as YAML describes it."""

from __future__ import annotations

from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from dagster_sluicegate.compat import backfill_policy_resolver
from dagster_sluicegate.components.models import DescribedModel

__all__ = ["PartitionedStepSpec", "RetryPolicySpec", "StepSpec", "with_kind"]


class RetryPolicySpec(DescribedModel):
    """How often, and after which delay, Dagster retries a step."""

    max_retries: int = Field(default=1, description="Retries after the first try.", examples=[3])
    delay: float | None = Field(default=None, description="Seconds before a retry; null: none.", examples=[10])
    backoff: dg.Backoff | None = Field(
        default=None, description="How the delay grows: LINEAR or EXPONENTIAL; null: not at all.", examples=["LINEAR"]
    )
    jitter: dg.Jitter | None = Field(
        default=None,
        description="How chance changes the delay: FULL or PLUS_MINUS; null: not at all.",
        examples=["FULL"],
    )

    def policy(self) -> dg.RetryPolicy:
        """Return Dagster's object."""
        return dg.RetryPolicy(max_retries=self.max_retries, delay=self.delay, backoff=self.backoff, jitter=self.jitter)


class StepSpec(DescribedModel):
    """What concerns the step that materializes an asset."""

    pool: str | None = Field(
        default=None,
        description="Concurrency pool of the step. A lease is taken inside the step, so that none expires in the line.",
        examples=["redis"],
    )
    tags: dict[str, Any] | None = Field(default=None, description="Tags of the step.", examples=[{"team": "shop"}])


class PartitionedStepSpec(StepSpec):
    """What concerns the step of an asset that may have partitions."""

    backfill_policy: Annotated[dg.BackfillPolicy | None, backfill_policy_resolver()] = Field(
        default=None,
        description="How a backfill divides the partitions among runs; null: one run for each.",
        examples=[{"type": "single_run"}, {"type": "multi_run", "max_partitions_per_run": 7}],
    )


def with_kind(asset: dg.AssetSpec) -> dg.AssetSpec:
    """Return the asset with the kind redis, unless it has kinds."""
    return asset if asset.kinds else asset.replace_attributes(kinds={"redis"})
