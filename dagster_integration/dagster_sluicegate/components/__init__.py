"""The components that `dg list components` lists and `defs.yaml` names; nothing else is public here.

`dg` imports this module, by an entry point, in every environment that has this distribution. An error here would break
`dg` for all packages there. Where Dagster is missing, or is a version that lacks what the components need, the module
therefore lists nothing, and naming a component raises the reason.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

__all__ = [
    "QueueBatchSensorComponent",
    "QueueDepthSensorComponent",
    "QueueDrainAssetComponent",
    "QueueGatesSensorComponent",
    "QueuePublishAssetComponent",
    "QueueSourceAssetComponent",
    "RedisQueueResourceComponent",
]

_reason: Exception | None = None
try:
    from dagster_sluicegate.components.batch_sensor import QueueBatchSensorComponent
    from dagster_sluicegate.components.depth_sensor import QueueDepthSensorComponent
    from dagster_sluicegate.components.drain import QueueDrainAssetComponent
    from dagster_sluicegate.components.gates_sensor import QueueGatesSensorComponent
    from dagster_sluicegate.components.publish import QueuePublishAssetComponent
    from dagster_sluicegate.components.resource import RedisQueueResourceComponent
    from dagster_sluicegate.components.source_asset import QueueSourceAssetComponent
except Exception as error:  # noqa: BLE001  (whatever another version of Dagster raises)
    _reason = error
    for _name in __all__:
        globals().pop(_name, None)


if not TYPE_CHECKING:  # a checker of types would accept every name

    def __getattr__(name: str) -> object:
        """Raise the reason why a component is missing."""
        if name in __all__ and _reason is not None:
            raise ImportError(
                f"{__name__}.{name} needs dagster>=1.12,<2, and found {_found()}: {type(_reason).__name__}: {_reason}"
            ) from _reason
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _found() -> str:
    try:
        return f"dagster {version('dagster')}"
    except PackageNotFoundError:
        return "no dagster"
