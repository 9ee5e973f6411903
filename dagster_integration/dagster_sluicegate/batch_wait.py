"""An op that waits for a batch, for at most a given time."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
import inspect
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_sluicegate.batches import BATCH_ID
from dagster_sluicegate.functions import with_parameters
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import names_of, place_of
from dagster_sluicegate.resource_keys import check_resource, check_resource_key
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = ["build_batch_wait_op"]

_COUNTS = ("total", "done", "dead", "gone")


def build_batch_wait_op(
    *,
    timeout_seconds: float,
    name: str = "wait_for_batch",
    max_dead: int | None = None,
    resource_key: str = "queue",
    queue_name: str | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    tags: Mapping[str, Any] | None = None,
) -> dg.OpDefinition:
    """Build an op that waits until a batch is complete, for at most `timeout_seconds`.

    It holds a worker while it waits, so it is for batches that take minutes. For longer ones use `build_batch_sensor`,
    which holds none. Whoever drains the batch must run elsewhere: a drain that waits for this op's slot never ends it.

    Its input `batch_id` is the id; its output is a dict of `batch_id`, `queue`, `total`, `done`, `dead` and `gone`,
    which are its metadata as well. A batch that is not complete in time fails the step, and a retry waits again.

    Args:
        timeout_seconds: how long it waits.
        name: of the op.
        max_dead: fail, without a retry, when more messages of the complete batch are dead; default: any number passes.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        retry_policy: of the op.
        pool: concurrency pool of the op.
        tags: of the op.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_batch_wait_op


            @dg.op
            def publish(queue: RedisQueueResource) -> str:
                with queue.get_queue() as orders:
                    return orders.batch({"order_id": number} for number in range(1000)).id


            wait = build_batch_wait_op(timeout_seconds=600)


            @dg.job
            def publish_and_wait():
                wait(publish())


            defs = dg.Definitions(
                jobs=[publish_and_wait],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    try:
        check_resource_key(resource_key)
        checks.positive("timeout_seconds", timeout_seconds)
        if max_dead is not None:
            checks.count("max_dead", max_dead, least=0)
        Names(queue_name)
    except ConfigurationError as error:
        raise ConfigurationError(f"op {name!r}: {error}") from None

    def wait(context: dg.OpExecutionContext, batch_id: str, **resources: Any) -> dg.Output[dict[str, Any]]:
        resource = check_resource(resources[resource_key], resource_key)
        with resource.get_queue(queue_name) as queue:
            status = queue.get_batch(batch_id).wait(timeout_seconds)
            place = place_of(queue)
        counts = {count: getattr(status, count) for count in _COUNTS}
        metadata: dict[str, Any] = {BATCH_ID: batch_id, **names_of(place), **resource.page_metadata(place)}
        metadata |= {f"sluicegate/{key}": n for key, n in counts.items()}
        if not status.exists:
            raise dg.Failure(f"op {name!r}: {place} has no batch {batch_id!r}; it was never published, or forgotten")
        if not status.is_complete:
            left = status.waiting + status.delayed + status.in_flight
            raise dg.Failure(
                f"op {name!r}: batch {batch_id!r} of {place} is not complete after {timeout_seconds:g} s, with {left} "
                f"of {status.total} messages left; give it more time, or let build_batch_sensor wait without a worker",
                metadata=metadata,
            )
        if max_dead is not None and status.dead > max_dead:
            raise dg.Failure(
                f"op {name!r}: batch {batch_id!r} of {place} is complete with {status.dead} dead, more than "
                f"{max_dead}; redrive or purge them",
                metadata=metadata,
                allow_retries=False,
            )
        return dg.Output({"batch_id": batch_id, "queue": place.name, **counts}, metadata=metadata)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter("context", kind, annotation=dg.OpExecutionContext),
        inspect.Parameter("batch_id", kind, annotation=str),
        inspect.Parameter(resource_key, kind, annotation=RedisQueueResource),
    ]
    declare = dg.op(
        name=name,
        description=f"Waits until a batch is complete, for at most {timeout_seconds:g} s.",
        out=dg.Out(dict),
        retry_policy=retry_policy,
        pool=pool,
        tags=tags,
    )
    return declare(with_parameters(wait, parameters))
