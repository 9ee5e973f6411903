"""Hand one batch of messages to the tasks behind this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sluicegate.compat import AirflowSkipException
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import ConsumerOperator
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import Lease
    from sluicegate.consumer import QueueConsumer

__all__ = ["RedisQueueConsumeOperator"]

AckPolicy = Literal["on_success", "immediate"]
_POLICIES = ("on_success", "immediate")
_TOO_LARGE = "too_large_for_xcom"


class RedisQueueConsumeOperator(ReportsLineage, ConsumerOperator):
    """
    Claim one batch of messages and hand it to the tasks behind this one, as an XCom.

    The XCom is a list, oldest message first, so that a task can be mapped over it. Each message is a dict with the keys
    ``id``, ``payload``, ``encoding``, ``headers``, ``delivery_count`` and ``enqueued_at``. ``encoding`` is ``json``
    (the payload is the decoded object or array), ``text``, or ``base64`` for bytes that are not UTF-8.

    The list never exceeds ``max_xcom_bytes``. Messages that do not fit behind the others are released for the next run.
    A message that does not fit by itself becomes a dead letter with the reason ``too_large_for_xcom``; only its id is
    handed on, under the key ``too_large``.

    **Delivery semantics.** With ``ack_policy="on_success"`` delivery to the DAG is at least once: the messages are
    acked after Airflow has stored the list and this task's success. If the worker dies before that, the retry takes the
    same batch over; if it dies between the two, or Redis cannot be reached for the ack, the lease expires and another
    run gets the messages again. With ``"immediate"`` it is at most once: the messages are acked before the list is
    stored, so a worker that dies in between loses them. In both cases nobody delivers the messages again when a task
    behind this one fails: to ack after the work is done, drain, or lease the batch across the tasks. A task that
    succeeded and is cleared says that its batch is acked, and is skipped.

    .. code-block:: python

        batch = RedisQueueConsumeOperator(task_id="batch", queue_name="orders", max_messages=20)
        ship.expand(message=batch.output)

    :param max_messages: the most messages of the batch, from 1 to 10,000.
    :param max_xcom_bytes: the most bytes of the list as JSON.
    :param ack_policy: ``"on_success"`` or ``"immediate"``.
    :param skip_if_empty: skip the task, and so what depends on it, when there is no message; otherwise it hands on an
        empty list.
    :param lease_seconds: how long another run has to wait for the messages when the worker dies.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`.
    """

    ui_color = "#cfe8d8"
    lineage_direction = "input"

    def __init__(
        self,
        *,
        max_messages: int = 100,
        max_xcom_bytes: int = 48_000,
        ack_policy: AckPolicy = "on_success",
        skip_if_empty: bool = False,
        lease_seconds: float = 300,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_messages = max_messages
        self.max_xcom_bytes = max_xcom_bytes
        self.ack_policy = ack_policy
        self.skip_if_empty = skip_if_empty
        self.lease_seconds = lease_seconds
        self._held: tuple[RedisQueueHook, Lease] | None = None

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """
        Claim a batch.

        :return: its messages.
        :raises AirflowFailException: an argument or the connection cannot work as given.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set; or an earlier try of this task
            acked its batch.
        """
        from airflow_provider_sluicegate.draining import why_nothing
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

        with fail_at_once():
            self._check()
            hook = RedisQueueHook(self.redis_conn_id)
            queue = hook.open_place(self.place, **options_of(self.queue_options))
            lease = self._claim(queue, context)
            if lease:
                batch = self._hand_on(lease, context)
            else:
                self.log.info("%s: there was nothing to claim: %s", self.place, why_nothing(queue))
                batch = []
        self.lineage_count = len(batch)
        if batch and self.ack_policy == "on_success":
            self._held = (hook, lease)
            self.on_success_callback = [self._ack, *self.on_success_callback]
        else:
            hook.close()
        if self.skip_if_empty and not batch:
            raise AirflowSkipException(f"{self.place} had no message that fits")
        return batch

    def _check(self) -> None:
        from sluicegate import checks
        from sluicegate.core.bounds import MAX_CLAIM_LIMIT
        from sluicegate.errors import ConfigurationError

        checks.count("max_messages", self.max_messages, MAX_CLAIM_LIMIT)
        checks.count("max_xcom_bytes", self.max_xcom_bytes)
        checks.one_of("ack_policy", self.ack_policy, _POLICIES)
        if not self.do_xcom_push:
            raise ConfigurationError("do_xcom_push=False leaves nowhere to put the messages; leave it out, or drain")

    def _claim(self, queue: QueueConsumer, context: Context) -> Lease:
        from sluicegate import LeaseState
        from sluicegate.draining.returned import RETENTION_SECONDS

        if self.ack_policy == "immediate":  # a retry must not look for a batch that is gone
            return queue.claim(self.max_messages, lease_seconds=self.lease_seconds)
        lease = queue.claim(
            self.max_messages,
            lease_seconds=self.lease_seconds,
            lease_id=run_id_of(context),
            take_over_after_seconds=0,
            retention_seconds=RETENTION_SECONDS,
        )
        if lease.state is LeaseState.ACKED:
            raise AirflowSkipException(
                f"{self.place}: an earlier try of this task handed its batch on and acked {lease.counts.acked} "
                "messages, which cannot be read again; start a new DAG run for new messages"
            )
        return lease

    def _hand_on(self, lease: Lease, context: Context) -> list[dict[str, Any]]:
        """Return what fits, and settle what does not."""
        from airflow_provider_sluicegate.payloads import parts_of
        from airflow_provider_sluicegate.stats import emit_counts
        from sluicegate import Verdict

        parts = parts_of(lease.messages, self.max_xcom_bytes)
        lease.settle(
            Verdict("bury", parts.too_large, reason=_TOO_LARGE, error=self._too_large()),
            Verdict("ack", parts.fitting if self.ack_policy == "immediate" else ()),
            Verdict("release", parts.left),
        )
        emit_counts(
            self.place,
            {
                "claimed": len(lease.messages),
                "acked": len(parts.fitting) if self.ack_policy == "immediate" else 0,
                "returned": len(parts.left),
                "buried": len(parts.too_large),
            },
        )
        if parts.too_large:
            ids = [message.id for message in parts.too_large]
            self.log.error("%s: %s; now dead letters: %s", self.place, self._too_large(), ", ".join(ids))
            context["ti"].xcom_push(key="too_large", value=ids)
        self.log.info(
            "%s: %d messages are handed on, %d did not fit behind them and were released, %d became dead letters",
            *(self.place, len(parts.fitting), len(parts.left), len(parts.too_large)),
        )
        return parts.values

    def _too_large(self) -> str:
        return f"a message exceeds max_xcom_bytes={self.max_xcom_bytes}; raise it and redrive, or drain the queue"

    def _ack(self, context: Context) -> None:
        """Ack the batch: Airflow has stored the list, and that this task succeeded."""
        from airflow_provider_sluicegate.stats import emit_counts
        from sluicegate.errors import RedisMessageQueueError

        if self._held is None:
            return
        (hook, lease), self._held = self._held, None
        try:
            lease.ack()
            self.log.info("%s: %d messages are acked", self.place, len(lease.messages))
            emit_counts(self.place, {"acked": len(lease.messages)})
        except RedisMessageQueueError as error:
            self.log.error(
                "%s: the batch was handed on but could not be acked, so it will be delivered again: %s",
                *(self.place, error),
            )
        finally:
            hook.close()
