"""Further ways to make drain assets: a decorator, and several assets at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import dagster as dg

from dagster_sluicegate.drains.asset import QueueDrainAssetOptions, Spec, build_queue_drain_asset
from dagster_sluicegate.queue_refs import QueueAsset
from sluicegate.errors import ConfigurationError

__all__ = ["QueueDrain", "build_queue_drain_assets", "queue_drain_asset"]


def queue_drain_asset(
    *, spec: Spec | None = None, **options: Unpack[QueueDrainAssetOptions]
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make the asset that drains a queue of the function under this decorator; see `build_queue_drain_asset`.

    Args:
        spec: the asset; default: the function's name as key, and its docstring as description.
        options: of `build_queue_drain_asset`.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import QueueDrainContext, RedisQueueResource, queue_drain_asset
            from sluicegate import Message


            class Settings(dg.Config):
                folder: str = "build/orders"


            @queue_drain_asset(settle="per_batch", on_empty="observe")
            def orders(messages: list[Message], ctx: QueueDrainContext, config: Settings) -> None:
                \"\"\"The orders of the shop, one file per batch.\"\"\"
                lines = [message.text() for message in messages]
                ctx.output_file(config.folder, ".jsonl").write_text("\\n".join(lines))


            defs = dg.Definitions(
                assets=[orders],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """

    def decorate(process: Callable[..., Any]) -> dg.AssetsDefinition:
        chosen = spec
        if chosen is None:
            chosen = dg.AssetSpec(process.__name__, description=process.__doc__, kinds={"redis"})
        return build_queue_drain_asset(spec=chosen, process=process, **options)

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDrain:
    """One of the drains of `build_queue_drain_assets`.

    Attributes:
        spec: the asset, or its key.
        queue_name: of the queue, on the server of the resource; None for the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream; None for the resource's own.
        resource_key: of the queue resource; None for that of the call.
        queue_asset: the asset that stands for the queue, or its key; None for none.
        process: the function; None for that of the call.
    """

    spec: Spec
    queue_name: str | None = None
    stream_name: str | None = None
    group: str | None = None
    resource_key: str | None = None
    queue_asset: QueueAsset | None = None
    process: Callable[..., Any] | None = None


def build_queue_drain_assets(
    *,
    drains: Sequence[QueueDrain],
    process: Callable[..., Any] | None = None,
    **options: Unpack[QueueDrainAssetOptions],
) -> list[dg.AssetsDefinition]:
    """Build one asset for each of several queues, which share their options.

    Each asset is a step of its own, so that a queue whose server is away, or whose messages fail, neither fails nor
    delays the others, and a retry repeats only what failed.

    Args:
        drains: the queues and their assets.
        process: the function of the drains that have none of their own.
        options: of `build_queue_drain_asset`, for all of them.

    Raises:
        ConfigurationError: there are no drains, two of them have the same key, one has no function, or an option cannot
            work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import QueueDrain, RedisQueueResource, build_queue_drain_assets

            defs = dg.Definitions(
                assets=build_queue_drain_assets(
                    drains=[QueueDrain(spec=["raw", name], queue_name=name) for name in ("orders", "refunds")],
                    process=lambda messages: [message.json() for message in messages],
                ),
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"))},
            )
    """
    if not drains:
        raise ConfigurationError("build_queue_drain_assets: drains is empty; name a QueueDrain for each queue")
    built: dict[dg.AssetKey, dg.AssetsDefinition] = {}
    for one in drains:
        chosen = one.process or process
        if chosen is None:
            raise ConfigurationError(
                f"build_queue_drain_assets: the drain {one.spec!r} has no process; give one to it, or to the call"
            )
        own = options.copy()
        if one.queue_name is not None:
            own["queue_name"] = one.queue_name
        if one.stream_name is not None:
            own["stream_name"] = one.stream_name
        if one.group is not None:
            own["group"] = one.group
        if one.resource_key is not None:
            own["resource_key"] = one.resource_key
        if one.queue_asset is not None:
            own["queue_asset"] = one.queue_asset
        asset = build_queue_drain_asset(spec=one.spec, process=chosen, **own)
        if asset.key in built:
            raise ConfigurationError(
                f"build_queue_drain_assets: two drains have the key {asset.key.to_user_string()!r}; give each its own"
            )
        built[asset.key] = asset
    return list(built.values())
