"""The loop over a queue's messages, one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from sluicegate import checks
from sluicegate.asyncio.lease import Lease
from sluicegate.asyncio.steps import ClaimOne, Steps
from sluicegate.errors import AlreadySettledError
from sluicegate.message import Message

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

    async def ack(self) -> None:
        """Mark the current message as done now, instead of with the next step.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the ack came too late.
        """
        lease = self._lease()
        await lease.ack(lease.messages[0])

    async def nack(self, *, delay_seconds: float = 0, error: BaseException | str | None = None) -> None:
        """Mark the current message as failed: it becomes claimable again, after the delay if one is given.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the nack came too late.
        """
        lease = self._lease()
        await lease.nack(lease.messages[0], delay_seconds=delay_seconds, error=error)

    async def release(self) -> None:
        """Return the current message, not worked on: up to three times this is not counted as a delivery.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the release came too late.
        """
        lease = self._lease()
        await lease.release(lease.messages[0])

    async def bury(self, *, error: BaseException | str | None = None, reason: str = "buried") -> None:
        """Turn the current message into a dead letter, with this reason and error.

        Raises:
            AlreadySettledError: there is no current message, or it has another verdict.
            LeaseLostError: the burial came too late.
        """
        lease = self._lease()
        await lease.bury(lease.messages[0], error=error, reason=reason)

    async def aclose(self) -> None:
        """End the loop, and release the current message, uncounted, if it has no verdict."""
        self._is_over = True
        try:
            await self._steps.give_up()
        finally:
            await self._steps.rest()

    close = aclose  # asyncio only

    async def __aenter__(self) -> Self:
        self._in_block = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            if error is None:
                await self._steps.advance(None)
            else:
                await self._steps.fail(error)
        finally:
            await self._steps.rest()

    async def __aiter__(self) -> AsyncIterator[Message]:
        try:
            self._steps.keep_connection()
            while (message := await self._next()) is not None:
                yield message
        finally:
            if not self._in_block:  # which sees how the loop ended
                await self.aclose()

    async def __anext__(self) -> Message:
        message = await self._next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def _next(self) -> Message | None:
        steps, message = self._steps, None
        if not self._is_begun:
            self._is_begun = True
            steps.hold()
        if self._is_over or self._left == 0:
            await steps.advance(None)
        else:
            forever = self._wait_seconds is None
            wait_seconds = _LONG_SECONDS if self._wait_seconds is None else self._wait_seconds
            message = await steps.advance(self._claim, wait_seconds)
            while message is None and forever and not steps.is_stopping:
                message = await steps.advance(self._claim, wait_seconds)
        if message is None:
            self._is_over = True
            await steps.rest()
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
