"""One delivery of a message, as a handler and the middleware see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluicegate._lease_base import LeaseBase
from sluicegate.message import Message

__all__ = ["Delivery"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a message to a handler. A handler gets it as its second argument.

    Attributes:
        message: the message.
        message_type: the type by which the handler was chosen; None for a message without one.
        payload: the payload as the handler gets it.
        worker: name of the worker.
        max_attempts: the attempt after which a failure buries the message; None for no bound.
        lease: the lease that holds the message alone.
        job: for a queue of jobs, the `ClaimedJob`: `update` stores progress, and `cancel_requested` says whether
            somebody asked to cancel it. None for anything else.
    """

    message: Message
    message_type: str | None
    payload: Any
    worker: str
    max_attempts: int | None
    lease: LeaseBase[Any]
    job: Any = None

    @property
    def attempt(self) -> int:
        """Return the number of this delivery, from 1; deliveries that ended in a crash count."""
        return self.message.delivery_count

    @property
    def is_last_attempt(self) -> bool:
        """Return whether a failure would bury the message."""
        return self.max_attempts is not None and self.attempt >= self.max_attempts

    @property
    def lost(self) -> bool:
        """Return whether the lease is lost: another consumer gets the message, and this worker's verdict is refused.

        A handler that runs for long should check it before it writes.
        """
        return self.lease.lost
