"""The part of a lease without I/O, shared by the sync and the asyncio side."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, get_args

from sluicegate import checks
from sluicegate._gateway_base import elapsed_clock
from sluicegate.config import QueueConfig
from sluicegate.core import calls, concluding, operations, policies, replies, settling
from sluicegate.core.call import Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import LeaseCounts, Ledger
from sluicegate.core.markers import bound_markers
from sluicegate.core.ranges import parse_ranges
from sluicegate.core.values import ClaimRequest, QueueRules, SettleRequest, Verb, VerdictGroup
from sluicegate.errors import AlreadySettledError, ConfigurationError, LeaseLostError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.message import Message

__all__ = ["LeaseBase", "LeaseState", "OnBatchError", "Verdict"]

OnBatchError = Literal["release", "ack"]
_VERBS: tuple[str, ...] = get_args(Verb)
_OPERATIONS = {
    "ack": EventOperation.ACK,
    "nack": EventOperation.NACK,
    "release": EventOperation.RELEASE,
    "bury": EventOperation.BURY,
    "discard": EventOperation.ACK,
}


class LeaseState(Enum):
    """What a claim answered."""

    OPEN = "open"
    """Messages are leased to the caller."""
    EMPTY = "empty"
    """Nothing was claimable."""
    ACKED = "acked"
    """The lease of this id was worked on and ended earlier; `counts` tells what became of it."""
    HELD = "held"
    """The lease of this id is open in another hand."""
    PAUSED = "paused"
    """The queue hands out no new messages."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict for some messages of a lease, for `Lease.settle`.

    Attributes:
        verb: `ack`, `nack`, `release` or `bury`.
        messages: which; None for all without a verdict.
        delay_seconds: how long a nack stays out of reach.
        error: what went wrong, kept with a dead letter.
        reason: why it is buried.
    """

    verb: Verb
    messages: Message | Iterable[Message] | None = None
    delay_seconds: float = 0
    error: BaseException | str | None = None
    reason: str = ""


class LeaseBase:
    """The part of a lease without I/O, shared by the sync and the asyncio side."""

    def __init__(
        self,
        keys: QueueKeys,
        config: QueueConfig,
        rules: QueueRules,
        request: ClaimRequest,
        reply: replies.ClaimReply,
        *,
        lease_id: str,
        chosen: bool,
        asked_at: float,
        on_batch_error: OnBatchError = "release",
        emits_events: bool = False,
    ) -> None:
        self.id = lease_id
        self.holder = 0  # which thread or task claimed it
        self.opening = ""
        self.takeovers = 0
        self.silent_seconds = 0.0
        self.remembered = False
        self.messages: list[Message] = []
        self._keys = keys
        self._config = config
        self._rules = rules
        self._history = rules
        self._emits_events = emits_events
        self._errors: dict[Verb, BaseException] = {}  # for the events of verdicts that are not confirmed yet
        self._request = request
        self._confirmed_at = asked_at
        self._renewed_at = asked_at
        self._opened_at = asked_at
        self._lease_seconds = request.lease_seconds
        self._on_batch_error = on_batch_error
        self._ended: LeaseCounts | None = None
        self._gone = False
        self._finished = False
        self._yielded = -1
        self._lock = threading.RLock()  # a signal handler may settle what its own thread is settling
        match reply:
            case replies.Opened(opening, takeovers, slots, entries):
                self.state = LeaseState.OPEN
                self.opening = opening.decode(errors="replace")
                self.takeovers = takeovers
                begun = 1 + takeovers
                numbers: Sequence[int] = slots or range(1, len(entries) + 1)
                self.messages = [Message(entry, slot, begun) for slot, entry in zip(numbers, entries, strict=True)]
            case replies.Held(_, silent_seconds):
                self.state = LeaseState.HELD
                self.silent_seconds = silent_seconds
            case replies.Acked(acked, returned, buried):
                self.state = LeaseState.ACKED
                self._ended = LeaseCounts(acked, returned, buried)
            case replies.Paused():
                self.state = LeaseState.PAUSED
            case _:
                self.state = LeaseState.EMPTY
                self.remembered = isinstance(reply, replies.Empty) and reply.remembered
        self._chosen = chosen
        self._recorded = chosen or len(self.messages) != 1
        self._acked_ahead = False
        self._concluded = False
        self._bound: dict[int, bytes] | None = None
        self._places: dict[int, Message] | None = None
        self._ledger = Ledger(message.slot for message in self.messages)

    @property
    def key(self) -> str:
        """A file-safe name for this lease **and opening**: the same after a takeover, another whenever the id is
        opened anew.

        Output named by it, of a lease settled in one call, is overwritten by a retry and by nothing else.
        """
        return hashlib.sha256(f"{self.id}\0{self.opening}".encode()).hexdigest()[:32]

    @property
    def token(self) -> bytes:
        """What proves to Redis that the caller holds this opening."""
        return self._request.nonce + b":" + self.opening.encode()

    @property
    def counts(self) -> LeaseCounts:
        """Confirmed verdicts; for `ACKED`, those of the earlier holder."""
        return self._ended or self._ledger.counts

    @property
    def lost(self) -> bool:
        """Whether the lease is no longer this holder's: Redis said so, or it was not renewed for its whole life.

        Stays False after a holder has settled all of it.
        """
        if self._gone or self._finished or not self.messages:
            return self._gone
        now, longest = elapsed_clock(), self._rules.max_lease_seconds
        return now - self._renewed_at > self._lease_seconds or 0 < longest < now - self._opened_at

    @property
    def holds(self) -> bool:
        """Whether it still holds messages, as far as its holder knows."""
        return bool(self.messages) and not self._finished and not self._gone

    @property
    def unsettled(self) -> list[int]:
        """Slots without a verdict."""
        return self._ledger.open

    def _empty(self) -> None:
        """Become what a claim that found nothing answers."""
        self.state, self.messages = LeaseState.EMPTY, []

    def __len__(self) -> int:
        return len(self.messages)

    def __bool__(self) -> bool:
        return bool(self.messages)

    def __iter__(self) -> Iterator[Message]:
        for position, message in enumerate(self.messages):
            if position > self._yielded:  # noqa: PLR1730  (`max` takes three times as long, for every message)
                self._yielded = position
            yield message

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, state={self.state.value}, messages={len(self.messages)})"

    def _silence(self) -> float:
        return elapsed_clock() - self._confirmed_at

    def _groups(self, verdicts: Sequence[Verdict]) -> list[VerdictGroup]:
        """Note verdicts, all of them or none, and give the groups to send."""
        with self._lock:
            # One verdict alone is noted whole or not at all.
            before = self._ledger.copy() if len(verdicts) > 1 else self._ledger
            try:
                groups = [self._group(verdict) for verdict in verdicts]
            except (AlreadySettledError, ConfigurationError) as error:
                self._ledger = before
                error.locate(queue=self._keys.name, operation="settle")
                raise
        return settling.merged([group for group in groups if group is not None])

    def _group(self, verdict: Verdict) -> VerdictGroup | None:
        if verdict.verb not in _VERBS:
            raise ConfigurationError(f"verb must be one of {', '.join(_VERBS)}, not {verdict.verb!r}")
        checks.not_negative("delay_seconds", verdict.delay_seconds)
        if self._emits_events and isinstance(verdict.error, BaseException):
            self._errors[verdict.verb] = verdict.error
        slots = self._ledger.rest(verdict.verb) if verdict.messages is None else self._slots(verdict.messages)
        try:
            return self._ledger.group(
                verdict.verb,
                slots,
                delay_seconds=verdict.delay_seconds,
                named=verdict.messages is not None,
                why=policies.why((verdict.reason or "buried") if verdict.verb == "bury" else "", verdict.error),
            )
        except AlreadySettledError as error:
            error.locate(message_id=self._only(slots))
            raise

    def _slots(self, messages: Message | Iterable[Message]) -> list[int]:
        if isinstance(messages, Message):
            messages = (messages,)
        slots = []
        for message in messages:
            if not isinstance(message, Message) or not self._owns(message):
                raise AlreadySettledError(
                    f"{message!r} is not a message of lease {self.id!r}", message_id=getattr(message, "id", None)
                )
            slots.append(message.slot)
        return slots

    def _owns(self, message: Message) -> bool:
        slot = message.slot
        if 0 < slot <= len(self.messages) and self.messages[slot - 1] is message:
            return True
        if self._places is None:  # an adopted lease that was settled in part
            self._places = {mine.slot: mine for mine in self.messages}
        return self._places.get(slot) is message

    def _message_at(self, slot: int) -> Message:
        if self._places is None:
            self._places = {mine.slot: mine for mine in self.messages}
        return self._places[slot]

    def _only(self, slots: Sequence[int]) -> str | None:
        """The id of the message in a slot, None for several."""
        return self._message_at(slots[0]).id if len(slots) == 1 else None

    def _size_at(self, slot: int) -> int:
        return self._message_at(slot).size

    def _settling(self, groups: Sequence[VerdictGroup]) -> Operation[None]:
        """Send verdicts and note what became of them."""
        if not groups:
            return
        sent = [slot for group in groups for slot in parse_ranges(group.slots)]
        request = SettleRequest(
            self._request.name,
            self.token,
            self._request.keep_seconds,
            self._recorded,
            tuple(groups),
            self._bound_among(sent),
        )
        try:
            yield from self._sending(request, groups, sent)
        except (Exception, GeneratorExit):
            raise
        except BaseException:
            if not self._ledger.confirmed(sent):  # nobody may come back to this lease: they are sent once more
                with suppress(Exception):
                    yield from self._sending(request, groups, sent)
            raise

    def _sending(self, request: SettleRequest, groups: Sequence[VerdictGroup], sent: Sequence[int]) -> Operation[None]:
        asked_at = elapsed_clock()
        try:
            settled = yield from operations.settle(
                self._keys,
                self._rules,
                request,
                lease_seconds=self._lease_seconds,
                clock=elapsed_clock,
                confirmed_at=self._confirmed_at,
                lease_id=self.id,
                size_of=self._size_at,
                emits_events=self._emits_events,
            )
        except LeaseLostError as error:
            error.locate(operation="settle", message_id=self._only(error.lost))
            self._gone = True
            if self._emits_events:
                yield self._event(EventOperation.SETTLE, EventOutcome.LOST, error.lost, error)
            raise
        with self._lock:
            done = self._ledger.confirm(sent, settled.lost, settled.buried)
        if self._emits_events:
            yield from self._told(groups, settled)
        if settled.lost:
            self._gone = True
            raise LeaseLostError(
                f"lease {self.id!r} is no longer held: {len(settled.lost)} of {len(sent)} verdicts came too "
                f"late, and their "
                "messages are or will be delivered again",
                lease_id=self.id,
                lost=settled.lost,
                settled=done,
            ).locate(operation="settle", message_id=self._only(settled.lost))
        self._confirmed_at = asked_at
        if settled.held == 0:
            self._finished, self._gone = True, False

    def _bound_among(self, slots: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
        """The markers that end with messages of these slots."""
        if self._bound is None:  # read once: a queue without such markers has an empty answer
            entries = [(message.slot, message.entry) for message in self.messages]
            self._bound = dict(bound_markers(self._keys, entries))
        bound = self._bound
        return tuple((slot, bound[slot]) for slot in sorted(slots) if slot in bound) if bound else ()

    def _told(self, groups: Sequence[VerdictGroup], settled: replies.Settled) -> Iterator[QueueEvent]:
        """What a settle did, an event per verb."""
        lost, buried = set(settled.lost), set(settled.buried)
        done: dict[EventOperation, list[int]] = {}
        errors: dict[EventOperation, BaseException | None] = {}
        for group in groups:
            error = self._errors.pop(group.verb, None)
            for slot in parse_ranges(group.slots):
                if slot not in lost:
                    verb = _OPERATIONS[group.verb] if slot not in buried else EventOperation.BURY
                    done.setdefault(verb, []).append(slot)
                    errors[verb] = error or errors.get(verb)
        for operation, slots in done.items():
            yield self._event(operation, EventOutcome.SUCCESS, slots, errors[operation])
        if lost:
            yield self._event(EventOperation.SETTLE, EventOutcome.LOST, list(lost))

    def _event(
        self,
        operation: EventOperation,
        outcome: EventOutcome,
        slots: Sequence[int],
        error: BaseException | None = None,
    ) -> QueueEvent:
        """What was done to these slots; about one message it says which."""
        alone = self._message_at(slots[0]) if len(slots) == 1 else None
        return QueueEvent(
            operation,
            outcome,
            self._keys.name,
            len(slots),
            lease_id=self.id,
            message_id=alone.id if alone is not None else None,
            delivery_count=alone.delivery_count if alone is not None else None,
            error=error,
        )

    def _extending(self, lease_seconds: float | None = None) -> Operation[replies.Extended]:
        seconds = self._lease_seconds if lease_seconds is None else lease_seconds
        checks.positive("lease_seconds", seconds)
        asked_at = elapsed_clock()
        extended: replies.Extended = yield calls.extend(
            self._keys,
            self._request.name,
            self.token,
            lease_seconds=seconds,
            max_lease_seconds=self._rules.max_lease_seconds,
        )
        if extended is replies.Extended.OK:
            self._confirmed_at = self._renewed_at = asked_at
            self._lease_seconds = seconds
        elif extended is replies.Extended.LOST and not self._finished:
            self._gone = True
        if self._emits_events and not self._finished:
            ok = extended is replies.Extended.OK
            outcome = EventOutcome.SUCCESS if ok else EventOutcome.LOST
            yield self._event(EventOperation.EXTEND, outcome, self.unsettled)
        return extended

    def _configured_interval(self) -> float | None:
        """Between heartbeats as the queue's options say, a third of the lease at most; None for no heartbeat."""
        interval = self._config.heartbeat_interval_seconds
        if interval == 0 or self._config.at_most_once:
            return None
        third = self._lease_seconds / 3
        return third if interval is None else min(interval, third)

    def _check_interval(self, interval_seconds: float | None) -> None:
        """Refuse a heartbeat that would come too late to keep the lease."""
        if interval_seconds is None:
            return
        checks.positive("interval_seconds", interval_seconds)
        if interval_seconds >= self._lease_seconds / 2:
            raise ConfigurationError(
                f"interval_seconds={interval_seconds:g} must be less than half of the lease's {self._lease_seconds:g} s"
            )

    def _ack_ahead(self) -> list[VerdictGroup]:
        """The ack of an at-most-once lease, before any of it is handled: nothing is completed yet.

        Where histories are kept it leaves a record, by which what is recorded at the end is recorded once.
        """
        self._history, self._acked_ahead = self._rules, True
        self._rules = replace(self._rules, completed_cap=None)
        self._recorded = self._recorded or self._keeps_history()
        return self._groups((Verdict("ack"),))

    def _keeps_history(self) -> bool:
        return self._config.enable_completed_queue or self._config.enable_failed_queue

    def _concluding(self, error: BaseException | None) -> Operation[None]:
        """Record how the handling of messages ended that were acked ahead; once, and nothing for an interruption.

        When a block raised, the message in hand failed, and with it those that were not reached: nobody gets them any
        more.
        """
        interrupted = error is not None and not isinstance(error, Exception)
        if self._concluded or interrupted or (error is None and not self._keeps_history()):
            return
        self._concluded = True
        handled = len(self.messages) if error is None else max(self._yielded, 0)
        if self._emits_events and error is not None:
            slots = [message.slot for message in self.messages[handled:]]
            yield self._event(EventOperation.SETTLE, EventOutcome.FAILURE, slots, error)
        entries = [message.entry for message in self.messages]
        conclusion = concluding.Conclusion(
            self._request.name,
            self.token,
            self._request.keep_seconds,
            self._recorded,
            self._chosen,
            done=entries[:handled] if self._config.enable_completed_queue else (),
            failed=entries[handled:],
            why=policies.why("", error),
        )
        yield from concluding.conclude(self._keys, self._history, conclusion)

    def _exit_verdicts(self, error: BaseException | None) -> list[Verdict]:
        """What leaving the block means for the messages without a verdict."""
        if error is None:
            return [Verdict("ack")]
        if not isinstance(error, Exception):
            return [Verdict("release")]
        open_slots = set(self._ledger.open)
        if self._yielded < 0:  # the handler took the batch whole, and any of them may be the culprit
            worst = max((message.delivery_count for message in self.messages), default=1)
            on_error = self._config.on_error if len(self.messages) == 1 else "retry"
            return [self._failed(None, worst, error, on_error)]
        in_hand = self.messages[self._yielded]
        earlier = [message for message in self.messages[: self._yielded] if message.slot in open_slots]
        later = [message for message in self.messages[self._yielded + 1 :] if message.slot in open_slots]
        verdicts = [Verdict(self._on_batch_error, earlier), Verdict("release", later)]
        if in_hand.slot in open_slots:
            verdicts.append(self._failed(in_hand, in_hand.delivery_count, error, self._config.on_error))
        return [verdict for verdict in verdicts if verdict.messages != []]

    def _failed(
        self, message: Message | None, deliveries: int, error: Exception, on_error: policies.OnError
    ) -> Verdict:
        failure = policies.after_error(on_error, self._config.backoff, deliveries, error)
        return Verdict(failure.verb, message, failure.delay_seconds, error, failure.reason)
