"""Wait until a queue is deep or old enough."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import XComArg
from airflow.triggers.base import StartTriggerArgs

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.compat import conf
from airflow_provider_sluicegate.conditions import Look, Match, WatchedQueues
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.leases import lease_value
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import ConsumerOperator, is_decided_later
from airflow_provider_sluicegate.queue_options import options_of
from airflow_provider_sluicegate.sensors._patient import PatientSensor, raise_failure
from airflow_provider_sluicegate.stats import emit_depth
from airflow_provider_sluicegate.tracing import note_open_gate

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from sluicegate import Depth
    from sluicegate.consumer import QueueConsumer
    from sluicegate.place import Place

__all__ = ["RedisQueueSensor"]

_TRIGGER = "airflow_provider_sluicegate.triggers.redis_queue.RedisQueueTrigger"


class _Unset(enum.Enum):
    UNSET = "unset"


class RedisQueueSensor(ReportsLineage, ConsumerOperator, PatientSensor):
    """
    Wait until a Sluicegate queue, or a group of a stream, has enough messages, or one that has waited long enough.

    The gate opens when ``min_ready`` messages are ready, **or** when the oldest ready one is ``max_age_seconds`` old,
    **or** when there are ``min_dead`` dead letters.
    A message is ready when a claim would get it: it is pending, returned or due, or its lease has expired, so that the
    messages of a crashed consumer open the gate too. A paused queue opens no gate, since nothing could be claimed.

    With ``deferrable=True`` the sensor waits in the triggerer and occupies no worker; all sensors of a connection there
    share one poller. With ``mode="reschedule"`` it frees its worker between two pokes. Either suits long waits:
    Airflow fails a task that continues before the end of its first worker was reported, so a deferred sensor looks
    again after ``[workers] min_heartbeat_interval`` (5 s) and one second more, and ``mode="reschedule"`` needs a
    ``poke_interval`` of ten seconds or more.

    **Delivery semantics.** Without ``claim``, the sensor only reads: it claims nothing and changes nothing. Any number
    of sensors may watch a queue, and a failed or repeated sensor loses nothing. An open gate reserves no messages:
    another consumer may take them before the next task does, so that task must expect an empty queue.

    With ``claim=True`` the sensor leases a batch on the worker once the gate is open, and waits again if another
    consumer was faster. So of several runs at one gate each gets messages of its own. The XCom is the lease's handle,
    as :class:`RedisQueueClaimOperator` makes it: the next tasks attach it, and :class:`RedisQueueSettleLeaseOperator`
    settles it as the teardown of this sensor. A retry takes the batch over that its earlier try left open.

    **When Redis cannot be reached.** A deferred sensor waits until it is back, or the sensor's timeout has passed. With
    ``mode="reschedule"`` an unreachable Redis counts as "not yet" for ``retry_budget_seconds`` (a queue option, 120 by
    default) since the first failed poke; on Airflow below 3.3, which keeps no state between pokes, until the sensor's
    timeout. A poking sensor that has reached Redis before retries for ``retry_budget_seconds``. Then the task fails,
    and ``retries`` decide. ``never_fail`` skips the task then; ``soft_fail`` concerns the sensor's timeout only.

    The value that goes to XCom holds ``queue``, ``ready``, ``pending``, ``in_flight``, ``delayed``, ``dead``,
    ``paused``, ``oldest_ready_age_seconds`` and ``fired_by`` (``depth``, ``age`` or ``dead``). Of several queues it is
    ``{"queues": [one such dict each], "open": [names]}``. For a group, ``stream`` and ``group`` stand for ``queue``;
    for several groups of a stream, ``groups`` stands for ``queues``. While the gate is closed, the log has the same
    counts and says why nothing is ready, such as ``3 in flight until 12:04:10``.

    .. code-block:: python

        RedisQueueSensor(task_id="gate", queue_name="orders", min_ready=10_000, max_age_seconds=600, deferrable=True)

    :param min_ready: the number of ready messages that opens the gate; None to check the age only. Its default is 1
        without another condition, and None with one. (templated)
    :param max_age_seconds: the age of the oldest ready message that opens the gate; None to check the depth only.
        (templated)
    :param min_dead: the number of dead letters that opens the gate; None to ignore them. (templated)
    :param match: whether ``"any"`` queue or group of a list opens the gate, or ``"all"`` must meet the condition.
    :param claim: lease a batch when the gate is open, of one queue or group.
    :param max_messages: the most messages of that batch, from 1 to 10,000.
    :param lease_seconds: the life of that lease between two tasks of the run; longer than any pause between them.
    :param deferrable: wait in the triggerer, looking every ``poke_interval`` seconds; default: Airflow's
        ``[operators] default_deferrable``.
    :param start_from_trigger: begin in the triggerer, without a worker before the gate is open. Templates need Airflow
        3.3; on older versions a sensor with templates begins on a worker.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`. ``queue_name`` and ``group`` may be lists of
        names.
    :raises ConfigurationError: a condition cannot work; raised when the DAG file is read, unless one is templated.
    """

    template_fields: Sequence[str] = (
        *ConsumerOperator.template_fields,
        "min_ready",
        "max_age_seconds",
        "min_dead",
    )
    ui_color = "#cfe8dc"
    lineage_direction = "input"
    start_trigger_args = StartTriggerArgs(
        trigger_cls=_TRIGGER, next_method="execute_complete", trigger_kwargs={}, next_kwargs=None, timeout=None
    )
    start_from_trigger = False

    def __init__(
        self,
        *,
        min_ready: int | str | XComArg | _Unset | None = _Unset.UNSET,
        max_age_seconds: float | str | XComArg | None = None,
        min_dead: int | str | XComArg | None = None,
        match: Match = "any",
        claim: bool = False,
        max_messages: int = 1000,
        lease_seconds: float = 3600,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(min_ready, _Unset):
            min_ready = 1 if max_age_seconds is None and min_dead is None else None
        self.min_ready = min_ready
        self.max_age_seconds = max_age_seconds
        self.min_dead = min_dead
        self.match = match
        self.claim = claim
        self.max_messages = max_messages
        self.lease_seconds = lease_seconds
        self.deferrable = deferrable or start_from_trigger
        self._check_at_parse_time()
        if start_from_trigger:
            self._start_from_trigger()

    @property
    def place(self) -> Place:
        """Return the queue or group, of several the first."""
        return self.lineage_places()[0]

    def lineage_places(self) -> Sequence[Place]:
        """Return the watched queues or groups."""
        return self._watched().places

    def execute(self, context: Context) -> Any:
        """
        Wait until the gate opens; see :class:`~airflow.sdk.BaseSensorOperator` for the modes.

        :return: the counts, or with ``claim`` the handle of the lease.
        :raises AirflowFailException: a condition, an option or the connection cannot work as given.
        :raises TaskDeferred: the gate is closed, and the sensor is deferrable.
        """
        try:
            with fail_at_once():
                self._watched()
                if self.claim and (handle := self._left_lease(context)) is not None:
                    return handle
                if not self.deferrable:
                    return super().execute(context)
                answer = self._first_look(context)
            if answer:
                return answer.xcom_value
            self._wait_in_triggerer(self._end())
        finally:
            self._close()

    def found(self, context: Context) -> Any:
        """Read the depths once, in one round trip, and claim if asked to and the gate is open."""
        look = self._look()
        if not look.is_open:
            return None
        return self._claimed(context) if self.claim else look.value

    def execute_complete(self, context: Context, event: Mapping[str, Any], deadline: str | None = None) -> Any:
        """
        Continue on a worker after the triggerer saw the gate open.

        :param context: of the task.
        :param event: of :class:`~airflow_provider_sluicegate.triggers.redis_queue.RedisQueueTrigger`.
        :param deadline: when the sensor times out; by default its timeout after the start of the task.
        :return: the counts, or with ``claim`` the handle of the lease.
        """
        raise_failure(event)
        if not self.claim:
            return event["value"]
        try:
            with fail_at_once():
                handle = self._claimed(context)
            if handle is not None:
                return handle
            end = datetime.fromisoformat(deadline) if deadline else self._deadline_of_start(context)
            self._wait_in_triggerer(end, initial_delay_seconds=self.poke_interval)
        finally:
            self._close()

    # ------------------------------------------------------------------ looking and claiming

    def _watched(self) -> WatchedQueues:
        """Return the conditions as numbers; a rendered template is text."""
        return self._checked(self.queue_name, self.stream, self.group)

    def _checked(self, queue_name: Any, stream: Any = None, group: Any = None) -> WatchedQueues:
        from sluicegate.errors import ConfigurationError

        watched = WatchedQueues.read(
            queue_name,
            stream=stream,
            group=group,
            min_ready=self.min_ready,
            max_age_seconds=self.max_age_seconds,
            min_dead=self.min_dead,
            match=self.match,
        )
        if self.claim and watched.is_list:
            raise ConfigurationError(
                "claim=True leases messages of one queue; give queue_name as text, not as a list"
                if self.stream is None
                else "claim=True leases messages of one group; give group as text, not as a list"
            )
        if self.claim and watched.gate.min_dead is not None:
            raise ConfigurationError("claim=True leases ready messages, so it cannot wait for min_dead")
        return watched

    def _look(self) -> Look:
        from sluicegate.depths import read_depths

        watched = self._watched()
        depths = read_depths(self._queue.session.runner.gateway, watched.places)
        found = {
            place: self._started(place, depth) if isinstance(depth, Exception) else depth
            for place, depth in depths.items()
        }
        for place, depth in found.items():
            emit_depth(place, depth)
        look = watched.look(found)
        self.log.info("%s", look.text)
        if look.is_open:
            note_open_gate(watched.places, found)
        return look

    def _started(self, place: Place, error: Exception) -> Depth:
        """Return the depth of a group that ``queue_options`` let its first use create."""
        from sluicegate.errors import GroupNotFoundError

        options = options_of(self.queue_options)
        if not isinstance(error, GroupNotFoundError) or "start" not in options:
            raise error
        depth: Depth = self._hook.open_place(place, **options).depth()
        return depth

    def _claimed(self, context: Context) -> dict[str, str] | None:
        """Return the handle of a new lease, None if another consumer was faster."""
        from airflow_provider_sluicegate.claims import claim_batch

        lease = claim_batch(self._queue, context, max_messages=self.max_messages, lease_seconds=self.lease_seconds)
        if not lease:
            self.log.info("%s: another consumer took the messages first; waiting again", self.place)
            return None
        self.log.info("%s: %d messages are leased as %r", self.place, len(lease), lease.id)
        return lease_value(lease, self.place)

    def _left_lease(self, context: Context) -> dict[str, str] | None:
        """Return the handle of the batch that an earlier try left open."""
        from airflow_provider_sluicegate.claims import left_batch
        from sluicegate.errors import RedisUnavailableError

        try:
            lease = left_batch(self._queue, context, max_messages=self.max_messages, lease_seconds=self.lease_seconds)
        except RedisUnavailableError:
            return None  # the first look meets the error again
        if lease is None:
            return None
        self.log.info("%s: took over the %d messages of an earlier try", self.place, len(lease))
        return lease_value(lease, self.place)

    def opened(self) -> QueueConsumer:
        """Return the queue or group, of several the first."""
        queue: QueueConsumer = self._hook.open_place(self.place, **options_of(self.queue_options))
        return queue

    # ------------------------------------------------------------------ waiting in the triggerer

    def _check_at_parse_time(self) -> None:
        """Refuse values that cannot work while the DAG file is read, when none of them is a template."""
        from sluicegate import checks

        checks.flag("claim", self.claim)
        checks.count("max_messages", self.max_messages, 10_000)
        checks.positive("lease_seconds", self.lease_seconds)
        if any(isinstance(value, (str, XComArg)) for value in (self.min_ready, self.max_age_seconds, self.min_dead)):
            return
        given = [name for names in (self.queue_name, self.stream, self.group) for name in _each(names)]
        if any(isinstance(name, XComArg) for name in given):
            return
        if self.stream is not None and any(is_decided_later(name) for name in given):
            self._checked("decided later")
        else:
            self._watched()

    def _start_from_trigger(self) -> None:
        arguments = self._trigger_arguments()
        if any(isinstance(value, XComArg) for value in arguments.values()):
            from sluicegate.errors import ConfigurationError

            raise ConfigurationError(
                "start_from_trigger=True takes values and templates; the output of a task is not known in the triggerer"
            )
        templated = any(isinstance(value, str) and ("{{" in value or "{%" in value) for value in arguments.values())
        if templated and not compat.renders_start_trigger():
            self.log.warning("start_from_trigger with templates needs Airflow 3.3; this sensor begins on a worker")
            return
        self.start_trigger_args = dataclasses.replace(
            self.start_trigger_args, trigger_kwargs=arguments, timeout=timedelta(seconds=self.timeout)
        )
        self.start_from_trigger = True

    def _trigger_arguments(self) -> dict[str, Any]:
        return {
            "queue_name": self.queue_name,
            "stream": self.stream,
            "group": self.group,
            "min_ready": self.min_ready,
            "max_age_seconds": self.max_age_seconds,
            "min_dead": self.min_dead,
            "match": self.match,
            "poll_interval_seconds": self.poke_interval,
            "redis_conn_id": self.redis_conn_id,
        }

    def trigger(self, initial_delay_seconds: float) -> BaseTrigger:
        """Return what waits until the gate opens."""
        from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger

        return RedisQueueTrigger(**self._trigger_arguments(), initial_delay_seconds=initial_delay_seconds)

    def _deadline_of_start(self, context: Context) -> datetime:
        """Return the deadline of a task that began in the triggerer, where no deadline was known."""
        return context["ti"].start_date + timedelta(seconds=self.timeout)


def _each(value: Any) -> tuple[Any, ...]:
    return (value,) if value is None or isinstance(value, (str, XComArg)) else tuple(value)
