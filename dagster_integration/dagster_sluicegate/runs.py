"""What Dagster's run storage knows about the runs that a depth sensor asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

__all__ = [
    "ATTEMPT_TAG",
    "GENERATION_TAG",
    "QUEUE_TAG",
    "READY_TAG",
    "SENSOR_TAG",
    "Attempt",
    "GateRuns",
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
class GateRuns:
    """The runs of one sensor on one queue, found by our own tags, which Dagster copies to the retries of a run.

    Attributes:
        instance: whose storage is asked.
        queue: name of the queue.
        sensor: name of the sensor.
    """

    instance: dg.DagsterInstance
    queue: str
    sensor: str

    def in_flight(self) -> int:
        """Return how many runs are queued, in progress, or failed and about to be retried by Dagster."""
        unfinished = self.instance.get_runs_count(dg.RunsFilter(tags=self._tags, statuses=_UNFINISHED))
        failed = self._records(statuses=[dg.DagsterRunStatus.FAILURE], tags={_WILL_RETRY_TAG: "true"}, limit=10)
        return unfinished + sum(_awaits_retry(record) for record in failed)

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

    @property
    def _tags(self) -> dict[str, str]:
        return {QUEUE_TAG: self.queue, SENSOR_TAG: self.sensor}

    def _records(
        self, *, tags: dict[str, str], limit: int, statuses: Sequence[dg.DagsterRunStatus] = ()
    ) -> Sequence[dg.RunRecord]:
        return self.instance.get_run_records(
            dg.RunsFilter(tags=self._tags | tags, statuses=list(statuses) or None), limit=limit
        )


def _awaits_retry(record: dg.RunRecord) -> bool:
    return bool(record.dagster_run.is_complete_and_waiting_to_retry) and (
        _seconds_since_end(record) < _RETRY_EXPECTED_SECONDS
    )


def _seconds_since_end(record: dg.RunRecord) -> float:
    # A run that was cancelled in the queue has no end time.
    end = record.end_time if record.end_time is not None else record.update_timestamp.timestamp()
    return max(0.0, time.time() - end)
