# Made from src/sluicegate/asyncio/message_loop.py by `make format`; edit there.
"""The loop over a queue's messages, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from sluicegate import checks
from sluicegate.errors import AlreadySettledError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.steps import ClaimOne, Steps

__all__ = ["MessageLoop"]

_LONG_SECONDS = 3600.0  # of one claim that waits without limit


class MessageLoop:
    """An iterator over messages, made by `queue.consume()`: each step acks one message and claims the next.

    One thread or task at a time uses it. `with` reports to it how the loop ended; see `consume`.
    """

    def __init__(self, steps: Steps, claim: ClaimOne, limit: int | None, wait_seconds: float | None) -> None:
        if limit is not None:
            checks.count("limit", limit)
        if wait_seconds is not None:
            checks.not_negative("wait_seconds", wait_seconds)
        self._steps = steps
        self._claim = claim
        self._left = limit
        self._wait_seconds = wait_seconds
        self._in_block = self._is_begun = self._is_over = False

    def ack(self) -> None:
        """Mark the current message as done now, instead of with the next step.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the ack came too late.
        """
        lease = self._lease()
        lease.ack(lease.messages[0])

    def nack(self, *, delay_seconds: float = 0, error: BaseException | str | None = None) -> None:
        """Mark the current message as failed: it becomes claimable again, after the delay if one is given.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the nack came too late.
        """
        lease = self._lease()
        lease.nack(lease.messages[0], delay_seconds=delay_seconds, error=error)

    def release(self) -> None:
        """Return the current message, not worked on: up to three times this is not counted as a delivery.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the release came too late.
        """
        lease = self._lease()
        lease.release(lease.messages[0])

    def bury(self, *, error: BaseException | str | None = None, reason: str = "buried") -> None:
        """Turn the current message into a dead letter, with this reason and error.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the burial came too late.
        """
        lease = self._lease()
        lease.bury(lease.messages[0], error=error, reason=reason)

    def close(self) -> None:
        """End the loop, and release the current message, uncounted, if it has no verdict."""
        self._is_over = True
        try:
            self._steps.give_up()
        finally:
            self._steps.rest()

    def __enter__(self) -> Self:
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            if error is None:
                self._steps.advance(None)
            else:
                self._steps.fail(error)
        finally:
            self._steps.rest()

    def __iter__(self) -> Iterator[Message]:
        try:
            self._steps.keep_connection()
            while (message := self._next()) is not None:
                yield message
        finally:
            if not self._in_block:  # which sees how the loop ended
                self.close()

    def __next__(self) -> Message:
        message = self._next()
        if message is None:
            raise StopIteration
        return message

    def _next(self) -> Message | None:
        steps, message = self._steps, None
        if not self._is_begun:
            self._is_begun = True
            steps.hold()
        if self._is_over or self._left == 0:
            steps.advance(None)
        else:
            forever = self._wait_seconds is None
            wait_seconds = _LONG_SECONDS if self._wait_seconds is None else self._wait_seconds
            message = steps.advance(self._claim, wait_seconds)
            while message is None and forever and not steps.is_stopping:
                message = steps.advance(self._claim, wait_seconds)
        if message is None:
            self._is_over = True
            steps.rest()
        elif self._left is not None:
            self._left -= 1
        return message

    def _lease(self) -> Lease:
        lease = self._steps.lease_in_hand()
        if lease is None:
            raise AlreadySettledError("the loop has no current message that could get a verdict").locate(
                operation="settle"
            )
        return lease
