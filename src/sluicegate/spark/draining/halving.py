"""One leased chunk given to the handler: whole, and when that fails in halves, until the culprits are alone."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate._lease_values import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.errors import LeaseLostError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.spark.draining.verdicts import Given, Word, deliveries, to_verdicts
from sluicegate.spark.summary import HandlerFailure
from sluicegate.spark.tables.payloads import PayloadError

__all__ = ["Failed", "Halving", "refuse_when_lost"]

Call = Callable[[list[Message], Given], dict[int, Word]]

_MAX_ERROR_LENGTH = 500
_MAX_IDS = 10
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class Failed:
    """Messages that are not done, and what the handler raised: one culprit, or what was given up, or none where the
    handler raised after it had given a verdict to each.
    """

    messages: list[Message]
    error: Exception
    where: str


class Halving:
    """Finds out which messages of a lease the handler can work on, and what it says of single ones.

    A lease whose handler cannot do anything at all (its database is away, say) is given up after 2 log2(n) failing
    calls; a single culprit needs log2(n) + 1, wherever it is. Once something has succeeded, 5 log2(n) failing calls in
    a row are the end, so that an outage in the middle of a chunk does not call the handler once per message.

    A verdict that the handler gave through its context stands whether its call ends well or not; what raised is looked
    for among the others.

    Args:
        lease: an open lease.
        call: one call of the handler with some of the lease's messages, which answers its verdicts by slot.
        config: of the queue: what becomes of a culprit, and how long it stays out of reach.
    """

    def __init__(self, lease: Lease, call: Call, config: QueueConfig) -> None:
        self.done: list[Message] = []
        self.culprits: list[Failed] = []
        self.given_up: Failed | None = None
        self.failing_calls = 0
        self.fruitful = False  # whether some call ended well, or gave a verdict
        self._words: dict[int, Word] = {}  # by slot, all but acks
        self._said: set[int] = set()  # slots with a verdict, acks too
        self._lease = lease
        self._call = call
        self._config = config
        self._streak = 0

    def run(self) -> None:
        """Work on the lease until every message is done, found guilty, given a verdict or given up.

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
            left = [message for message in batch if message.slot not in self._said] if self._said else batch
            if isinstance(error, PayloadError) and 0 < len(error.message_ids) < len(batch):
                left = self._without_unreadable(left, error, where)
                waiting.extendleft([left] if left else [])
            elif len(batch) == 1 or not left:
                self.culprits.append(Failed(left, error, where))
            elif len(left) == 1:
                waiting.appendleft(left)  # nobody is guilty who was not alone
            else:
                middle = (len(left) + 1) // 2
                waiting.extendleft((left[middle:], left[:middle]))
            if waiting and self._streak >= max((5 if self.fruitful else 2) * depth, depth + 2):
                rest = sorted((message for part in waiting for message in part), key=lambda message: message.slot)
                self.given_up = Failed(rest, error, where)
                return

    def _without_unreadable(self, batch: list[Message], error: PayloadError, where: str) -> list[Message]:
        """The handler was not called: which payloads do not fit its schema is known at once."""
        bad = set(error.message_ids)
        for message in batch:
            if message.id in bad:
                self.culprits.append(Failed([message], _of_one(message, error), where))
        self._streak -= 1
        return [message for message in batch if message.id not in bad]

    def verdicts(self) -> Iterator[Verdict]:
        """What has been found out so far, as verdicts for one settle. Messages that were not reached have none."""
        if len(self.done) == len(self._lease.messages):
            yield Verdict("ack")  # the lease as a whole, which costs nothing per message
            return
        yield Verdict("ack", self.done)
        if self._words:
            told = [message for message in self._lease.messages if message.slot in self._words]
            yield from to_verdicts(told, self._words, self._config.backoff)
        if self.given_up is not None:
            # All the rest, unnamed: where everything fails nobody is proved guilty, and a nack by name buries at the
            # last delivery.
            yield self._verdict(self.given_up, None, "retry")
            return
        for culprit in self.culprits:
            if culprit.messages:
                yield self._verdict(culprit, culprit.messages, self._config.on_error)

    def _verdict(self, failed: Failed, messages: list[Message] | None, on_error: policies.OnError) -> Verdict:
        failure = policies.after_error(on_error, self._config.backoff, deliveries(failed.messages), failed.error)
        return Verdict(failure.verb, messages, failure.delay_seconds, failed.error, failure.reason)

    def given_back(self) -> list[Message]:
        """The messages that go back to the queue by these verdicts: nacked, released or given up."""
        back = {slot for slot, word in self._words.items() if word.verb in ("nack", "release")}
        for failed in self._failed() if self.given_up is not None or self._config.on_error == "retry" else ():
            back.update(message.slot for message in failed.messages)
        return [message for message in self._lease.messages if message.slot in back] if back else []

    @property
    def failed(self) -> bool:
        """Whether the handler raised something that it did not overcome in parts."""
        return bool(self.culprits) or self.given_up is not None

    def failures(self, partition: int, chunk: int) -> Iterator[HandlerFailure]:
        """What the handler raised, for the summary."""
        for failed in self._failed():
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

    def _failed(self) -> tuple[Failed, ...]:
        return (*self.culprits, self.given_up) if self.given_up is not None else tuple(self.culprits)

    def _try(self, batch: list[Message]) -> Exception | None:
        """One call; what the handler raised, None when it did not."""
        refuse_when_lost(self._lease)
        given = Given(batch)
        try:
            words = self._call(list(batch), given)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the handler's)
            refuse_when_lost(self._lease, error)
            self._hear(batch, given.close())
            if self.failing_calls == 0:  # the halves tell the same story
                _log.warning("the handler failed on %d messages of lease %r", len(batch), self._lease.id, exc_info=True)
            self.failing_calls += 1
            self._streak += 1
            return error
        except BaseException:  # the process is told to end: what was said until then stands
            self._hear(batch, given.close())
            raise
        self._hear(batch, words)
        self.done += [message for message in batch if message.slot not in words] if words else batch
        self.fruitful, self._streak = True, 0
        return None

    def _hear(self, batch: list[Message], words: dict[int, Word]) -> None:
        for message in batch if words else ():
            word = words.get(message.slot)
            if word is None:
                continue
            self._said.add(message.slot)
            if word.verb == "ack":
                self.done.append(message)
            else:
                self._words[message.slot] = word
            self.fruitful = True

    def _is_buried(self, message: Message) -> bool:
        most = self._config.max_delivery_count
        return self._config.on_error == "bury" or (most is not None and most <= message.delivery_count)


def refuse_when_lost(lease: Lease, cause: Exception | None = None) -> None:
    """Raise `LeaseLostError` when a lease is known to be another's, or nobody's."""
    if lease.lost:
        raise LeaseLostError(
            f"lease {lease.id!r} was lost while its handler worked; its messages are or will be delivered again",
            lease_id=lease.id,
            lost=[message.slot for message in lease.messages],
        ) from cause


def _of_one(message: Message, error: PayloadError) -> PayloadError:
    """The error of a message among several; the reason is known of the first only."""
    if error.message_ids == (message.id,):
        return error
    reason = f": {error.reason}" if error.message_ids[0] == message.id else ""
    text = f"the payload of message {message.id!r} does not fit the declared schema{reason}"
    return PayloadError(text, positions=(0,), message_ids=(message.id,), reason=error.reason)


def _where(error: Exception) -> str:
    """The place that raised, in few words: file, line and function."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
