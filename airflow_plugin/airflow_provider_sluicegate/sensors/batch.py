"""Wait until everything that a batch published has been drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sluicegate.compat import AirflowFailException, conf
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.queue_options import options_of
from airflow_provider_sluicegate.sensors._patient import PatientSensor, raise_failure
from airflow_provider_sluicegate.tracked import BatchLook, BatchQuestion, read

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg
    from airflow.triggers.base import BaseTrigger

    from sluicegate import RedisMessageQueue

__all__ = ["RedisQueueBatchSensor"]

OnDead = Literal["fail", "ignore"]
_CHOICES = ("fail", "ignore")


class RedisQueueBatchSensor(PatientSensor):
    """
    Wait until a batch is complete: its publish has finished, and none of its messages waits, is delayed or in flight.

    It does not matter who drained the messages, where, and how often they were tried. Messages that were cancelled,
    purged or dropped have ended too: they are ``gone``. A redrive of the batch's dead letters reopens it, and the
    sensor waits for them if it looks then.

    With ``deferrable=True`` the sensor waits in the triggerer and occupies no worker; all sensors of a connection there
    share one poller. An unreachable Redis delays it, as it delays :class:`RedisQueueSensor`.

    **Delivery semantics.** The sensor only reads, at a cost that does not grow with the batch. A failed, repeated or
    cleared sensor changes nothing, and finds the same end while the record of the batch is kept.

    The value that goes to XCom holds ``queue``, ``batch_id``, ``total``, ``done``, ``dead``, ``gone`` and
    ``completed_at``, never a payload or an id of a message.

    .. code-block:: python

        publish = RedisQueuePublishOperator(
            task_id="publish", queue_name="orders", path="/data/orders.csv", batch_id="orders/{{ run_id }}"
        )
        drained = RedisQueueBatchSensor(
            task_id="drained", queue_name="orders", batch_id=publish.output["batch_id"], deferrable=True
        )

    :param queue_name: the name of the queue. (templated)
    :param batch_id: the id of the batch, as the publish operator got it and hands it on. One that is not known yet is
        waited for. (templated)
    :param on_dead: what dead letters among the batch mean when it is complete: ``"fail"`` fails the task at once, so
        that you redrive them and clear it; ``"ignore"`` counts them and succeeds.
    :param deferrable: wait in the triggerer, looking every ``poke_interval`` seconds; default: Airflow's
        ``[operators] default_deferrable``.
    :param queue_options: options of :class:`sluicegate.RedisMessageQueue`, such as ``retry_budget_seconds``.
    :param redis_conn_id: the connection. (templated)
    """

    template_fields: Sequence[str] = ("queue_name", "batch_id", "redis_conn_id")
    ui_color = "#cfe8dc"

    def __init__(
        self,
        *,
        queue_name: str,
        batch_id: str | XComArg,
        on_dead: OnDead = "fail",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.batch_id = batch_id
        self.on_dead = on_dead
        self.deferrable = deferrable
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id

    def execute(self, context: Context) -> Any:
        """
        Wait until the batch is complete; see :class:`~airflow.sdk.BaseSensorOperator` for the modes.

        :return: the counts.
        :raises AirflowFailException: an argument or the connection cannot work as given, or messages of the batch are
            dead and ``on_dead`` is ``"fail"``.
        :raises TaskDeferred: the batch is not complete, and the sensor is deferrable.
        """
        from sluicegate import checks

        try:
            with fail_at_once():
                checks.one_of("on_dead", self.on_dead, _CHOICES)
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
        """Read the counts of the batch; return None while it is not complete."""
        look: BatchLook = read(self._queue, self._question())
        self.log.info("%s", look)
        return self._judged(look.value()) if look.status.is_complete else None

    def execute_complete(self, context: Context, event: Mapping[str, Any], deadline: str | None = None) -> Any:
        """
        End on a worker after the triggerer saw the batch complete.

        :param context: of the task.
        :param event: of :class:`~airflow_provider_sluicegate.triggers.batch.RedisQueueBatchTrigger`.
        :param deadline: when the sensor would have timed out.
        :return: the counts.
        """
        raise_failure(event)
        return self._judged(event["value"])

    def opened(self) -> RedisMessageQueue:
        """Return the queue of the batch."""
        return self._hook.get_queue(self.queue_name, **options_of(self.queue_options))

    def trigger(self, initial_delay_seconds: float) -> BaseTrigger:
        """Return what waits until the batch is complete."""
        from airflow_provider_sluicegate.triggers.batch import RedisQueueBatchTrigger

        return RedisQueueBatchTrigger(
            queue_name=self.queue_name,
            batch_id=self._question().batch_id,
            poll_interval_seconds=self.poke_interval,
            initial_delay_seconds=initial_delay_seconds,
            redis_conn_id=self.redis_conn_id,
        )

    def _question(self) -> BatchQuestion:
        from sluicegate.core.tracking import batch_name
        from sluicegate.errors import ConfigurationError

        if self.batch_id in (None, "", "None"):
            raise ConfigurationError(
                f"batch_id is {self.batch_id!r}; if it is a template, it rendered to nothing; give the batch_id of the "
                'publish, or its output: batch_id=publish.output["batch_id"]'
            )
        batch_name(self.batch_id)  # type: ignore[arg-type]  # rendered by now
        return BatchQuestion(self.queue_name, self.batch_id)  # type: ignore[arg-type]

    def _judged(self, value: dict[str, Any]) -> dict[str, Any]:
        if value["dead"] and self.on_dead == "fail":
            raise AirflowFailException(
                f"queue {self.queue_name!r}: batch {self.batch_id!r} is complete, and {value['dead']} of its "
                f"{value['total']} messages are dead letters; redrive them and clear this task, or give "
                'on_dead="ignore"'
            )
        return value
