"""Wait until a queue is deep or old enough."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, XComArg

from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate, why_not_ready

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluicegate import RedisMessageQueue

__all__ = ["RedisQueueSensor"]


class _Unset(enum.Enum):
    UNSET = "unset"


class RedisQueueSensor(BaseSensorOperator):
    """
    Wait until a Sluicegate queue holds enough messages, or until one of them has waited long enough.

    The gate opens when ``min_ready`` messages are ready, **or** when the oldest ready one is ``max_age_seconds`` old,
    **or** when there are ``min_dead`` dead letters.
    A message is ready when a claim would get it: it is pending, returned or due, or its lease has expired, so that the
    messages of a crashed consumer open the gate too. A paused queue opens no gate, since nothing could be claimed. Use
    ``mode="reschedule"`` for long waits.

    **Delivery semantics.** The sensor only reads: it claims nothing and changes nothing, in Redis or elsewhere. Any
    number of sensors may watch a queue, and a failed or repeated sensor loses nothing. An open gate reserves no
    messages: another consumer may take them before the next task does, so that task must expect an empty queue.

    When Redis cannot be reached, a poke fails with an error that names the server, and Airflow's own ``retries`` and
    ``never_fail`` decide; ``soft_fail`` concerns the sensor's timeout only. A sensor that has reached Redis before
    retries first, for up to ``retry_budget_seconds`` (a queue option, 120 by default).

    The value that goes to XCom holds ``queue``, ``ready``, ``pending``, ``in_flight``, ``delayed``, ``dead``,
    ``paused``, ``oldest_ready_age_seconds`` and ``fired_by`` (``depth``, ``age`` or ``dead``). While the gate is
    closed, the log has the same counts and says why nothing is ready, such as ``3 in flight until 12:04:10``.

    .. code-block:: python

        RedisQueueSensor(task_id="gate", queue_name="orders", min_ready=10_000, max_age_seconds=600)

    :param queue_name: the name of the queue; ``queue`` is Airflow's own argument, the executor's queue. (templated)
    :param min_ready: the number of ready messages that opens the gate; None to check the age only. Its default is 1
        without another condition, and None with one. (templated)
    :param max_age_seconds: the age of the oldest ready message that opens the gate; None to check the depth only.
        (templated)
    :param min_dead: the number of dead letters that opens the gate; None to ignore them. (templated)
    :param queue_options: options of :class:`sluicegate.RedisMessageQueue`, such as ``retry_budget_seconds``.
    :param redis_conn_id: the connection. (templated)
    :raises ConfigurationError: a condition cannot work; raised when the DAG file is read, unless one is templated.
    """

    template_fields: Sequence[str] = ("queue_name", "min_ready", "max_age_seconds", "min_dead", "redis_conn_id")
    ui_color = "#cfe8dc"

    def __init__(
        self,
        *,
        queue_name: str,
        min_ready: int | str | XComArg | _Unset | None = _Unset.UNSET,
        max_age_seconds: float | str | XComArg | None = None,
        min_dead: int | str | XComArg | None = None,
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = RedisQueueHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(min_ready, _Unset):
            min_ready = 1 if max_age_seconds is None and min_dead is None else None
        self.queue_name = queue_name
        self.min_ready = min_ready
        self.max_age_seconds = max_age_seconds
        self.min_dead = min_dead
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id
        if not any(isinstance(value, (str, XComArg)) for value in (min_ready, max_age_seconds, min_dead)):
            self._gate()

    def execute(self, context: Context) -> Any:
        """
        Poke until the gate opens; see :class:`~airflow.sdk.BaseSensorOperator` for the modes.

        :raises AirflowFailException: a condition, an option or the connection cannot work as given.
        """
        with fail_at_once():
            self._gate()
            try:
                return super().execute(context)
            finally:
                self._hook.close()
                del self._hook
                self.__dict__.pop("_queue", None)

    def poke(self, context: Context) -> PokeReturnValue:
        """
        Read the depth once.

        :raises RedisUnavailableError: Redis cannot be reached; names the server.
        """
        gate = self._gate()
        depth = self._queue.depth()
        fired_by = gate.fired_by(depth)
        counts = {
            "ready": depth.ready,
            "pending": depth.pending,
            "in_flight": depth.in_flight,
            "delayed": depth.delayed,
            "dead": depth.dead,
            "paused": depth.paused,
        }
        why = "" if fired_by else why_not_ready(depth, datetime.now().astimezone())
        self.log.info(
            "queue %r: %s; the gate opens when %s; %s",
            self.queue_name,
            ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()),
            gate.condition,
            f"open, by {fired_by}" if fired_by else f"closed{why and ': '}{why}",
        )
        if fired_by is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(
            is_done=True,
            xcom_value={
                "queue": self.queue_name,
                **counts,
                "oldest_ready_age_seconds": depth.oldest_ready_age_seconds,
                "fired_by": fired_by,
            },
        )

    @cached_property
    def _hook(self) -> RedisQueueHook:
        return RedisQueueHook(self.redis_conn_id)

    @cached_property
    def _queue(self) -> RedisMessageQueue:
        # Pokes share the queue, and with it a connection and the retries of an outage.
        return self._hook.get_queue(self.queue_name, **(self.queue_options or {}))

    def _gate(self) -> Gate:
        """Return the conditions as numbers; a rendered template is text."""
        min_ready = _number("min_ready", self.min_ready, int)
        min_dead = _number("min_dead", self.min_dead, int)
        return Gate(
            None if min_ready is None else int(min_ready),
            _number("max_age_seconds", self.max_age_seconds, float),
            None if min_dead is None else int(min_dead),
        )


def _number(name: str, value: object, kind: type[int] | type[float]) -> int | float | None:
    # A template renders to text, and to "None" for a parameter that is null.
    if value is None or value in ("", "None"):
        return None
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            pass
    elif isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool):
        return value
    raise ConfigurationError(f"{name} must be {'a whole number' if kind is int else 'a number'} or None, not {value!r}")
