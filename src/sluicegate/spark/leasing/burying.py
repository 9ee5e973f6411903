"""Bury messages whose payloads do not fit, on the driver: tasks read any number of times and change nothing."""

from __future__ import annotations

import logging

from sluicegate._lease_base import Verdict
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.tables.columns import Columns
from sluicegate.tables.misfits import INVALID_PAYLOAD
from sluicegate.tables.payloads import PayloadError

__all__ = ["bury_unfit"]

_log = logging.getLogger("sluicegate")


def bury_unfit(lease: Lease, columns: Columns) -> None:
    """Bury the messages of a lease that do not fit, in the mode BURY.

    Call it as soon as the lease is claimed or taken over, before any task reads it and while its messages have their
    payloads. If this process dies before the burial, the next one takes the lease over and buries them; after it, their
    slots are gone and the lease holds the others.

    Raises:
        LeaseLostError: the lease was lost, and its messages are or will be delivered again.
    """
    if columns.mode != "BURY":
        return
    unfit = columns.misfits(lease.leased)
    if unfit is None:
        return
    groups: dict[int, tuple[PayloadError, list[Message]]] = {}
    for position, error in zip(unfit.positions, unfit.errors, strict=True):
        groups.setdefault(id(error), (error, []))[1].append(lease.messages[position])
    lease.settle(*(Verdict("bury", group, error=error, reason=INVALID_PAYLOAD) for error, group in groups.values()))
    _log.warning("lease %r: %s; they were buried", lease.id, unfit)
