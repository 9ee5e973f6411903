"""Wait until jobs have ended, without a worker, and hand on their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sluicegate.compat import AirflowFailException, conf
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.queue_options import options_of
from airflow_provider_sluicegate.sensors._patient import PatientSensor, raise_failure
from airflow_provider_sluicegate.tracked import BatchLook, BatchQuestion, JobsLook, JobsQuestion, read

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg
    from airflow.triggers.base import BaseTrigger

    from sluicegate.jobs import RedisJobQueue

__all__ = ["RedisJobSensor"]

OnFailed = Literal["fail", "ignore"]
_CHOICES = ("fail", "ignore")
_SHOWN = 20


class RedisJobSensor(PatientSensor):
    """
    Wait until all of some jobs have ended: completed, failed or cancelled.

    It does not matter who works on them. With ``deferrable=True`` the sensor occupies no worker of Airflow.

    The jobs are named by their ids, or by the batch in which they were enqueued. The value that goes to XCom counts
    them: ``queue``, ``total``, ``completed``, ``failed`` and ``cancelled``. With ids it has ``results`` too: per id of
    a completed job what its worker returned, as long as all of it fits into ``max_xcom_bytes``. Results that do not fit
    are ``left_out``, a number; read them in a task with ``RedisQueueHook().get_jobs(queue_name).get_many(ids)``. A
    batch has counts only, because it remembers no ids.

    An unreachable Redis delays the sensor, as it delays :class:`RedisQueueSensor`.

    **Delivery semantics.** The sensor only reads. A failed, repeated or cleared sensor changes nothing, and finds the
    same results while the records of the jobs are kept (``result_ttl_seconds`` of the queue).

    .. code-block:: python

        jobs = RedisJobEnqueueOperator(task_id="jobs", queue_name="reports", payloads=reports)
        done = RedisJobSensor(task_id="done", queue_name="reports", job_ids=jobs.output, deferrable=True)

    :param queue_name: the name of the queue of jobs. (templated)
    :param job_ids: the ids of the jobs, a list. (templated)
    :param batch_id: instead, the batch in which they were enqueued; one that is not known yet is waited for.
        (templated)
    :param on_failed: what failed and cancelled jobs mean when all have ended: ``"fail"`` fails the task at once, so
        that you redrive the jobs and clear it; ``"ignore"`` counts them and succeeds.
    :param max_xcom_bytes: the most bytes of the results as JSON.
    :param deferrable: wait in the triggerer, looking every ``poke_interval`` seconds; default: Airflow's
        ``[operators] default_deferrable``.
    :param queue_options: options of :class:`sluicegate.jobs.RedisJobQueue`, such as ``retry_budget_seconds``.
    :param redis_conn_id: the connection. (templated)
    """

    template_fields: Sequence[str] = ("queue_name", "job_ids", "batch_id", "redis_conn_id")
    ui_color = "#cfe8dc"
    in_vain = "the jobs have not ended"

    def __init__(
        self,
        *,
        queue_name: str,
        job_ids: Sequence[str] | XComArg | None = None,
        batch_id: str | XComArg | None = None,
        on_failed: OnFailed = "fail",
        max_xcom_bytes: int = 48_000,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.job_ids = job_ids
        self.batch_id = batch_id
        self.on_failed = on_failed
        self.max_xcom_bytes = max_xcom_bytes
        self.deferrable = deferrable
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id

    def execute(self, context: Context) -> Any:
        """
        Wait until the jobs have ended; see :class:`~airflow.sdk.BaseSensorOperator` for the modes.

        :return: the counts, and the results that fit.
        :raises AirflowFailException: an argument or the connection cannot work as given, a job is not known, or jobs
            failed or were cancelled and ``on_failed`` is ``"fail"``.
        :raises TaskDeferred: jobs are left, and the sensor is deferrable.
        """
        from sluicegate import checks

        try:
            with fail_at_once():
                checks.one_of("on_failed", self.on_failed, _CHOICES)
                checks.count("max_xcom_bytes", self.max_xcom_bytes)
                self._question()
                if not self.deferrable:
                    return super().execute(context)
                answer = self._first_look(context)
            if answer.is_done:
                return answer.xcom_value
            self._wait_in_triggerer(self._end())
        finally:
            self._close()

    def found(self, context: Context) -> Any:
        """Read the statuses, and the results once all have ended; return None before that."""
        look: BatchLook | JobsLook = read(self._queue, self._question())
        self.log.info("%s", look)
        if isinstance(look, BatchLook):
            return self._judged(_value_of_batch(look.value())) if look.status.is_complete else None
        if unknown := look.ids_of(None):
            raise AirflowFailException(
                f"queue {self.queue_name!r}: {len(unknown)} of {len(look.statuses)} jobs are not known, such as "
                f"{unknown[0]!r}: they were never enqueued here, or their records were removed after their end; check "
                "queue_name and redis_conn_id, and raise result_ttl_seconds and max_ended of the queue"
            )
        return self._judged(self._value(look)) if look.has_ended else None

    def execute_complete(self, context: Context, event: Mapping[str, Any], deadline: str | None = None) -> Any:
        """
        Read the results on a worker, after the triggerer saw the jobs end.

        :param context: of the task.
        :param event: of :class:`~airflow_provider_sluicegate.triggers.jobs.RedisJobTrigger`, or of
            :class:`~airflow_provider_sluicegate.triggers.batch.RedisQueueBatchTrigger`.
        :param deadline: when the sensor times out.
        :return: the counts, and the results that fit.
        """
        raise_failure(event)
        if "value" in event:
            return self._judged(_value_of_batch(event["value"]))
        try:
            with fail_at_once():
                value = self.found(context)
            if value is None and deadline is not None:  # a redrive has reopened one
                from datetime import datetime

                self._wait_in_triggerer(datetime.fromisoformat(deadline), initial_delay_seconds=self.poke_interval)
            return value
        finally:
            self._close()

    def opened(self) -> RedisJobQueue:
        """Return the queue of the jobs."""
        return self._hook.get_jobs(self.queue_name, **options_of(self.queue_options))

    def trigger(self, initial_delay_seconds: float) -> BaseTrigger:
        """Return what waits until the jobs have ended."""
        from airflow_provider_sluicegate.triggers.batch import RedisQueueBatchTrigger
        from airflow_provider_sluicegate.triggers.jobs import RedisJobTrigger

        question = self._question()
        common: dict[str, Any] = {
            "queue_name": self.queue_name,
            "poll_interval_seconds": self.poke_interval,
            "initial_delay_seconds": initial_delay_seconds,
            "redis_conn_id": self.redis_conn_id,
        }
        if isinstance(question, BatchQuestion):
            return RedisQueueBatchTrigger(batch_id=question.batch_id, **common)
        return RedisJobTrigger(job_ids=question.job_ids, **common)

    def _question(self) -> BatchQuestion | JobsQuestion:
        from sluicegate.core.tracking import batch_name
        from sluicegate.errors import ConfigurationError
        from sluicegate.jobs.view import check_ids

        batch_id: Any = None if self.batch_id in ("", "None") else self.batch_id
        ids: Any = self.job_ids
        if (ids is None) == (batch_id is None):
            raise ConfigurationError(
                "give exactly one of job_ids and batch_id; if they are templates or outputs of tasks, see what they "
                "render to"
            )
        if batch_id is not None:
            batch_name(batch_id)
            return BatchQuestion(self.queue_name, batch_id)
        if isinstance(ids, (str, bytes, Mapping)) or not isinstance(ids, Sequence):
            raise ConfigurationError(
                f"job_ids must be a list of ids, not a {type(ids).__name__}; give the output of the task that enqueued "
                "(`jobs.output`), or let the DAG render native objects (render_template_as_native_obj=True)"
            )
        return JobsQuestion(self.queue_name, tuple(check_ids(ids)))

    def _value(self, look: JobsLook) -> dict[str, Any]:
        """Return the counts, and the results of completed jobs until they fill ``max_xcom_bytes``."""
        from airflow_provider_sluicegate.payloads import results_of

        jobs: RedisJobQueue = self._queue
        results, left_out = results_of(jobs, look.ids_of("completed"), self.max_xcom_bytes)
        if left_out:
            self.log.warning(
                "queue %r: %d results do not fit into max_xcom_bytes=%d and stay in Redis; read them in a task with "
                "RedisQueueHook(%r).get_jobs(%r).get_many(ids)",
                *(self.queue_name, left_out, self.max_xcom_bytes, self.redis_conn_id, self.queue_name),
            )
        return {
            "queue": self.queue_name,
            "total": len(look.statuses),
            "completed": look.statuses.count("completed"),
            "failed": look.statuses.count("failed"),
            "cancelled": look.statuses.count("cancelled"),
            "failed_ids": look.ids_of("failed", "cancelled")[:_SHOWN],
            "results": results,
            "left_out": left_out,
        }

    def _judged(self, value: dict[str, Any]) -> dict[str, Any]:
        bad = value["failed"] + value["cancelled"]
        if bad and self.on_failed == "fail":
            shown = ", ".join(value.get("failed_ids", ()))
            which = f"{value['failed']} failed and {value['cancelled']} were cancelled{shown and ': '}{shown}"
            raise AirflowFailException(
                f"queue {self.queue_name!r}: of {value['total']} jobs, {which}; redrive failed jobs and clear this "
                'task, or give on_failed="ignore"'
            )
        return value


def _value_of_batch(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a batch in the words of jobs."""
    return {
        "queue": counts["queue"],
        "batch_id": counts["batch_id"],
        "total": counts["total"],
        "completed": counts["done"],
        "failed": counts["dead"],
        "cancelled": counts["gone"],
        "completed_at": counts["completed_at"],
    }
