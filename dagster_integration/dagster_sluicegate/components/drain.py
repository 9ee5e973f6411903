"""The drain asset as a component."""

from __future__ import annotations

from typing import ClassVar, Literal

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.functions import Function
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.scaffolders import DrainScaffolder
from dagster_sluicegate.components.steps import RetryPolicySpec, StepSpec, with_kind
from dagster_sluicegate.drains.asset import build_queue_drain_asset

__all__ = ["QueueDrainAssetComponent"]


@dg.scaffold_with(DrainScaffolder)
class QueueDrainAssetComponent(QueueComponent):
    """An asset that drains a queue: it claims batches, calls your function, and acks them after the result is stored.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueueDrainAssetComponent
        attributes:
          asset:
            key: orders
            group_name: shop
            description: Orders as JSON lines, a file for each batch.
          process: .handler:process
          batch_size: 1000
          max_messages: 100000
          retry_policy:
            max_retries: 3
            delay: 10
    """

    produces: ClassVar[tuple[str, ...]] = ("asset",)

    asset: dg.ResolvedAssetSpec = Field(
        description="The asset: its key, and what else Dagster shows of it. Without kinds, it is of the kind redis.",
        examples=[{"key": "orders", "group_name": "shop"}],
    )
    process: Function = option(
        build_queue_drain_asset,
        "process",
        examples=["shop.handlers:write_orders", ".handler:process"],
    )
    batch_size: int = option(build_queue_drain_asset, "batch_size", examples=[1000])
    max_messages: int | None = option(build_queue_drain_asset, "max_messages", examples=[100_000])
    settle: Literal["after_yield", "per_batch"] = option(build_queue_drain_asset, "settle", examples=["per_batch"])
    on_empty: Literal["skip", "observe", "materialize"] = option(
        build_queue_drain_asset, "on_empty", examples=["observe"]
    )
    queue_asset: dg.ResolvedAssetKey | None = option(build_queue_drain_asset, "queue_asset", examples=["orders_queue"])
    queue_name: str | None = option(build_queue_drain_asset, "queue_name", examples=["orders"])
    stream_name: str | None = option(build_queue_drain_asset, "stream_name", examples=["orders"])
    group: str | None = option(build_queue_drain_asset, "group", examples=["billing"])
    check_specs: list[dg.ResolvedAssetCheckSpec] = option(
        build_queue_drain_asset,
        "check_specs",
        default=[],
        examples=[[{"name": "complete", "asset": "orders", "blocking": True}]],
    )
    lease_seconds: float | None = option(build_queue_drain_asset, "lease_seconds", examples=[60])
    combine: Function | None = option(build_queue_drain_asset, "combine", examples=["shop.handlers:concatenate"])
    resource_key: str = option(build_queue_drain_asset, "resource_key", examples=["queue"])
    io_manager_key: str = option(
        build_queue_drain_asset,
        "io_manager_key",
        description="Key of the IO manager that stores what `process` returns; default: Dagster's own default.",
        examples=["warehouse"],
    )
    required_resource_keys: list[str] = option(
        build_queue_drain_asset, "required_resource_keys", default=[], examples=[["warehouse"]]
    )
    retry_policy: RetryPolicySpec | None = option(
        build_queue_drain_asset,
        "retry_policy",
        description="How Dagster retries the step. A retry waits up to 20 s for the batch that failed.",
        examples=[{"max_retries": 3, "delay": 10}],
    )
    op: StepSpec | None = Field(
        default=None, description="The concurrency pool and the tags of the step.", examples=[{"pool": "redis"}]
    )

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the asset only."""
        step = self.op or StepSpec()
        drain = build_queue_drain_asset(
            spec=with_kind(self.asset),
            process=self.process,
            batch_size=self.batch_size,
            max_messages=self.max_messages,
            settle=self.settle,
            on_empty=self.on_empty,
            queue_asset=self.queue_asset,
            queue_name=self.queue_name,
            stream_name=self.stream_name,
            group=self.group,
            check_specs=self.check_specs,
            lease_seconds=self.lease_seconds,
            combine=self.combine,
            resource_key=self.resource_key,
            io_manager_key=self.io_manager_key,
            required_resource_keys=set(self.required_resource_keys),
            retry_policy=self.retry_policy.policy() if self.retry_policy else None,
            pool=step.pool,
            op_tags=step.tags,
        )
        return dg.Definitions(assets=[drain])
