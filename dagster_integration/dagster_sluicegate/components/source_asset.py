"""The queue as an asset, with its checks, as a component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.models import DescribedModel
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.scaffolders import SourceAssetScaffolder
from dagster_sluicegate.components.steps import with_kind
from dagster_sluicegate.names import Names
from dagster_sluicegate.queue_assets.checks import (
    build_dead_letter_check,
    build_queue_age_check,
    build_queue_depth_check,
)
from dagster_sluicegate.queue_assets.source_asset import build_queue_source_asset
from sluicegate.errors import ConfigurationError

__all__ = ["QueueCheckSpec", "QueueSourceAssetComponent"]

_FACTORIES: Mapping[str, Callable[..., dg.AssetChecksDefinition]] = {
    "max_ready": build_queue_depth_check,
    "max_age_seconds": build_queue_age_check,
    "max_dead": build_dead_letter_check,
}


class QueueCheckSpec(DescribedModel):
    """A check of a queue: it has one bound, which says what it checks."""

    max_ready: int | None = option(build_queue_depth_check, "max_ready", default=None, examples=[100_000])
    max_age_seconds: float | None = option(build_queue_age_check, "max_age_seconds", default=None, examples=[3600])
    max_dead: int | None = option(build_dead_letter_check, "max_dead", default=None, examples=[0])
    name: str | None = Field(
        default=None,
        description="Name of the check; default: `queue_depth`, `queue_age` or `dead_letters`.",
        examples=["too_deep"],
    )
    severity: dg.AssetCheckSeverity = Field(
        default=dg.AssetCheckSeverity.ERROR, description="Severity of a failure: WARN or ERROR.", examples=["WARN"]
    )
    blocking: bool = option(build_queue_depth_check, "blocking", examples=[True])

    def check(self, asset: dg.AssetsDefinition, resource_key: str, names: Names) -> dg.AssetChecksDefinition:
        """Return the check of the asset of a queue or group.

        Raises:
            ConfigurationError: it has no bound, or several.
        """
        bounds = {name: getattr(self, name) for name in _FACTORIES if getattr(self, name) is not None}
        if len(bounds) != 1:
            raise ConfigurationError(
                f"a check of {asset.key.to_user_string()!r} has {' and '.join(bounds) or 'no bound'}; give one of "
                f"{', '.join(_FACTORIES)}"
            )
        (bound,) = bounds
        return _FACTORIES[bound](
            asset=asset,
            severity=self.severity,
            blocking=self.blocking,
            resource_key=resource_key,
            **asdict(names),
            **bounds,
            **({} if self.name is None else {"name": self.name}),
        )


@dg.scaffold_with(SourceAssetScaffolder)
class QueueSourceAssetComponent(QueueComponent):
    """An asset that stands for a queue, with checks of its depth, its age and its dead letters.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueueSourceAssetComponent
        attributes:
          asset:
            key: orders_queue
            group_name: shop
          checks:
            - {max_ready: 100000, severity: WARN}
            - {max_age_seconds: 3600}
            - {max_dead: 0}
    """

    produces: ClassVar[tuple[str, ...]] = ("asset", "asset_check")

    asset: dg.ResolvedAssetSpec = Field(
        description="The asset: its key, its publishers as deps, and what else Dagster shows of it.",
        examples=[{"key": "orders_queue", "deps": ["published_orders"]}],
    )
    checks: list[QueueCheckSpec] = Field(
        default=[],
        description="Checks of the queue, each with one bound.",
        examples=[[{"max_ready": 100_000}, {"max_age_seconds": 3600}, {"max_dead": 0}]],
    )
    min_ready: int | None = option(build_queue_source_asset, "min_ready", examples=[1000])
    max_age_seconds: float | None = option(build_queue_source_asset, "max_age_seconds", examples=[300])
    attempt_delay_seconds: float = option(build_queue_source_asset, "attempt_delay_seconds", examples=[60])
    resource_key: str = option(build_queue_source_asset, "resource_key", examples=["queue"])
    queue_name: str | None = option(build_queue_source_asset, "queue_name", examples=["orders"])
    stream_name: str | None = option(build_queue_source_asset, "stream_name", examples=["orders"])
    group: str | None = option(build_queue_source_asset, "group", examples=["billing"])

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the asset and its checks."""
        options: dict[str, Any] = {
            name: getattr(self, name) for name in type(self).model_fields if name not in ("asset", "checks")
        }
        asset = build_queue_source_asset(spec=with_kind(self.asset), **options)
        names = Names(self.queue_name, self.stream_name, self.group)
        checks = [check.check(asset, self.resource_key, names) for check in self.checks]
        return dg.Definitions(assets=[asset], asset_checks=checks)
