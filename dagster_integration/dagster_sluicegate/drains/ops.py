"""A drain as an op, for graphs and jobs, and as a job of its own."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, TypedDict, Unpack

import dagster as dg

from dagster_sluicegate.drains.options import DEFAULT_MAX_MESSAGES, checked_options
from dagster_sluicegate.drains.outcome import OpEvents
from dagster_sluicegate.drains.step import SettleWhen, drain
from dagster_sluicegate.resource_keys import takes_resources
from dagster_sluicegate.tracing import traced_steps

__all__ = ["QueueDrainOpOptions", "build_queue_drain_job", "build_queue_drain_op"]


class QueueDrainOpOptions(TypedDict, total=False):
    """The options of `build_queue_drain_op` besides `name` and `process`; they mean the same there."""

    batch_size: int
    max_messages: int | None
    settle: SettleWhen
    queue_name: str | None
    stream_name: str | None
    group: str | None
    lease_seconds: float | None
    combine: Callable[[list[Any]], Any] | None
    resource_key: str
    io_manager_key: str | None
    required_resource_keys: Set[str]
    retry_policy: dg.RetryPolicy | None
    pool: str | None
    tags: Mapping[str, Any] | None
    description: str | None


def build_queue_drain_op(
    *,
    name: str,
    process: Callable[..., Any],
    batch_size: int = 1000,
    max_messages: int | None = DEFAULT_MAX_MESSAGES,
    settle: SettleWhen = "after_yield",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    lease_seconds: float | None = None,
    combine: Callable[[list[Any]], Any] | None = None,
    resource_key: str = "queue",
    io_manager_key: str | None = None,
    required_resource_keys: Set[str] = frozenset(),
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    tags: Mapping[str, Any] | None = None,
    description: str | None = None,
) -> dg.OpDefinition:
    """Build an op that drains a queue as a drain asset does; see `build_queue_drain_asset` for the guarantees.

    Its output `result` is the list of what `process` returned, one item per batch, or what `combine` makes of it; None
    when `process` wrote everything by itself. The messages are acked after the IO manager has stored that output. With
    nothing to drain there is no output, and the ops behind it are skipped. The output has the metadata of a drain
    asset's materialization.

    Leases are named by the root run and the op in its graph, so that a retry continues with the batches of the first
    try, and two uses of the op in one graph do not share any.

    Args:
        name: of the op.
        process: as for a drain asset; `ctx.op` is Dagster's context.
        batch_size: most messages per batch, up to 10,000; default 1000.
        max_messages: most messages of one run, its retries included; default 100,000. None, for `per_batch` only: as
            many as are ready when the step begins.
        settle: `after_yield` (the default) or `per_batch`; see `build_queue_drain_asset`.
        queue_name: of another queue on the resource's server; default: the resource's own.
        stream_name: of a stream on that server, instead of a queue.
        group: of the stream, which consumes its messages; default: the resource's own.
        lease_seconds: life of a lease without a heartbeat; default: the queue's `visibility_timeout_seconds`.
        combine: makes one value of the list of what `process` returned.
        resource_key: key of the `RedisQueueResource`.
        io_manager_key: where the output goes; default: Dagster's own.
        required_resource_keys: further resources that `process` reads from `ctx.op.resources`.
        retry_policy: of the step. A retry waits up to 20 s for the batch that failed.
        pool: concurrency pool of the step.
        tags: of the op.
        description: for the UI.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_drain_op

            drain_orders = build_queue_drain_op(
                name="drain_orders", process=lambda messages: [message.json() for message in messages]
            )


            @dg.op
            def count(batches: list) -> int:
                return sum(map(len, batches))


            @dg.job
            def orders():
                count(drain_orders())


            defs = dg.Definitions(
                jobs=[orders],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    options = checked_options(
        f"drain op {name!r}",
        name,
        process,
        batch_size=batch_size,
        max_messages=max_messages,
        settle=settle,
        lease_seconds=lease_seconds,
        combine=combine,
        queue_name=queue_name,
        stream_name=stream_name,
        group=group,
        required_resource_keys=required_resource_keys,
    )

    def run(context: dg.OpExecutionContext, given: Mapping[str, Any]) -> Iterator[Any]:
        resource = given[resource_key]
        with options.ref(context, resource_key).open(resource) as queue:
            yield from traced_steps(context, drain(context, queue, options, OpEvents(), given, resource))

    declare = dg.op(
        name=name,
        description=description or options.describe(resource_key),
        out=dg.Out(is_required=False, io_manager_key=io_manager_key),
        retry_policy=retry_policy,
        pool=pool,
        tags=tags,
    )
    return declare(takes_resources([resource_key], run, dg.OpExecutionContext, more=options.step.parameters))


def build_queue_drain_job(
    *,
    name: str,
    process: Callable[..., Any],
    run_tags: Mapping[str, str] | None = None,
    executor_def: dg.ExecutorDefinition | None = None,
    **options: Unpack[QueueDrainOpOptions],
) -> dg.JobDefinition:
    """Build a job whose only op drains a queue, such as a target of a sensor or a schedule.

    Args:
        name: of the job; its op is `{name}_op`.
        process: as for `build_queue_drain_op`.
        run_tags: of each run, such as `{"dagster/max_runtime": "3600"}`.
        executor_def: of the job; default: that of the code location.
        options: of `build_queue_drain_op`.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor, build_queue_drain_job


            def write(messages, ctx):
                lines = [message.text() for message in messages]
                ctx.output_file("build/orders", ".jsonl").write_text("\\n".join(lines))


            drain_orders = build_queue_drain_job(name="drain_orders", process=write, settle="per_batch")

            defs = dg.Definitions(
                jobs=[drain_orders],
                sensors=[build_queue_depth_sensor(name="orders_gate", target=drain_orders, min_ready=1000)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    op = build_queue_drain_op(name=f"{name}_op", process=process, **options)

    @dg.job(name=name, description=op.description, tags=run_tags, executor_def=executor_def)
    def drain_job() -> None:
        op()

    return drain_job
