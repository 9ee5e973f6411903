"""Work with a lease that an earlier task of the run claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.places import named_place, value_of

if TYPE_CHECKING:
    from sluicegate import Lease, LeaseHandle
    from sluicegate.options import QueueOptions
    from sluicegate.place import Place

__all__ = ["attached_lease", "handle_of", "lease_value"]

_OF_GROUP = ("stream", "group")


def lease_value(lease: Lease, place: Place) -> dict[str, str]:
    """Detach a lease, and return its handle as an XCom carries it; that of a group also names the stream and group."""
    value = lease.detach().to_dict()
    return {**value, **value_of(place)} if place.stream else value


def handle_of(value: Any) -> tuple[LeaseHandle, Place]:
    """
    Read what :func:`lease_value` returned.

    :param value: the XCom of the task that claimed.
    :return: the handle, and what the lease was claimed from.
    :raises ConfigurationError: it is no handle of a lease.
    """
    from sluicegate import LeaseHandle

    names = {name: value[name] for name in _OF_GROUP if name in value} if isinstance(value, Mapping) else {}
    rest = {name: text for name, text in value.items() if name not in names} if names else value
    handle = LeaseHandle.from_dict(rest)
    return handle, named_place(**names, is_read=True) if names else named_place(handle.queue)


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
    from sluicegate.draining.returned import RETENTION_SECONDS
    from sluicegate.errors import AlreadySettledError

    options: dict[str, Any] = dict(queue_options)
    with RedisQueueHook(redis_conn_id) as hook:
        with fail_at_once():
            lease_handle, place = handle_of(handle)
            queue = hook.open_place(place, **options)
            lease = queue.attach(lease_handle, retention_seconds=RETENTION_SECONDS)
        try:
            yield lease
        finally:
            with suppress(AlreadySettledError):  # the block gave every message its verdict
                lease.detach()
