"""Claim a batch in the name of a task instance, so that its retry takes it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate.compat import AirflowSkipException
from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.places import place_of

if TYPE_CHECKING:
    from sluicegate import Lease
    from sluicegate.consumer import QueueConsumer

__all__ = ["claim_batch", "left_batch"]


def claim_batch(queue: QueueConsumer, context: Mapping[str, Any], *, max_messages: int, lease_seconds: float) -> Lease:
    """
    Claim a batch under the name of the task instance, or take over the one that its earlier try left open.

    :raises AirflowSkipException: an earlier try of this task in the run has a batch that was acked.
    """
    from sluicegate import LeaseState
    from sluicegate.draining.returned import RETENTION_SECONDS

    lease = queue.claim(
        max_messages,
        lease_seconds=lease_seconds,
        lease_id=run_id_of(context),
        take_over_after_seconds=0,
        retention_seconds=RETENTION_SECONDS,
        heartbeat=False,
    )
    if lease.state is LeaseState.ACKED:
        raise AirflowSkipException(
            f"{place_of(queue)}: this run leased a batch before, and {lease.counts.acked} of its messages are "
            "acked; start a new DAG run for new messages"
        )
    return lease


def left_batch(
    queue: QueueConsumer, context: Mapping[str, Any], *, max_messages: int, lease_seconds: float
) -> Lease | None:
    """
    Take over the batch that an earlier try of the task left open, and claim no other.

    :return: None if there is no such batch.
    :raises AirflowSkipException: an earlier try has a batch that was acked.
    """
    from sluicegate.draining.lease_access import look

    view = look(queue, run_id_of(context))
    is_open = view.state == "open" and view.left_seconds > 0
    if not is_open and not (view.state == "ended" and view.how == "acked"):
        return None
    lease = claim_batch(queue, context, max_messages=max_messages, lease_seconds=lease_seconds)
    return lease or None
