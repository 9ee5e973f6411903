"""Lease a batch in one task, work on it in others, and settle it in a last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_provider_sluicegate.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    worker_lag_seconds,
)
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.leases import handle_of, lease_value
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import ConsumerOperator
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from sluicegate.place import Place

__all__ = ["RedisQueueClaimOperator", "RedisQueueKeepLeaseOperator", "RedisQueueSettleLeaseOperator"]

OnFailure = Literal["release", "nack"]
_VERDICTS = ("release", "nack")
_DONE = ("success", "skipped")


class RedisQueueClaimOperator(ReportsLineage, ConsumerOperator):
    """
    Lease a batch of messages for the tasks behind this one.

    The XCom is the lease's handle: the names of the queue and the lease, its token and its life, and never a payload;
    for a group of a stream also the names of both.
    The tasks behind it read the messages with :func:`~airflow_provider_sluicegate.leases.attached_lease`, and
    :class:`RedisQueueSettleLeaseOperator` settles them as the teardown of this task.

    **Delivery semantics.** Delivery is at least once: nothing is acked here. The lease is named after the DAG, task,
    run and map index, so a retry takes over its own batch and no other; that counts as a delivery. The lease lives for
    ``lease_seconds`` from the claim, and again from each task that attaches it. When it expires, its messages are
    delivered again, and the task that settles fails. If an earlier try of this task in the run has a batch that was
    acked, the task says so and is skipped.

    .. code-block:: python

        claim = RedisQueueClaimOperator(task_id="claim", queue_name="orders", lease_seconds=7200)
        settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
        claim >> work(claim.output) >> settle.as_teardown(setups=claim)

    :param max_messages: the most messages of the batch, from 1 to 10,000.
    :param lease_seconds: the life of the lease between two tasks of the run; longer than any pause between them.
    :param skip_if_empty: skip the task, and so what depends on it, when there is no message; else the XCom is None.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`.
    """

    ui_color = "#cfe8d8"
    lineage_direction = "input"

    def __init__(
        self,
        *,
        max_messages: int = 1000,
        lease_seconds: float = 3600,
        skip_if_empty: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_messages = max_messages
        self.lease_seconds = lease_seconds
        self.skip_if_empty = skip_if_empty

    def execute(self, context: Context) -> dict[str, str] | None:
        """
        Claim a batch.

        :return: the handle of its lease.
        :raises AirflowFailException: an argument or the connection cannot work as given.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set; or an earlier try of this task
            has a batch that was acked.
        """
        from airflow_provider_sluicegate.claims import claim_batch
        from airflow_provider_sluicegate.draining import why_nothing
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
        from airflow_provider_sluicegate.stats import emit_counts

        with fail_at_once(), RedisQueueHook(self.redis_conn_id) as hook:
            place = self.place
            queue = hook.open_place(place, **options_of(self.queue_options))
            lease = claim_batch(queue, context, max_messages=self.max_messages, lease_seconds=self.lease_seconds)
            self.lineage_count = len(lease)
            if lease:
                self.log.info("%s: %d messages are leased as %r", place, len(lease), lease.id)
                emit_counts(place, {"claimed": len(lease)})
                return lease_value(lease, place)
            reason = f"{place}: there was nothing to claim: {why_nothing(queue)}"
        if self.skip_if_empty:
            raise AirflowSkipException(reason)
        self.log.info("%s", reason)
        return None


class RedisQueueSettleLeaseOperator(BaseOperator):
    """
    Ack a leased batch when the tasks that worked on it succeeded, else return its messages to the queue.

    Use it as a teardown: then it runs whatever became of the work. Messages that already have a verdict keep it.

    **Delivery semantics.** The batch is acked in one call, after the work. If the lease is lost by then, because it
    expired or another consumer took it over, nothing is acked, the messages are delivered again, and the task fails. It
    also fails after it has returned the batch of a run whose work failed, because Airflow judges such a run by its
    teardown: otherwise the run would count as successful. A repeated or cleared settle of a batch that has ended
    changes nothing.

    :param lease: the XCom of :class:`RedisQueueClaimOperator`, such as ``claim.output``. (templated)
    :param work_task_ids: the tasks that must have succeeded; default: those directly before this one that are neither
        setups nor teardowns.
    :param on_failure: ``"release"`` returns the messages uncounted; ``"nack"`` counts the delivery, so that a batch
        that always fails ends as dead letters.
    :param queue_options: options of :class:`sluicegate.RedisMessageQueue`.
    :param redis_conn_id: the connection. (templated)
    """

    template_fields: Sequence[str] = ("lease", "redis_conn_id")
    ui_color = "#cfe8d8"

    def __init__(
        self,
        *,
        lease: XComArg | Mapping[str, str] | None,
        work_task_ids: Sequence[str] | None = None,
        on_failure: OnFailure = "release",
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lease = lease
        self.work_task_ids = work_task_ids
        self.on_failure = on_failure
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id

    def as_teardown(
        self, *, setups: BaseOperator | Iterable[BaseOperator] | None = None, on_failure_fail_dagrun: bool | None = True
    ) -> Any:
        """Make this task a teardown. Unlike other teardowns, its failure fails the DAG run: messages were not acked."""
        return super().as_teardown(setups=setups, on_failure_fail_dagrun=on_failure_fail_dagrun)

    def execute(self, context: Context) -> dict[str, int]:
        """
        Settle the lease.

        :return: how many messages are acked, returned and buried: those that had no verdict before, and all of the
            lease when it had ended before. The XCom is there also when the task fails because of the work.
        :raises AirflowFailException: an argument or the connection cannot work, the lease is lost, or the work did not
            succeed.
        :raises AirflowSkipException: nothing was leased.
        """
        from sluicegate import checks

        if not self.lease:
            raise AirflowSkipException("nothing was leased, so there is nothing to settle")
        unfinished = self._unfinished(context)
        with fail_at_once():
            checks.one_of("on_failure", self.on_failure, _VERDICTS)
            counts = self._settle(unfinished)
        if unfinished:
            if self.do_xcom_push:
                context["ti"].xcom_push(key="return_value", value=counts)
            raise AirflowFailException(f"the batch was not acked, because of {', '.join(unfinished)}")
        return counts

    def _settle(self, unfinished: Sequence[str]) -> dict[str, int]:
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
        from airflow_provider_sluicegate.stats import emit_counts
        from sluicegate import Verdict
        from sluicegate.draining.returned import RETENTION_SECONDS
        from sluicegate.errors import LeaseEndedError, LeaseLostError

        with RedisQueueHook(self.redis_conn_id) as hook:
            handle, place = handle_of(self.lease)
            queue = hook.open_place(place, **options_of(self.queue_options))
            try:
                lease = queue.attach(handle, retention_seconds=RETENTION_SECONDS, heartbeat=False)
                if unfinished:
                    lease.settle(Verdict(self.on_failure, error=f"a task of the run did not succeed: {unfinished[0]}"))
                else:
                    lease.ack()
            except LeaseEndedError as ended:
                return self._report(place, handle.id, ended.acked, ended.returned, ended.buried)
            except LeaseLostError as lost:
                raise AirflowFailException(
                    f"{place}: the lease of this run is lost, and its messages are redelivered: {lost}; "
                    "give the claim a longer lease_seconds if its tasks were waiting for longer than that"
                ) from lost
            counts = lease.counts
            emit_counts(place, {"acked": counts.acked, "returned": counts.returned, "buried": counts.buried})
            return self._report(place, handle.id, counts.acked, counts.returned, counts.buried)

    def _report(self, place: Place, lease_id: str, acked: int, returned: int, buried: int) -> dict[str, int]:
        self.log.info(
            "%s, lease %r: %d messages acked, %d returned, %d buried", place, lease_id, acked, returned, buried
        )
        return {"acked": acked, "returned": returned, "buried": buried}

    def _unfinished(self, context: Context) -> list[str]:
        """Return the task instances of the work that did not succeed, each with its state."""
        instance: Any = context["ti"]
        names = self.work_task_ids
        if names is None:
            before = self.get_direct_relatives(upstream=True)
            names = sorted(task.task_id for task in before if not (task.is_setup or task.is_teardown))
        if not names:
            raise AirflowFailException(
                "no task stands between the claim and this one; name those that must succeed in work_task_ids"
            )
        by_run = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id], task_ids=list(names))
        states: Mapping[str, str | None] = by_run.get(instance.run_id, {})
        missing = [f"{name} (did not run)" for name in names if not _states_of(name, states)]
        failed = [f"{name} ({state})" for name, state in sorted(states.items()) if state not in _DONE]
        if not missing and not failed and "success" not in states.values():
            return [f"{name} (skipped)" for name in names]
        return failed + missing


def _states_of(name: str, states: Mapping[str, str | None]) -> list[str | None]:
    """Return the states of a task's instances, whose names end in the map index when it is mapped."""
    return [
        state
        for key, state in states.items()
        if key == name or (key.startswith(f"{name}_") and key[len(name) + 1 :].isdigit())
    ]


class RedisQueueKeepLeaseOperator(BaseOperator):
    """
    Keep a leased batch while the run works on it, in the triggerer; optional beside the tasks of the work.

    Without it, ``lease_seconds`` of the claim must exceed the longest pause between two tasks, for instance a wait for
    a worker. With it, the lease is extended all the time, so ``lease_seconds`` can be short and messages of a run that
    died return soon.

    Put it directly behind the claim, beside the work and not before the task that settles. It ends within seconds after
    every message of the lease has its verdict. It needs a triggerer; ``dag.test()``, which runs one task at a time,
    would wait for it before the work.

    **Delivery semantics.** It settles nothing. When the lease is lost, because Redis or the triggerer was away for
    longer than ``lease_seconds``, the task fails, and the messages are delivered again. When the task is stopped, or
    after ``max_seconds``, the lease lives for another ``lease_seconds``.

    .. code-block:: python

        claim = RedisQueueClaimOperator(task_id="claim", queue_name="orders", lease_seconds=300)
        keep = RedisQueueKeepLeaseOperator(task_id="keep", lease=claim.output)
        settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
        claim >> [work(claim.output), keep]
        work >> settle.as_teardown(setups=claim)

    :param lease: the XCom of :class:`RedisQueueClaimOperator`, such as ``claim.output``. (templated)
    :param max_seconds: the longest time, for a run that never settles.
    :param redis_conn_id: the connection. (templated)
    """

    template_fields: Sequence[str] = ("lease", "redis_conn_id")
    ui_color = "#cfe8d8"

    def __init__(
        self,
        *,
        lease: XComArg | Mapping[str, str] | None,
        max_seconds: float = 86_400,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lease = lease
        self.max_seconds = max_seconds
        self.redis_conn_id = redis_conn_id

    def execute(self, context: Context) -> None:
        """
        Continue in the triggerer.

        :raises TaskDeferred: always, but for a lease that does not exist.
        :raises AirflowFailException: the lease or an argument cannot work.
        :raises AirflowSkipException: nothing was leased.
        """
        from airflow_provider_sluicegate.triggers.lease import RedisQueueLeaseTrigger
        from sluicegate import checks

        if not self.lease:
            raise AirflowSkipException("nothing was leased, so there is nothing to keep")
        with fail_at_once():
            checks.positive("max_seconds", self.max_seconds)
            handle_of(self.lease)
        self.defer(
            trigger=RedisQueueLeaseTrigger(
                lease=self.lease,  # type: ignore[arg-type]  # rendered by now
                min_seconds=worker_lag_seconds(),
                redis_conn_id=self.redis_conn_id,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.max_seconds),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """
        End with the lease.

        :raises AirflowFailException: the lease is lost.
        """
        if event["status"] == "error":
            raise (AirflowFailException if event["is_permanent"] else AirflowException)(event["error"])
        self.log.info("%s", event["text"])
