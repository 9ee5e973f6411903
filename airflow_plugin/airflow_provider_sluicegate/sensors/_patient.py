"""What sensors share: they look on a worker, wait in the triggerer if they may, and outlive an unreachable Redis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.compat import AirflowException, AirflowFailException, AirflowSensorTimeout
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.links.queue import QueueLink
from airflow_provider_sluicegate.outages import RescheduledOutage

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

__all__ = ["PatientSensor", "raise_failure"]


class PatientSensor(BaseSensorOperator):
    """Declares what a sensor looks for, and waits for it."""

    operator_extra_links = (QueueLink(),)
    redis_conn_id: str
    in_vain: ClassVar[str] = "the gate gave no messages"

    @abstractmethod
    def found(self, context: Context) -> Any:
        """
        Look once, on a worker.

        :return: the value for XCom; None while the sensor has to wait.
        """

    @abstractmethod
    def opened(self) -> Any:
        """Return a new queue or group, whose gateway the looks share."""

    @abstractmethod
    def trigger(self, initial_delay_seconds: float) -> BaseTrigger:
        """Return what waits in the triggerer."""

    def poke(self, context: Context) -> PokeReturnValue:
        """
        Look once, in one round trip.

        :raises RedisUnavailableError: Redis cannot be reached; names the server.
        """
        from sluicegate.errors import RedisUnavailableError

        outage = RescheduledOutage(context, self.log) if self.reschedule else None
        try:
            value = self.found(context)
        except RedisUnavailableError as error:
            if outage is None or not outage.is_outlived(error, self._retry_budget_seconds()):
                raise
            return PokeReturnValue(is_done=False)
        if outage is not None:
            outage.is_over()
        return PokeReturnValue(is_done=value is not None, xcom_value=value)

    @cached_property
    def _hook(self) -> RedisQueueHook:
        return RedisQueueHook(self.redis_conn_id)

    @cached_property
    def _queue(self) -> Any:
        # Pokes share the queue, and with it a connection and the retries of an outage.
        return self.opened()

    def _close(self) -> None:
        if "_hook" in self.__dict__:
            self._hook.close()
            del self._hook
        self.__dict__.pop("_queue", None)

    def _retry_budget_seconds(self) -> float:
        seconds: float = self._queue.session.runner.gateway.retry_budget_seconds
        return seconds

    def _first_look(self, context: Context) -> PokeReturnValue:
        """Look before waiting in the triggerer, which outlives an unreachable Redis."""
        from sluicegate.errors import RedisUnavailableError

        try:
            return self.poke(context)
        except RedisUnavailableError as error:
            self.log.warning("Redis cannot be reached; waiting in the triggerer until it is back: %s", error)
            return PokeReturnValue(is_done=False)

    def _end(self) -> datetime:
        """Return when a wait that begins now times out."""
        return datetime.now(UTC) + timedelta(seconds=self.timeout)

    def _wait_in_triggerer(self, deadline: datetime, *, initial_delay_seconds: float = 0.0) -> None:
        """Defer, for what is left of the sensor's timeout."""
        left = deadline - datetime.now(UTC)
        if left <= timedelta():
            raise AirflowSensorTimeout(f"{self.in_vain} within the sensor's timeout of {self.timeout:g} s")
        self.defer(
            trigger=self.trigger(max(initial_delay_seconds, compat.worker_lag_seconds())),
            method_name="execute_complete",
            kwargs={"deadline": deadline.isoformat()},
            timeout=left,
        )


def raise_failure(event: Mapping[str, Any]) -> None:
    """Raise the error by which a trigger ended, if it did."""
    if event["status"] == "error":
        raise (AirflowFailException if event["is_permanent"] else AirflowException)(event["error"])
