"""A claimed message as the worker sees it before its handler is called: its type, and the limits of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluicegate._lease_base import LeaseBase
from sluicegate.core.policies import DEFAULT_BACKOFF
from sluicegate.handling.incoming import Incoming
from sluicegate.handling.verdicts import Limits
from sluicegate.message import Message

__all__ = ["Assignment"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A claimed message, or a claimed job.

    Attributes:
        lease: the lease that holds it alone.
        message: the message.
        incoming: the message with its decoded payload.
        message_type: what a handler is registered for: the type of a message, the kind of a job.
        limits: what holds without a `Retry`.
        job: the claimed job; None for a message.
    """

    lease: LeaseBase[Any]
    message: Message
    incoming: Incoming
    message_type: str | None
    limits: Limits
    job: Any = None

    @classmethod
    def of(cls, lease: LeaseBase[Any], message: Message, limits: Limits) -> Assignment:
        """Return what a lease of one message assigns.

        Args:
            lease: the lease; one of a queue of jobs knows their kinds.
            message: its message.
            limits: of the queue, which hold for what is no job.
        """
        incoming = Incoming(message)
        leased: Any = lease
        if getattr(leased, "jobs", None) is None:
            return cls(lease, message, incoming, incoming.type, limits)
        job, kind = leased.jobs[0], leased.rules.kind_of(message)
        limits = Limits(kind.max_attempts, kind.retry_backoff or DEFAULT_BACKOFF)
        return cls(lease, message, incoming, job.kind, limits, job)

    def stored_result(self, result: Any) -> bytes | None:
        """Return the result of a job as it is stored; None for a message, whose result is not stored.

        Raises:
            TypeError, ValueError: JSON cannot carry it; the text names the path.
        """
        if self.job is None:
            return None
        leased: Any = self.lease
        data: bytes | None = leased.rules.encode_result(result)
        return data
