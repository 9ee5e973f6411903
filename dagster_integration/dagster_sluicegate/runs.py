"""What Dagster's run storage knows about the runs that the sensors of a queue asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import dagster as dg

__all__ = [
    "ATTEMPT_TAG",
    "GENERATION_TAG",
    "QUEUE_TAG",
    "READY_TAG",
    "SENSOR_TAG",
    "Attempt",
    "Failures",
    "GateRuns",
    "Unfinished",
]

QUEUE_TAG = "sluicegate/queue"
SENSOR_TAG = "sluicegate/sensor"
GENERATION_TAG = "sluicegate/generation"
ATTEMPT_TAG = "sluicegate/attempt"
READY_TAG = "sluicegate/ready"

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_WILL_RETRY_TAG = "dagster/will_retry"
_LOCATION_TAG = "dagster/code_location"
_MOST = 20  # runs that one question reads
# Run retries start within seconds. A gate must not stay shut for one that was promised and never came.
_RETRY_EXPECTED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest run of a generation.

    Attributes:
        number: which attempt at this generation it is, from 0.
        run_id: of the run.
        status: of the run, such as `FAILURE`.
        ended_seconds_ago: None while the run is unfinished or waits for its retry.
    """

    number: int
    run_id: str
    status: str
    ended_seconds_ago: float | None


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
class GateRuns:
    """The runs that gates of one queue asked for, found by our own tags, which Dagster copies to the retries of a run.

    Attributes:
        instance: whose storage is asked.
        queue: name of the queue.
        location: name of the code location, whose runs are counted; None for every one.
        sensor: name of the only sensor whose runs are counted; None for every one of the queue.
    """

    instance: dg.DagsterInstance
    queue: str
    location: str | None = None
    sensor: str | None = None

    def unfinished(self) -> list[Unfinished]:
        """Return the runs that may still claim, at most twenty."""
        now = time.time()
        found = [
            Unfinished(
                record.dagster_run.run_id,
                record.dagster_run.status.value,
                max(0.0, now - (record.start_time or record.create_timestamp.timestamp())),
            )
            for record in self._records(statuses=_UNFINISHED)
        ]
        failed = self._records(statuses=[dg.DagsterRunStatus.FAILURE], tags={_WILL_RETRY_TAG: "true"})
        return found + [
            Unfinished(record.dagster_run.run_id, record.dagster_run.status.value, 0.0)
            for record in failed
            if _awaits_retry(record)
        ]

    def newest_attempt(self, generation: int) -> Attempt | None:
        """Return the newest run of a generation; None if there was none."""
        for record in self._records(tags={GENERATION_TAG: str(generation)}, limit=1):
            run = record.dagster_run
            over = run.is_finished and not _awaits_retry(record)
            return Attempt(
                number=int(run.tags[ATTEMPT_TAG]),
                run_id=run.run_id,
                status=run.status.value,
                ended_seconds_ago=_seconds_since_end(record) if over else None,
            )
        return None

    def failures(self) -> Failures:
        """Return how many of the newest runs failed one after the other, at most twenty."""
        ended = [record for record in self._records() if record.dagster_run.is_finished]
        count = 0
        while count < len(ended) and ended[count].dagster_run.status is dg.DagsterRunStatus.FAILURE:
            count += 1
        return Failures(count, _seconds_since_end(ended[0])) if count else Failures()

    def _records(
        self,
        *,
        tags: Mapping[str, str] = MappingProxyType({}),
        limit: int = _MOST,
        statuses: Sequence[dg.DagsterRunStatus] = (),
    ) -> Sequence[dg.RunRecord]:
        ours = {QUEUE_TAG: self.queue}
        if self.location is not None:
            ours[_LOCATION_TAG] = self.location
        if self.sensor is not None:
            ours[SENSOR_TAG] = self.sensor
        return self.instance.get_run_records(
            dg.RunsFilter(tags={**ours, **tags}, statuses=list(statuses) or None), limit=limit
        )


def _awaits_retry(record: dg.RunRecord) -> bool:
    return bool(record.dagster_run.is_complete_and_waiting_to_retry) and (
        _seconds_since_end(record) < _RETRY_EXPECTED_SECONDS
    )


def _seconds_since_end(record: dg.RunRecord) -> float:
    # A run that was cancelled in the queue has no end time.
    end = record.end_time if record.end_time is not None else record.update_timestamp.timestamp()
    return max(0.0, time.time() - end)
