"""Work with a lease that an earlier task of the run claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_sluicegate.failures import fail_at_once

if TYPE_CHECKING:
    from sluicegate import Lease
    from sluicegate.options import QueueOptions

__all__ = ["attached_lease"]


@contextmanager
def attached_lease(
    handle: Mapping[str, str],
    *,
    redis_conn_id: str = "sluicegate_default",
    **queue_options: Unpack[QueueOptions],
) -> Iterator[Lease]:
    """
    Attach the lease that :class:`RedisQueueClaimOperator` claimed, and hand it on to the next task at the end.

    **Delivery semantics.** Inside the block a heartbeat keeps the lease. Leaving the block settles nothing, whether or
    not it raises: the task that settles the lease decides for all messages that have no verdict by then. A verdict that
    is given inside the block, such as ``lease.nack(message)``, takes effect at once and stays.

    .. code-block:: python

        with attached_lease(handle) as lease:
            for message in lease.messages:
                ship(message.json())

    :param handle: the XCom of the task that claimed.
    :param redis_conn_id: the connection.
    :param queue_options: options of :class:`sluicegate.RedisMessageQueue`.
    :raises AirflowFailException: the handle or an option cannot work.
    :raises LeaseLostError: the lease expired, or another consumer took it over; its messages are delivered again.
    :raises LeaseEndedError: every message of the lease has a verdict.
    """
    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import LeaseHandle
    from sluicegate.draining.returned import RETENTION_SECONDS
    from sluicegate.errors import AlreadySettledError

    options: dict[str, Any] = dict(queue_options)
    with RedisQueueHook(redis_conn_id) as hook:
        with fail_at_once():
            lease_handle = LeaseHandle.from_dict(handle)
            queue = hook.get_queue(lease_handle.queue, **options)
            lease = queue.attach(lease_handle, retention_seconds=RETENTION_SECONDS)
        try:
            yield lease
        finally:
            with suppress(AlreadySettledError):  # the block gave every message its verdict
                lease.detach()
