"""What a step sends to a process that drains for it, by Dagster Pipes."""

from __future__ import annotations

import dagster as dg

from dagster_sluicegate.drains.reports import RUN_ID
from dagster_sluicegate.identity import has_work, lease_run_id
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import in_title
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate.errors import ConfigurationError

__all__ = ["queue_has_work", "queue_pipes_extras"]


def queue_has_work(
    context: dg.AssetExecutionContext,
    resource: RedisQueueResource,
    *,
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
) -> bool:
    """Return whether a process that drains the queue is worth its start.

    It is if messages are ready and the queue is not paused, and for each later try of the step, which takes over what
    an earlier process left open. Ask before the process starts: once it has, Dagster demands a materialization, also of
    nothing.

    Args:
        context: of the step.
        resource: the queue, which is only read.
        queue_name: of another queue on the resource's server; default: the resource's own.
        stream_name: of a stream on that server, instead of a queue.
        group: of the stream, which consumes its messages; default: the resource's own.
    """
    place = resource.resolve_consumed(Names(queue_name, stream_name, group))
    with resource.get_consumer(queue_name, stream_name=stream_name, group=group) as queue:
        depth = queue.depth()
    if has_work(context, depth):
        return True
    why = "is paused" if depth.paused else "has no ready message"
    context.log.info(f"{in_title(place)} {why}; no process is started.")
    return False


def queue_pipes_extras(context: dg.AssetExecutionContext) -> dict[str, str]:
    """Return the `extras` for a process that drains a queue: the id that names its leases, and nothing else.

    A retry of the step and a re-execution of the run send the same id, so the process takes over what an earlier one
    left open. No message, no URL and no password is sent: the process makes the queue by itself, claims, writes and
    acks, and reports with `report_drain`.

    Args:
        context: of the step of one asset.

    Raises:
        ConfigurationError: the step makes several assets, so that no one of them names the leases.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, queue_has_work, queue_pipes_extras


            @dg.multi_asset(specs=[dg.AssetSpec("orders", skippable=True)])
            def orders(
                context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient, queue: RedisQueueResource
            ):
                if queue_has_work(context, queue):
                    command = ["spark-submit", "jobs/store_orders.py"]
                    process = pipes.run(context=context, command=command, extras=queue_pipes_extras(context))
                    yield from process.get_results()


            defs = dg.Definitions(
                assets=[orders],
                resources={
                    "pipes": dg.PipesSubprocessClient(),
                    "queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders"),
                },
            )
    """
    keys = sorted(key.to_user_string() for key in context.selected_asset_keys)
    if len(keys) != 1:
        raise ConfigurationError(
            "queue_pipes_extras names leases by the asset of the step, and this step makes "
            f"{', '.join(keys) or 'none'}; give each queue a step of its own"
        )
    return {RUN_ID: lease_run_id(context, context.asset_key)}
