"""The publish asset as a component."""

from __future__ import annotations

from typing import ClassVar, Literal

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.functions import Function
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.scaffolders import PublishScaffolder
from dagster_sluicegate.components.steps import PartitionedStepSpec, RetryPolicySpec, with_kind
from dagster_sluicegate.publishing.asset import build_queue_publish_asset

__all__ = ["QueuePublishAssetComponent"]


@dg.scaffold_with(PublishScaffolder)
class QueuePublishAssetComponent(QueueComponent):
    """An asset that publishes what your function returns or yields, and whose retries publish only what is missing.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueuePublishAssetComponent
        attributes:
          asset:
            key: published_orders
            group_name: shop
          produce: .handler:produce
          deduplication_key: order_id
          retry_policy:
            max_retries: 3
            delay: 10
    """

    produces: ClassVar[tuple[str, ...]] = ("asset",)

    asset: dg.ResolvedAssetSpec = Field(
        description="The asset: its key, its partitions, and what else Dagster shows of it. It is of the kind redis.",
        examples=[{"key": "published_orders", "group_name": "shop"}],
    )
    produce: Function = option(build_queue_publish_asset, "produce", examples=["shop.orders:produce"])
    batch_size: int = option(build_queue_publish_asset, "batch_size", examples=[1000])
    deduplication_key: str | list[str] | None = option(
        build_queue_publish_asset,
        "deduplication_key",
        description=(
            "What makes two messages the same: a field, a list of fields, or a template such as "
            "`{tenant}:{order_id}`. Default: the resource's, or else the position in the run."
        ),
        examples=["order_id", ["tenant", "order_id"]],
    )
    retry_window_seconds: float = option(build_queue_publish_asset, "retry_window_seconds", examples=[86_400])
    headers: dict[str, str] | None = option(build_queue_publish_asset, "headers", examples=[{"source": "shop"}])
    delay_seconds: float = option(build_queue_publish_asset, "delay_seconds", examples=[60])
    durability: Literal["memory", "fsync"] = option(
        build_queue_publish_asset,
        "durability",
        description="What each batch waits for: `memory`, or `fsync` for the server's disk.",
        examples=["fsync"],
    )
    as_batch: bool = option(build_queue_publish_asset, "as_batch", examples=[True])
    batch_id: Function | None = option(
        build_queue_publish_asset,
        "batch_id",
        description=(
            "A function of the context that returns the id of the batch; it implies `as_batch`. Default: the root "
            "run, the asset and its partitions."
        ),
        examples=["shop.orders:batch_id"],
    )
    queue_name: str | None = option(build_queue_publish_asset, "queue_name", examples=["orders"])
    stream_name: str | None = option(build_queue_publish_asset, "stream_name", examples=["orders"])
    resource_key: str = option(build_queue_publish_asset, "resource_key", examples=["queue"])
    retry_policy: RetryPolicySpec | None = option(
        build_queue_publish_asset,
        "retry_policy",
        description="How Dagster retries the step. A retry publishes only what is missing.",
        examples=[{"max_retries": 3, "delay": 10}],
    )
    op: PartitionedStepSpec | None = Field(
        default=None,
        description="The pool, the tags and the backfill policy of the step.",
        examples=[{"pool": "redis"}],
    )

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the asset only."""
        step = self.op or PartitionedStepSpec()
        publish = build_queue_publish_asset(
            spec=with_kind(self.asset),
            produce=self.produce,
            batch_size=self.batch_size,
            deduplication_key=self.deduplication_key,
            retry_window_seconds=self.retry_window_seconds,
            headers=self.headers,
            delay_seconds=self.delay_seconds,
            durability=self.durability,
            as_batch=self.as_batch,
            batch_id=self.batch_id,
            queue_name=self.queue_name,
            stream_name=self.stream_name,
            resource_key=self.resource_key,
            backfill_policy=step.backfill_policy,
            retry_policy=self.retry_policy.policy() if self.retry_policy else None,
            pool=step.pool,
            op_tags=step.tags,
        )
        return dg.Definitions(assets=[publish])
