"""One leased chunk given to the handler: whole, and when that fails in halves, until the culprits are alone."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.core import policies
from sluicegate.errors import LeaseLostError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.shared.lease import Verdict
from sluicegate.spark.summary import HandlerFailure

__all__ = ["Failed", "Halving"]

_LONGEST_ERROR = 500
_MOST_IDS = 10
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class Failed:
    """Messages that are not done, and what the handler raised: one culprit, or what was given up."""

    messages: list[Message]
    error: Exception
    where: str


class Halving:
    """Finds out which messages of a lease the handler can work on.

    A lease whose handler cannot do anything at all (its database is away, say) is given up after 2 log2(n) failing
    calls; a single culprit needs log2(n) + 1, wherever it is. Once something has succeeded, 5 log2(n) failing calls in
    a row are the end, so that an outage in the middle of a chunk does not call the handler once per message.

    Args:
        lease: an open lease.
        call: one call of the handler with some of the lease's messages.
        most_deliveries: deliveries after which the nack of a culprit buries it; 0 for never.
    """

    def __init__(self, lease: Lease, call: Callable[[list[Message]], None], most_deliveries: int) -> None:
        self.done: list[Message] = []
        self.culprits: list[Failed] = []
        self.given_up: Failed | None = None
        self.failing_calls = 0
        self._lease = lease
        self._call = call
        self._most = most_deliveries
        self._streak = 0

    def run(self) -> None:
        """Work on the lease until every message is done, found guilty or given up.

        Raises:
            LeaseLostError: the lease was lost meanwhile, so that there is nothing left to find out.
        """
        waiting = deque([list(self._lease.messages)])
        depth = (len(waiting[0]) - 1).bit_length()  # ceil(log2(n)): halvings down to one message
        while waiting:
            # At the bottom without a success, the far end tells a cluster of culprits from a handler that fails at
            # everything.
            batch = waiting.pop() if self._streak > depth else waiting.popleft()
            error = self._try(batch)
            if error is None:
                continue
            where = _where(error)
            error = error.with_traceback(None)  # its frames would keep the handler's locals
            if len(batch) == 1:
                self.culprits.append(Failed(batch, error, where))
            else:
                middle = (len(batch) + 1) // 2
                waiting.extendleft((batch[middle:], batch[:middle]))
            if waiting and self._streak >= max((5 if self.done else 2) * depth, depth + 2):
                left = sorted((message for part in waiting for message in part), key=lambda message: message.slot)
                self.given_up = Failed(left, error, where)
                return

    def verdicts(self) -> Iterator[Verdict]:
        """What has been found out so far, as verdicts for one settle. Messages that were not reached have none."""
        if len(self.done) == len(self._lease.messages):
            yield Verdict("ack")  # the lease as a whole, which costs nothing per message
            return
        yield Verdict("ack", self.done)
        if self.given_up is not None:
            # All the rest, unnamed: where everything fails nobody is proved guilty, and a nack by name buries at the
            # last delivery.
            yield Verdict("nack", None, self._delay(self.given_up.messages), self.given_up.error)
            return
        for culprit in self.culprits:
            yield Verdict("nack", culprit.messages, self._delay(culprit.messages), culprit.error)

    def failures(self, partition: int, chunk: int) -> Iterator[HandlerFailure]:
        """What the handler raised, for the summary."""
        for failed in (*self.culprits, *([self.given_up] if self.given_up else [])):
            yield HandlerFailure(
                partition=partition,
                chunk=chunk,
                messages=len(failed.messages),
                message_ids=tuple(message.id for message in failed.messages[:_MOST_IDS]),
                buried=self.given_up is None and self._used_up(failed.messages[0]),
                error_type=type(failed.error).__name__,
                error=str(failed.error)[:_LONGEST_ERROR].encode(errors="replace").decode(),
                where=failed.where,
            )

    def _try(self, batch: list[Message]) -> Exception | None:
        """One call; what the handler raised, None when it did not."""
        self._refuse_when_lost(None)
        try:
            self._call(list(batch))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the handler's)
            self._refuse_when_lost(error)
            if self.failing_calls == 0:  # the halves tell the same story
                _log.warning("the handler failed on %d messages of lease %r", len(batch), self._lease.id, exc_info=True)
            self.failing_calls += 1
            self._streak += 1
            return error
        self.done += batch
        self._streak = 0
        return None

    def _refuse_when_lost(self, cause: Exception | None) -> None:
        if self._lease.lost:
            raise LeaseLostError(
                f"lease {self._lease.id!r} was lost while its handler worked; its messages are or will be "
                "delivered again",
                lease_id=self._lease.id,
                lost=[message.slot for message in self._lease.messages],
            ) from cause

    @staticmethod
    def _delay(messages: list[Message]) -> float:
        most = max(message.delivery_count for message in messages)
        return policies.backoff_seconds(policies.DEFAULT_BACKOFF, most)

    def _used_up(self, message: Message) -> bool:
        return 0 < self._most <= message.delivery_count


def _where(error: Exception) -> str:
    """The place that raised, in few words: file, line and function."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
