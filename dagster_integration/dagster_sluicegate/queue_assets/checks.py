"""Asset checks of a queue's depth, age and dead letters."""

from __future__ import annotations

import re
from typing import Any

import dagster as dg

from dagster_sluicegate.queue_assets.evaluation import Bound, QueueCheck
from dagster_sluicegate.queue_refs import QueueAsset, QueueRef, asset_key_of
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import checks as options
from sluicegate.errors import ConfigurationError

__all__ = [
    "build_dead_letter_check",
    "build_queue_age_check",
    "build_queue_depth_check",
]

_NAME = re.compile(r"[A-Za-z0-9_]+")
_PASSES_WHILE: dict[Bound, str] = {
    "max_ready": "{0} messages are ready in {1}",
    "max_age_seconds": "the oldest ready message in {1} has waited for {0} s",
    "max_dead": "{1} has {0} dead letters",
}
_CONSUMERS = (
    "Look for a paused queue, for a consumer or sensor that does not run, and for failing runs of the drain; "
    "otherwise add consumers or raise the bound."
)
_WHAT_TO_DO: dict[Bound, str] = {
    "max_ready": _CONSUMERS,
    "max_age_seconds": _CONSUMERS,
    "max_dead": (
        'Read their errors with `queue.peek(state="dead")`, remove the cause, then redrive the dead letters or purge '
        "them."
    ),
}


def build_queue_depth_check(
    *,
    asset: QueueAsset,
    max_ready: int,
    name: str = "queue_depth",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    description: str | None = None,
) -> dg.AssetChecksDefinition:
    """Build an asset check that fails while too many messages are ready.

    It only reads, and costs one round trip at any depth. When Redis cannot be reached, the check's step fails, and
    Dagster shows the check as one that could not be executed, never as passed.

    Args:
        asset: that is checked: the queue's asset (see `build_queue_source_asset`), another asset, or a key.
        max_ready: most messages that may be ready, 0 or more.
        name: of the check; an asset's checks have different names. Default `queue_depth`.
        severity: of a failure; default `ERROR`.
        blocking: whether a failure keeps downstream assets of the same run from running; needs `ERROR`.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.
        description: Markdown for the UI; default: what passes, and what to do about a failure.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_depth_check, build_queue_source_asset

            orders_queue = build_queue_source_asset(spec="orders_queue")

            defs = dg.Definitions(
                assets=[orders_queue],
                asset_checks=[build_queue_depth_check(asset=orders_queue, max_ready=100_000)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    return _build(
        asset,
        name,
        "max_ready",
        max_ready,
        severity,
        blocking,
        resource_key,
        (queue_name, stream_name, group),
        description,
    )


def build_queue_age_check(
    *,
    asset: QueueAsset,
    max_age_seconds: float,
    name: str = "queue_age",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    description: str | None = None,
) -> dg.AssetChecksDefinition:
    """Build an asset check that fails while the oldest ready message has waited for too long.

    Messages of a paused queue wait too. An empty queue passes. See `build_queue_depth_check` for an outage of Redis.

    Args:
        asset: that is checked: the queue's asset (see `build_queue_source_asset`), another asset, or a key.
        max_age_seconds: how long the oldest ready message may have been ready, above 0.
        name: of the check; an asset's checks have different names. Default `queue_age`.
        severity: of a failure; default `ERROR`.
        blocking: whether a failure keeps downstream assets of the same run from running; needs `ERROR`.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.
        description: Markdown for the UI; default: what passes, and what to do about a failure.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_age_check, build_queue_source_asset

            orders_queue = build_queue_source_asset(spec="orders_queue")

            defs = dg.Definitions(
                assets=[orders_queue],
                asset_checks=[build_queue_age_check(asset=orders_queue, max_age_seconds=3600)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    return _build(
        asset,
        name,
        "max_age_seconds",
        max_age_seconds,
        severity,
        blocking,
        resource_key,
        (queue_name, stream_name, group),
        description,
    )


def build_dead_letter_check(
    *,
    asset: QueueAsset,
    max_dead: int = 0,
    name: str = "dead_letters",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    description: str | None = None,
) -> dg.AssetChecksDefinition:
    """Build an asset check that fails while a queue has too many dead letters.

    See `build_queue_depth_check` for an outage of Redis.

    Args:
        asset: that is checked: the queue's asset (see `build_queue_source_asset`), another asset, or a key.
        max_dead: most dead letters that pass; default 0.
        name: of the check; an asset's checks have different names. Default `dead_letters`.
        severity: of a failure; default `ERROR`.
        blocking: whether a failure keeps downstream assets of the same run from running; needs `ERROR`.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.
        description: Markdown for the UI; default: what passes, and what to do about a failure.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_dead_letter_check, build_queue_source_asset

            orders_queue = build_queue_source_asset(spec="orders_queue")

            defs = dg.Definitions(
                assets=[orders_queue],
                asset_checks=[build_dead_letter_check(asset=orders_queue)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    return _build(
        asset,
        name,
        "max_dead",
        max_dead,
        severity,
        blocking,
        resource_key,
        (queue_name, stream_name, group),
        description,
    )


def _build(
    asset: QueueAsset,
    name: str,
    bound: Bound,
    most: float,
    severity: dg.AssetCheckSeverity,
    blocking: bool,
    resource_key: str,
    names: tuple[str | None, str | None, str | None],
    description: str | None,
) -> dg.AssetChecksDefinition:
    key = asset_key_of(asset, f"check {name!r}")
    definition = f"check {name!r} of {key.to_user_string()!r}"
    _check_options(definition, name, bound, most, severity, blocking)
    ref = QueueRef.checked(definition, resource_key, *names)
    check = QueueCheck(
        queue=ref, asset_key=key, name=name, bound=bound, most=most, severity=severity, blocking=blocking
    )

    def evaluate(_: dg.AssetCheckExecutionContext, resource: RedisQueueResource) -> dg.AssetCheckResult:
        return check.result(ref.look(resource))

    passes_while = _PASSES_WHILE[bound].format(f"at most {most:,}" if most else "no", ref.described)
    declare = dg.asset_check(
        asset=key,
        name=name,
        blocking=blocking,
        description=description or f"Passes while {passes_while}. {_WHAT_TO_DO[bound]}",
        metadata=check.metadata,
    )
    return declare(takes_resource(resource_key, evaluate, dg.AssetCheckExecutionContext))


def _check_options(definition: str, name: str, bound: Bound, most: float, severity: Any, blocking: Any) -> None:
    try:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"name must consist of A-Z, a-z, 0-9 and _, not {name!r}")
        if bound == "max_age_seconds":
            options.positive(bound, most)
        else:
            options.count(bound, most, least=0)
        if not isinstance(severity, dg.AssetCheckSeverity):
            raise ConfigurationError(f"severity must be a dagster.AssetCheckSeverity, not {severity!r}")
        options.flag("blocking", blocking)
        if blocking and severity is not dg.AssetCheckSeverity.ERROR:
            raise ConfigurationError(
                "blocking=True needs severity=AssetCheckSeverity.ERROR, because Dagster lets downstream assets run "
                "after a warning; leave one of the two out"
            )
    except ConfigurationError as error:
        raise type(error)(f"{definition}: {error}") from None
