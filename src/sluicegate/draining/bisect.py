"""Bisecting a chunk: the handler gets it whole and, when it raises, in halves, until the failing messages are alone."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluicegate._lease_base import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.draining.summary import HandlerFailure
from sluicegate.draining.verdicts import MessageVerdict, VerdictCollector, deliveries, to_verdicts
from sluicegate.errors import LeaseLostError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.tables.misfits import INVALID_PAYLOAD, UnfitPayloadsError
from sluicegate.tables.payloads import PayloadError

__all__ = ["Bisect", "FailedMessages", "refuse_when_lost"]

Call = Callable[[Sequence[Message], VerdictCollector], dict[int, MessageVerdict]]

_MAX_ERROR_LENGTH = 500
_MAX_IDS = 10
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class FailedMessages:
    """Messages that are not done, and what the handler raised.

    That is one failing message, or all that was given up, or none where the handler raised after it had given a verdict
    to each message.
    """

    messages: Sequence[Message]
    error: Exception
    where: str


class Bisect:
    """Finds the messages of a lease that the handler cannot work on, and collects the verdicts on the others.

    A single failing message takes log2(n) + 1 failing calls to find, wherever it is. A handler that fails at everything
    (its database is away, say) is given up after 2 log2(n) failing calls. Once a call has succeeded, 5 log2(n) failing
    calls in a row are the end, so that an outage in the middle of a chunk does not call the handler once per message.

    A verdict that the handler gave through its context stands whether its call succeeds or not. The search for the
    failing message continues among the others.

    Args:
        lease: an open lease.
        call: calls the handler once with some of the lease's messages and answers its verdicts by slot.
        config: the queue's options: what happens to a failed message, and how long it is delayed.
        splits: whether a failed call is tried again in parts. If not, the first failure gives up the whole lease, and
            verdicts of the failed call do not stand.
    """

    def __init__(self, lease: Lease, call: Call, config: QueueConfig, *, splits: bool = True) -> None:
        self.done: Sequence[Message] = ()
        self.failed_messages: list[FailedMessages] = []
        self.given_up: FailedMessages | None = None
        self.failing_calls = 0
        self.fruitful = False  # whether some call succeeded, or gave a verdict
        self._verdicts: dict[int, MessageVerdict] = {}  # by slot, all but acks
        self._decided: set[int] = set()  # slots with a verdict, acks too
        self._lease = lease
        self._call = call
        self._config = config
        self._splits = splits
        self._streak = 0

    def run(self) -> None:
        """Work on the lease until every message is done, failed, decided by a verdict or given up.

        Raises:
            LeaseLostError: the lease was lost meanwhile, so that there is nothing left to find out.
        """
        waiting: deque[Sequence[Message]] = deque([self._lease.leased])  # whole, and without objects until it fails
        depth = (len(waiting[0]) - 1).bit_length()  # ceil(log2(n)): halvings down to one message
        left: Sequence[Message]
        while waiting:
            # At the bottom without a success, try the other end: that distinguishes a cluster of failing
            # messages from a handler that fails at everything.
            batch = waiting.pop() if self._streak > depth else waiting.popleft()
            error = self._try(batch)
            if error is None:
                continue
            if isinstance(error, UnfitPayloadsError):
                left = self._bury_unfit(batch, error)
                waiting.extendleft([left] if left else [])
                continue
            where = _where(error)
            if not self._splits:
                self._fail(batch, error, where)
                return
            error = error.with_traceback(None)  # its frames would keep the handler's locals
            left = [message for message in batch if message.slot not in self._decided] if self._decided else batch
            if isinstance(error, PayloadError) and 0 < len(error.message_ids) < len(batch):
                left = self._without_unreadable(left, error, where)
                waiting.extendleft([left] if left else [])
            elif len(batch) == 1 or not left:
                self.failed_messages.append(FailedMessages(left, error, where))
            elif len(left) == 1:
                waiting.appendleft(left)  # a message counts as failed only if it was alone
            else:
                middle = (len(left) + 1) // 2
                waiting.extendleft((left[middle:], left[:middle]))
            if waiting and self._streak >= max((5 if self.fruitful else 2) * depth, depth + 2):
                rest = sorted((message for part in waiting for message in part), key=lambda message: message.slot)
                self.given_up = FailedMessages(rest, error, where)
                return

    def verdicts(self) -> Iterator[Verdict]:
        """Return the verdicts so far for one settle; messages that were not reached have none."""
        if len(self.done) == len(self._lease):
            yield Verdict("ack")  # the lease as a whole, which costs nothing per message
            return
        yield Verdict("ack", self.done)
        if self._verdicts:
            decided = [message for message in self._lease.messages if message.slot in self._verdicts]
            yield from to_verdicts(decided, self._verdicts, self._config.backoff)
        if self.given_up is not None:
            # The rest goes back unnamed. A nack by name buries at the last delivery, and where everything fails no
            # single message is known to be the cause.
            yield self._verdict(self.given_up, None, "retry")
            return
        for failed in self.failed_messages:
            if failed.messages:
                yield self._verdict(failed, failed.messages, self._config.on_error)

    def given_back(self) -> list[Message]:
        """Return the messages that these verdicts return to the queue: nacked, released or given up."""
        back = {slot for slot, verdict in self._verdicts.items() if verdict.verb in ("nack", "release")}
        for failed in self._all_failed() if self.given_up is not None or self._config.on_error == "retry" else ():
            back.update(message.slot for message in failed.messages)
        return [message for message in self._lease.messages if message.slot in back] if back else []

    def counts(self) -> tuple[int, int, int]:
        """Return how many messages the verdicts ack, return and bury; a settle may bury more."""
        buried = sum(verdict.verb == "bury" for verdict in self._verdicts.values())
        returned = len(self.given_back())
        return len(self._lease) - returned - buried, returned, buried

    @property
    def failed(self) -> bool:
        """Return whether the handler raised an error that bisecting did not resolve."""
        return bool(self.failed_messages) or self.given_up is not None

    @property
    def error(self) -> Exception | None:
        """Return the first error of those failures."""
        return next((failed.error for failed in self._all_failed()), None)

    def failures(self, partition: int, chunk: int) -> Iterator[HandlerFailure]:
        """Return the errors of the handler, for the summary."""
        for failed in self._all_failed():
            yield HandlerFailure(
                partition=partition,
                chunk=chunk,
                messages=len(failed.messages),
                message_ids=tuple(message.id for message in failed.messages[:_MAX_IDS]),
                buried=self.given_up is None and any(map(self._is_buried, failed.messages)),
                error_type=type(failed.error).__name__,
                error=policies.text_of(failed.error)[:_MAX_ERROR_LENGTH].encode(errors="replace").decode(),
                where=failed.where,
            )

    def _all_failed(self) -> tuple[FailedMessages, ...]:
        known = tuple(self.failed_messages)
        return known if self.given_up is None else (*known, self.given_up)

    def _try(self, batch: Sequence[Message]) -> Exception | None:
        """Call the handler once; answer what it raised, None when it did not."""
        refuse_when_lost(self._lease)
        collector = VerdictCollector(batch)
        try:
            verdicts = self._call(batch, collector)
        except UnfitPayloadsError as error:  # the handler was not called
            refuse_when_lost(self._lease, error)
            return error
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the handler's)
            refuse_when_lost(self._lease, error)
            if self._splits:
                self._record(batch, collector.close())
            if self.failing_calls == 0:  # the halves repeat the same error
                _log.warning("the handler failed on %d messages of lease %r", len(batch), self._lease.id, exc_info=True)
            self.failing_calls += 1
            self._streak += 1
            return error
        except BaseException:  # the process is asked to end: the verdicts given until then stand
            if self._splits:
                self._record(batch, collector.close())
            raise
        self._record(batch, verdicts)
        self._finish([message for message in batch if message.slot not in verdicts] if verdicts else batch)
        self.fruitful, self._streak = True, 0
        return None

    def _record(self, batch: Sequence[Message], verdicts: dict[int, MessageVerdict]) -> None:
        acked: list[Message] = []
        for message in batch if verdicts else ():
            verdict = verdicts.get(message.slot)
            if verdict is None:
                continue
            self._decided.add(message.slot)
            if verdict.verb == "ack":
                acked.append(message)
            else:
                self._verdicts[message.slot] = verdict
            self.fruitful = True
        self._finish(acked)

    def _finish(self, messages: Sequence[Message]) -> None:
        self.done = [*self.done, *messages] if self.done else messages

    def _bury_unfit(self, batch: Sequence[Message], error: UnfitPayloadsError) -> list[Message]:
        """Give the messages whose payloads do not fit their verdict, and return the others."""
        verdicts = {
            batch[position].slot: MessageVerdict("bury", None, reason, INVALID_PAYLOAD)
            for position, reason in zip(error.positions, error.errors, strict=True)
        }
        _log.warning("lease %r: %s; they are buried", self._lease.id, error)
        self._record(batch, verdicts)
        return [message for message in batch if message.slot not in verdicts]

    def _fail(self, batch: Sequence[Message], error: Exception, where: str) -> None:
        """Give the whole lease back after its only call failed; a message that was alone is known to have failed."""
        failed = FailedMessages(batch, error, where)
        if len(batch) == 1:
            self.failed_messages.append(failed)
        else:
            self.given_up = failed

    def _without_unreadable(self, batch: Sequence[Message], error: PayloadError, where: str) -> list[Message]:
        """Fail the messages whose payloads do not fit the schema; the handler was not called with any of them."""
        bad = set(error.message_ids)
        for message in batch:
            if message.id in bad:
                self.failed_messages.append(FailedMessages([message], _of_one(message, error), where))
        self._streak -= 1
        return [message for message in batch if message.id not in bad]

    def _verdict(
        self, failed: FailedMessages, messages: Sequence[Message] | None, on_error: policies.OnError
    ) -> Verdict:
        failure = policies.after_error(on_error, self._config.backoff, deliveries(failed.messages), failed.error)
        return Verdict(failure.verb, messages, failure.delay_seconds, failed.error, failure.reason)

    def _is_buried(self, message: Message) -> bool:
        most = self._config.max_delivery_count
        return self._config.on_error == "bury" or (most is not None and most <= message.delivery_count)


def refuse_when_lost(lease: Lease, cause: Exception | None = None) -> None:
    """Raise `LeaseLostError` when a lease is known to be lost."""
    if lease.lost:
        raise LeaseLostError(
            f"lease {lease.id!r} was lost while its handler worked; its messages are or will be delivered again",
            lease_id=lease.id,
            lost=lease.leased.stored.slots,
        ) from cause


def _of_one(message: Message, error: PayloadError) -> PayloadError:
    """Return the error of one message among several; only the reason of the first one is known."""
    if error.message_ids == (message.id,):
        return error
    reason = f": {error.reason}" if error.message_ids[0] == message.id else ""
    text = f"the payload of message {message.id!r} does not fit the declared schema{reason}"
    return PayloadError(text, positions=(0,), message_ids=(message.id,), reason=error.reason)


def _where(error: Exception) -> str:
    """Return the file, line and function that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
