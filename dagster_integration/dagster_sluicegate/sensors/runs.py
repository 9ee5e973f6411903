"""What Dagster's run storage knows about the runs that the sensors of a queue asked for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import dagster as dg

__all__ = [
    "ATTEMPT_TAG",
    "GENERATION_TAG",
    "MAX_DELAY_SECONDS",
    "PUBLISHED_TAG",
    "QUEUE_ID_TAG",
    "READY_TAG",
    "SENSOR_TAG",
    "Failures",
    "GateRuns",
    "History",
    "Unfinished",
]

QUEUE_ID_TAG = "sluicegate/queue_id"
SENSOR_TAG = "sluicegate/sensor"
GENERATION_TAG = "sluicegate/generation"
ATTEMPT_TAG = "sluicegate/attempt"
READY_TAG = "sluicegate/ready"
PUBLISHED_TAG = "sluicegate/published"

MAX_DELAY_SECONDS = 3600.0
"""No failure holds a gate shut for longer, so that older ones need not be read."""

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_FAILED = [dg.DagsterRunStatus.FAILURE]
_WILL_RETRY_TAG = "dagster/will_retry"
# Dagster 1.12 has no tag with the code location alone.
_REPOSITORY_TAG = ".dagster/repository"
_ONLY_REPOSITORY = "__repository__"  # of a code location whose file has `Definitions`
_MOST_PER_QUEUE = 20
_MOST = 1000  # runs that one question reads: each costs about 0.2 ms
# Run retries start within seconds. A gate must not stay shut for one that was promised and never came.
_RETRY_EXPECTED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that is queued or in progress, or failed and is about to be retried by Dagster.

    Attributes:
        run_id: of the run.
        status: of the run, such as `STARTED`.
        age_seconds: since it started, or was created; 0 for one that waits for its retry.
    """

    run_id: str
    status: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures since the last run that did not fail.

    Attributes:
        count: of runs that failed one after the other.
        seconds_ago: since the newest of them ended.
    """

    count: int = 0
    seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """What became of the runs that were requested for one generation of a queue.

    Attributes:
        next_attempt: the number of the next run of this generation, from 0.
        unfinished: ids of its runs that may still claim.
        ended_run_id: its run that ended last; "" if none has ended.
        ended_status: of that run, such as `FAILURE`.
        ended_seconds_ago: since that run ended.
        succeeded_run_id: its newest run that succeeded; "" if none has.
        published_then: how many messages had ever been published when that run was requested; 0 if it does not say.
        failures: of the queue's runs of any generation.
    """

    next_attempt: int = 0
    unfinished: frozenset[str] = frozenset()
    ended_run_id: str = ""
    ended_status: str = ""
    ended_seconds_ago: float = 0.0
    succeeded_run_id: str = ""
    published_then: int = 0
    failures: Failures = Failures()


@dataclass(frozen=True, slots=True)
class GateRuns:
    """The runs that gates asked for, found by our own tags, which Dagster copies to the retries of a run.

    Every method asks about any number of queues in as many questions as about one, unless very many runs answer.

    Attributes:
        instance: whose storage is asked.
        repository: name of the repository and of its code location, such as `__repository__@orders`, whose runs are
            counted; None for every one.
        sensor: name of the only sensor whose runs are counted; None for every one of a queue.
    """

    instance: dg.DagsterInstance
    repository: str | None = None
    sensor: str | None = None

    @classmethod
    def of(cls, context: dg.SensorEvaluationContext, sensor: str | None = None) -> GateRuns:
        """Return the runs of the code location of a sensor; of every one in a test that has none."""
        origin = context.code_location_origin
        name = context.repository_name or _ONLY_REPOSITORY
        return cls(context.instance, f"{name}@{origin.location_name}" if origin is not None else None, sensor)

    def unfinished(self, queue_ids: Collection[str]) -> dict[str, list[Unfinished]]:
        """Return per queue the runs that may still claim."""
        now = time.time()
        found: dict[str, list[Unfinished]] = {queue_id: [] for queue_id in queue_ids}
        for queue_id, records in self._records(queue_ids, statuses=_UNFINISHED).items():
            found[queue_id] += [
                Unfinished(
                    record.dagster_run.run_id,
                    record.dagster_run.status.value,
                    max(0.0, now - (record.start_time or record.create_timestamp.timestamp())),
                )
                for record in records
            ]
        failed = self._records(
            queue_ids, statuses=_FAILED, tags={_WILL_RETRY_TAG: "true"}, seconds=_RETRY_EXPECTED_SECONDS
        )
        for queue_id, records in failed.items():
            found[queue_id] += [
                Unfinished(record.dagster_run.run_id, record.dagster_run.status.value, 0.0)
                for record in records
                if _awaits_retry(record)
            ]
        return found

    def histories(self, generations: Mapping[str, str]) -> dict[str, History]:
        """Return what became of the runs of some queues, given the current generation of each."""
        queue_ids = list(generations)
        failures = self._failures(queue_ids)
        runs = self._records(queue_ids, tags={GENERATION_TAG: sorted(set(generations.values()))})
        return {
            queue_id: _history(
                [
                    record
                    for record in runs.get(queue_id, ())
                    if record.dagster_run.tags[GENERATION_TAG] == generations[queue_id]
                ],
                failures.get(queue_id, Failures()),
            )
            for queue_id in queue_ids
        }

    def _failures(self, queue_ids: Collection[str]) -> dict[str, Failures]:
        """Return how many of the newest runs failed one after the other, for queues where one failed lately."""
        lately = self._records(queue_ids, statuses=_FAILED, seconds=MAX_DELAY_SECONDS)
        ended = self._records(list(lately), statuses=_ENDED) if lately else {}
        found = {}
        for queue_id, records in ended.items():
            count = 0
            while count < len(records) and records[count].dagster_run.status is dg.DagsterRunStatus.FAILURE:
                count += 1
            if count:
                found[queue_id] = Failures(count, _seconds_since_end(records[0]))
        return found

    def _records(
        self,
        queue_ids: Collection[str],
        *,
        tags: Mapping[str, str | Sequence[str]] = MappingProxyType({}),
        statuses: Sequence[dg.DagsterRunStatus] = (),
        seconds: float | None = None,
    ) -> dict[str, list[dg.RunRecord]]:
        """Return runs by queue, the newest first: at least the newest twenty of each queue.

        Args:
            queue_ids: of the queues.
            tags: that a run must have.
            statuses: one of which a run must have; none for any.
            seconds: only runs that changed within so many seconds.
        """
        ours: dict[str, str | Sequence[str]] = {QUEUE_ID_TAG: list(queue_ids)}
        if self.repository is not None:
            ours[_REPOSITORY_TAG] = self.repository
        if self.sensor is not None:
            ours[SENSOR_TAG] = self.sensor
        since = None if seconds is None else datetime.fromtimestamp(time.time(), UTC) - timedelta(seconds=seconds)
        limit = min(_MOST_PER_QUEUE * len(queue_ids), _MOST)
        records = self.instance.get_run_records(
            dg.RunsFilter(tags={**ours, **tags}, statuses=list(statuses) or None, updated_after=since), limit=limit
        )
        if len(records) == limit and len(queue_ids) > 1:  # runs of one queue may have left no room for another's
            alone = [self._records([each], tags=tags, statuses=statuses, seconds=seconds) for each in queue_ids]
            return {queue_id: found for one in alone for queue_id, found in one.items()}
        by_queue: defaultdict[str, list[dg.RunRecord]] = defaultdict(list)
        for record in records:
            by_queue[record.dagster_run.tags[QUEUE_ID_TAG]].append(record)
        return dict(by_queue)


def _history(records: Sequence[dg.RunRecord], failures: Failures) -> History:
    """Summarize the runs of one generation, which Dagster's retries and re-executions belong to as well."""
    ended = [record for record in records if record.dagster_run.is_finished and not _awaits_retry(record)]
    ids = {record.dagster_run.run_id for record in records} - {record.dagster_run.run_id for record in ended}
    last = min(ended, key=_seconds_since_end, default=None)
    succeeded = next((record.dagster_run for record in ended if record.dagster_run.is_success), None)
    return History(
        # Not the newest run's number plus one: a retry is newer than the attempts after the one that it repeats.
        next_attempt=max((int(record.dagster_run.tags[ATTEMPT_TAG]) for record in records), default=-1) + 1,
        unfinished=frozenset(ids),
        ended_run_id=last.dagster_run.run_id if last else "",
        ended_status=last.dagster_run.status.value if last else "",
        ended_seconds_ago=_seconds_since_end(last) if last else 0.0,
        succeeded_run_id=succeeded.run_id if succeeded else "",
        published_then=int(succeeded.tags.get(PUBLISHED_TAG, 0)) if succeeded else 0,
        failures=failures,
    )


def _awaits_retry(record: dg.RunRecord) -> bool:
    return bool(record.dagster_run.is_complete_and_waiting_to_retry) and (
        _seconds_since_end(record) < _RETRY_EXPECTED_SECONDS
    )


def _seconds_since_end(record: dg.RunRecord) -> float:
    # A run that was cancelled in the queue has no end time.
    end = record.end_time if record.end_time is not None else record.update_timestamp.timestamp()
    return max(0.0, time.time() - end)
