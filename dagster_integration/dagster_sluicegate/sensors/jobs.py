"""A sensor that requests a run when the jobs of a set have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_sluicegate.depths import Located
from dagster_sluicegate.queue_refs import QueueAsset, QueueRef, asset_key_of
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS
from dagster_sluicegate.sensors.run_requests import RunTemplate
from dagster_sluicegate.sensors.targets import Target
from dagster_sluicegate.sensors.watching import Ending, FromAsset, FromFunction, Source, WatchCursor, WatchSensor
from dagster_sluicegate.urls import impatient_url
from sluicegate import checks
from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from sluicegate.jobs import Job

__all__ = ["build_job_sensor"]

JobSets = Mapping[str, Sequence[str]]
JobIds = JobSets | Callable[[dg.SensorEvaluationContext], JobSets]
JobRunConfigFn = Callable[[dg.SensorEvaluationContext, "Mapping[str, Job]"], dg.RunConfig | Mapping[str, Any]]
_JOB_IDS = "sluicegate/job_ids"
_MAX_SETS = 1000


def build_job_sensor(
    *,
    name: str,
    target: Target,
    asset: QueueAsset | None = None,
    job_ids: JobIds | None = None,
    max_failed: int | None = None,
    same_partition: bool = False,
    max_sets: int = 100,
    resource_key: str = "queue",
    queue_name: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    max_runtime_seconds: int | None = 86_400,
    run_tags: Mapping[str, str] | None = None,
    run_config_fn: JobRunConfigFn | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run when all jobs of a set have ended: completed, failed for good, or cancelled.

    No worker waits: the sensor reads the states of the jobs, and changes nothing in Redis. For more than some hundred
    jobs enqueue a batch, and use `build_batch_sensor`, which reads counts only.

    The run key is `jobs:queue:set:end`, with the time in ms at which the last job ended. So a tick that is repeated
    starts no second run. A failed job that is tried again and ends later requests another one.

    A job whose record was removed (`result_ttl_seconds`) counts as ended.

    The runs have the tags `sluicegate/job_set`, `/jobs_total` and `/jobs_failed`, and those of the queue.

    Args:
        name: of the sensor.
        target: what to run: assets, an asset selection, or one job.
        asset: whose materializations name the jobs that they enqueued, as a list of ids in the metadata
            `sluicegate/job_ids`, or its key. Each materialization is a set. Give this or `job_ids`.
        job_ids: the ids of the jobs by the name of their set, or a function of the context that returns them at each
            tick.
        max_failed: request a run only if at most so many jobs of the set have failed; other sets are awaited until
            their failed jobs are tried again. Default: any number.
        same_partition: the run is about the partition of the materialization.
        max_sets: how many sets a tick looks at; default 100.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue of jobs, where the resource serves several; default: the resource's own.
        minimum_interval_seconds: between two looks; default 30.
        max_runtime_seconds: the runs' tag `dagster/max_runtime`; default a day, None for no tag.
        run_tags: further tags of the runs.
        run_config_fn: called with the context and the jobs by their ids to make the run's config. No payloads.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text.
        tags: of the sensor itself, for the UI.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_job_sensor


            @dg.asset
            def sent_mails(queue: RedisQueueResource) -> dg.MaterializeResult:
                with queue.get_jobs() as jobs:
                    ids = jobs.enqueue_many([{"to": "ada"}, {"to": "eve"}], kind="mail").ids
                return dg.MaterializeResult(metadata={"sluicegate/job_ids": list(ids)})


            @dg.asset(deps=[sent_mails])
            def report() -> None: ...


            defs = dg.Definitions(
                assets=[sent_mails, report],
                sensors=[build_job_sensor(name="mails_sent", target=report, asset=sent_mails)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="mails")},
            )
    """
    definition = f"sensor {name!r}"
    try:
        template = RunTemplate(sensor=name, max_runtime_seconds=max_runtime_seconds, run_tags=dict(run_tags or {}))
        checks.count("max_sets", max_sets, _MAX_SETS)
        if max_failed is not None:
            checks.count("max_failed", max_failed, least=0)
        checks.flag("same_partition", same_partition)
        if (asset is None) == (job_ids is None):
            raise ConfigurationError("give either asset, which enqueues the jobs, or job_ids, their ids by set")
        if same_partition and asset is None:
            raise ConfigurationError("same_partition needs asset, whose materializations have the partitions")
    except ConfigurationError as error:
        raise ConfigurationError(f"{definition}: {error}") from None
    key = None if asset is None else asset_key_of(asset, definition)
    ref = QueueRef.checked(definition, resource_key, queue_name)

    def read(
        context: dg.SensorEvaluationContext, where: Located, source: Source, sets: list[str]
    ) -> Mapping[str, Ending]:
        assert isinstance(source, (_SetsOfAsset, _GivenSets))
        members = source.members(context, sets)
        jobs = _read(where, [job_id for ids in members.values() for job_id in ids])
        return {name: _ending(name, members[name], jobs, max_failed) for name in sets}

    sensor = WatchSensor(
        name=name,
        kind="jobs",
        ref=ref,
        source_of=lambda label: _GivenSets(job_ids or {}) if key is None else _SetsOfAsset(key, _JOB_IDS, label),
        read=read,
        most=max_sets,
        same_partition=same_partition,
        run_config_fn=run_config_fn,
        run_tags=template.tags,
    )
    declare = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or f"Requests a run when a set of jobs of {ref.in_words} has ended. Only reads.",
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, sensor.look, dg.SensorEvaluationContext))


@dataclass(slots=True)
class _GivenSets:
    """Sets that are given, or that a function returns at each tick.

    Attributes:
        given: the ids by set, or the function.
        is_final: whether a set that is named exists.
    """

    given: JobIds
    is_final: bool = False
    _sets: JobSets = field(default_factory=dict)

    def watched(self, context: dg.SensorEvaluationContext, cursor: WatchCursor, most: int) -> WatchCursor:
        self._sets = self.given(context) if callable(self.given) else self.given
        return FromFunction("job_ids", list(self._sets)).watched(context, cursor, most)

    def still_watches(self, *, may_reopen: bool) -> bool:
        return True

    def members(self, context: dg.SensorEvaluationContext, sets: Sequence[str]) -> JobSets:
        return {name: list(self._sets[name]) for name in sets}


@dataclass(frozen=True, slots=True)
class _SetsOfAsset(FromAsset):
    """Sets that an asset records, each named by the storage id of its materialization."""

    def name_of(self, record: Any, value: object) -> str | None:
        return str(record.storage_id) if isinstance(value, list) and value else None

    def members(self, context: dg.SensorEvaluationContext, sets: Sequence[str]) -> JobSets:
        """Read the ids again, which the event log keeps, so that the cursor need not."""
        wanted = dg.AssetRecordsFilter(asset_key=self.asset_key, storage_ids=[int(name) for name in sets])
        found: dict[str, Any] = {
            str(record.storage_id): record.asset_materialization.metadata[self.metadata].value
            for record in context.instance.fetch_materializations(wanted, limit=len(sets)).records
            if record.asset_materialization is not None
        }
        return {name: [str(job_id) for job_id in found.get(name, [])] for name in sets}


def _read(where: Located, ids: Sequence[str]) -> Mapping[str, Job]:
    """Read jobs without retries; those whose record was removed are left out."""
    from sluicegate.jobs import RedisJobQueue

    with RedisJobQueue(where.place.name, url=impatient_url(where.url), retry_budget_seconds=0) as jobs:
        found: Mapping[str, Job] = jobs.get_many(list(dict.fromkeys(ids)))
        return found


def _ending(name: str, members: Sequence[str], jobs: Mapping[str, Job], max_failed: int | None) -> Ending:
    """Return how far a set of jobs has come."""
    found = [jobs[job_id] for job_id in members if job_id in jobs]
    unended = sum(not job.is_ended for job in found)
    failed = sum(job.status == "failed" for job in found)
    ends = [job.ended_at.timestamp() for job in found if job.ended_at is not None]
    too_many = max_failed is not None and failed > max_failed
    return Ending(
        exists=bool(found),
        end=f"{max(ends, default=0.0) * 1000:.0f}" if found and not unended else "",
        held=f"has ended with {failed} failed job{'' if failed == 1 else 's'}, more than {max_failed}"
        if too_many and not unended
        else "",
        may_reopen=failed > 0,
        words=f"has {unended} of {len(members)} jobs left" if found else "has no job yet",
        tags={
            "sluicegate/job_set": name,
            "sluicegate/jobs_total": str(len(members)),
            "sluicegate/jobs_failed": str(failed),
        },
        status={job_id: jobs[job_id] for job_id in members if job_id in jobs},
    )
