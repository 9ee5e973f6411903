"""Ops that move dead letters back to their queue, and that delete what a queue holds."""

# Annotations are not postponed here: Dagster wants those of `context` and `config` to be classes.
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_sluicegate.functions import with_parameters
from dagster_sluicegate.places import names_of, place_of
from dagster_sluicegate.resource_keys import check_resource, check_resource_key
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import DeadMessage, checks
from sluicegate.consumer import QueueConsumer
from sluicegate.core.transitions.redrive import RedriveRequest
from sluicegate.errors import ConfigurationError
from sluicegate.purging import count_states, states_of

__all__ = ["PurgeConfig", "RedriveConfig", "build_purge_op", "build_redrive_op"]


class RedriveConfig(dg.Config):
    """Which dead letters a redrive moves back, and how many; a dead letter passes every filter that is given."""

    queue_name: str | None = Field(default=None, description="Of another queue than the resource's.")
    stream_name: str | None = Field(default=None, description="Of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Of the stream; default: the resource's own.")
    reason: str | None = Field(
        default=None, description="Only those buried for this reason, such as max_delivery_count or handler_error."
    )
    error_type: str | None = Field(default=None, description="Only those whose last error has this class name.")
    older_than_seconds: float | None = Field(default=None, description="Only those buried at least this long ago.")
    deduplication_key: str | None = Field(default=None, description="Only those published under this key.")
    ids: list[str] | None = Field(default=None, description="Only these messages.")
    limit: int | None = Field(default=None, description="Most dead letters to move; null for all.")
    after: str | None = Field(
        default=None, description="Where an earlier redrive stopped: the `after` of its output, with the same filters."
    )
    dry_run: bool = Field(default=False, description="Move nothing, and count what would be moved.")


class PurgeConfig(dg.Config):
    """What a purge deletes: one or more states, or everything; it only counts unless `dry_run` is false."""

    queue_name: str | None = Field(default=None, description="Of another queue than the resource's.")
    stream_name: str | None = Field(default=None, description="Of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Of the stream; default: the resource's own.")
    states: list[str] | None = Field(
        default=None, description="One or more of pending, returned, delayed, dead, completed, failed."
    )
    everything: bool = Field(default=False, description="All six states instead.")
    dry_run: bool = Field(default=True, description="Delete nothing, and count what would be deleted.")


def build_redrive_op(
    *,
    name: str = "redrive_dead_letters",
    where: Callable[[DeadMessage], bool] | None = None,
    page_size: int = 250,
    resource_key: str = "queue",
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    tags: Mapping[str, Any] | None = None,
) -> dg.OpDefinition:
    """Build an op that moves dead letters back to the end of their queue, with their deliveries reset.

    Each dead letter moves once, in bounded steps that can be repeated, so a retry moves those that are left. Messages
    that die while it works stay dead. Its config is `RedriveConfig`.

    The output is a dict of `queue`, `redriven`, `blocked` (another message holds the deduplication key, or the value is
    none of Sluicegate's), `scanned`, `after` and `dry_run`; the counts are its metadata as well. `after` is None unless
    `limit` or a full queue (`max_pending_length`) stopped it; a later run continues there with the same filters. In a
    job, `redrive(start_after=other())` has it wait for another op.

    Args:
        name: of the op.
        where: moves only those for which this function of a `sluicegate.DeadMessage` returns true.
        page_size: dead letters that are read and moved per call, from 1 to 1,000.
        resource_key: key of the `RedisQueueResource`.
        retry_policy: of the op.
        pool: concurrency pool of the op.
        tags: of the op.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, RedriveConfig, build_redrive_op

            redrive = build_redrive_op(name="redrive")


            @dg.asset
            def orders() -> None: ...


            config = RedriveConfig(reason="handler_error", limit=1000)


            @dg.job(config=dg.RunConfig(ops={"redrive": config}))
            def try_again() -> None:
                redrive()


            defs = dg.Definitions(
                assets=[orders],
                jobs=[try_again],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    try:
        checks.callback("where", where)
        checks.synchronous("where", where)
        RedriveRequest(page_size=page_size)
    except ConfigurationError as error:
        raise ConfigurationError(f"op {name!r}: {error}") from None

    def redrive(context: dg.OpExecutionContext, config: RedriveConfig, queue: QueueConsumer) -> dict[str, Any]:
        done = queue.redrive(
            reason=config.reason,
            older_than_seconds=config.older_than_seconds,
            deduplication_key=config.deduplication_key,
            ids=config.ids,
            where=_both(config.error_type, where),
            limit=config.limit,
            after=config.after,
            page_size=page_size,
            dry_run=config.dry_run,
        )
        context.log.info(
            f"{place_of(queue)}: {done.redriven} dead letters {'would be' if config.dry_run else 'are'} redriven, "
            f"{done.blocked} are blocked, {done.scanned} were read{'' if done.after is None else '; more may be left'}"
        )
        return {
            **_names(queue),
            "redriven": done.redriven,
            "blocked": done.blocked,
            "scanned": done.scanned,
            "after": done.after,
            "dry_run": config.dry_run,
        }

    described = f"Moves dead letters of the queue of the resource `{resource_key}` back to its end."
    return _op(name, described, RedriveConfig, redrive, resource_key, retry_policy, pool, tags)


def build_purge_op(
    *,
    name: str = "purge",
    resource_key: str = "queue",
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    tags: Mapping[str, Any] | None = None,
) -> dg.OpDefinition:
    """Build an op that deletes what a queue holds in one or more states, and frees the keys of these messages.

    It deletes only if its config (`PurgeConfig`) names states and says `dry_run: false`; otherwise it counts. Deleted
    messages are gone. Messages in flight stay, and may return to the queue afterwards. Each state is emptied of what is
    in it when its turn comes; a retry also deletes what has arrived since the first try.

    The output is a dict of `queue`, `deleted` (a count per state), `total` and `dry_run`; the counts are its metadata
    as well. In a job, `purge(start_after=other())` has it wait for another op.

    Args:
        name: of the op.
        resource_key: key of the `RedisQueueResource`.
        retry_policy: of the op.
        pool: concurrency pool of the op.
        tags: of the op.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import PurgeConfig, RedisQueueResource, build_purge_op

            purge = build_purge_op()


            @dg.asset
            def orders() -> None: ...


            @dg.job(config=dg.RunConfig(ops={"purge": PurgeConfig(states=["dead"], dry_run=False)}))
            def clean() -> None:
                purge()


            defs = dg.Definitions(
                assets=[orders],
                jobs=[clean],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """

    def purge(context: dg.OpExecutionContext, config: PurgeConfig, queue: QueueConsumer) -> dict[str, Any]:
        states = states_of(config.states, everything=config.everything)
        deleted = count_states(queue, states) if config.dry_run else {state: queue.purge(state) for state in states}
        total = sum(deleted.values())
        counts = ", ".join(f"{count} {state}" for state, count in deleted.items())
        context.log.info(
            f"{place_of(queue)}: {total} {'would be' if config.dry_run else 'are'} deleted ({counts}); "
            f"{queue.depth().in_flight} messages are in flight and stay"
        )
        return {**_names(queue), "deleted": deleted, "total": total, "dry_run": config.dry_run}

    described = f"Deletes what the queue of the resource `{resource_key}` holds in chosen states, or counts it."
    return _op(name, described, PurgeConfig, purge, resource_key, retry_policy, pool, tags)


def _op(
    name: str,
    description: str,
    config_class: type[dg.Config],
    work: Callable[..., dict[str, Any]],
    resource_key: str,
    retry_policy: dg.RetryPolicy | None,
    pool: str | None,
    tags: Mapping[str, Any] | None,
) -> dg.OpDefinition:
    """Return an op that works on the queue of its config; a mistake in the config fails it without a retry."""
    check_resource_key(resource_key)

    def run(context: dg.OpExecutionContext, config: Any, **resources: Any) -> dg.Output[dict[str, Any]]:
        resource = check_resource(resources[resource_key], resource_key)
        try:
            with resource.get_consumer(config.queue_name, stream_name=config.stream_name, group=config.group) as queue:
                report = work(context, config, queue)
        except (ConfigurationError, TypeError) as error:
            raise dg.Failure(f"op {name!r}: {error}", allow_retries=False) from error
        return dg.Output(report, metadata=_metadata(report))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter("context", kind, annotation=dg.OpExecutionContext),
        inspect.Parameter("config", kind, annotation=config_class),
        inspect.Parameter(resource_key, kind, annotation=RedisQueueResource),
    ]
    declare = dg.op(
        name=name,
        description=description,
        ins={"start_after": dg.In(dg.Nothing)},
        out=dg.Out(dict),
        retry_policy=retry_policy,
        pool=pool,
        tags=tags,
    )
    return declare(with_parameters(run, parameters))


def _names(queue: QueueConsumer) -> dict[str, str]:
    return {name.removeprefix("sluicegate/"): value for name, value in names_of(place_of(queue)).items()}


def _metadata(report: Mapping[str, Any]) -> dict[str, Any]:
    flat = {**{name: value for name, value in report.items() if name != "deleted"}, **report.get("deleted", {})}
    return {f"sluicegate/{name}": value for name, value in flat.items() if value is not None}


def _both(error_type: str | None, where: Callable[[DeadMessage], bool] | None) -> Callable[[DeadMessage], bool] | None:
    if error_type is None:
        return where
    return lambda letter: letter.error_type == error_type and (where is None or where(letter))
