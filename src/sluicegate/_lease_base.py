"""A lease without I/O: what a claim answered, the messages, their verdicts, and how long the lease lives."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, get_args

from sluicegate import checks, spans
from sluicegate._session import QueueSession
from sluicegate.clock import elapsed_clock
from sluicegate.core import policies
from sluicegate.core.call import Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.leased import LeasedEntries
from sluicegate.core.ledger import LeaseCounts, Ledger, Verb, VerdictGroup, merge_verdicts
from sluicegate.core.transitions.claim import Acked, ClaimReply, ClaimRequest, Empty, Held, Opened, Paused
from sluicegate.errors import AlreadySettledError, ConfigurationError
from sluicegate.leased_messages import LeasedMessages
from sluicegate.message import Message

__all__ = ["Claim", "ClaimedBatch", "LeaseBase", "LeaseState", "OnBatchError", "Verdict", "VerdictBook"]

R = TypeVar("R")
OnBatchError = Literal["release", "ack"]
_VERBS: tuple[str, ...] = get_args(Verb)


class LeaseState(Enum):
    """What a claim answered."""

    OPEN = "open"
    """Messages are leased to the caller."""
    EMPTY = "empty"
    """Nothing was claimable."""
    ACKED = "acked"
    """The lease of this id was worked on and has ended; `counts` holds its verdicts."""
    HELD = "held"
    """Another consumer holds the lease of this id."""
    PAUSED = "paused"
    """The queue is paused and gives out no new messages."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict for some messages of a lease, for `Lease.settle`.

    Attributes:
        verb: `ack`, `nack`, `release` or `bury`.
        messages: the messages it applies to; None for all that have no verdict.
        delay_seconds: how long a nacked message stays unavailable.
        error: what went wrong; kept with a dead letter.
        reason: why the message is buried.
        result: what an acked job is completed with, as JSON; None for no result.
    """

    verb: Verb
    messages: Message | Iterable[Message] | None = None
    delay_seconds: float = 0
    error: BaseException | str | None = None
    reason: str = ""
    result: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim as its caller asked for it; see `RedisMessageQueue.claim`.

    Attributes:
        request: what Redis is asked.
        lease_id: the lease's id, given by the caller or made by the library.
        is_named: whether the caller gave the id, so that a retry may ask for the lease's record.
        on_batch_error: what becomes of messages already yielded when the block raises.
        heartbeat: whether the block extends the lease in the background.
    """

    request: ClaimRequest
    lease_id: str
    is_named: bool
    on_batch_error: OnBatchError = "release"
    heartbeat: bool = True


class VerdictBook:
    """Records one verdict per message of a lease.

    Args:
        keys: the queue's Redis keys.
        lease_id: the lease's id, for errors.
        leased: the lease's messages.
        keeps_errors: whether the errors of verdicts are kept for their events.
    """

    __slots__ = (
        "_bound",
        "_errors",
        "_keeps_errors",
        "_keys",
        "_lease_id",
        "_leased",
        "_ledger",
        "_lock",
    )

    def __init__(self, keys: QueueKeys, lease_id: str, leased: LeasedMessages, *, keeps_errors: bool) -> None:
        self._keys = keys
        self._lease_id = lease_id
        self._leased = leased
        self._ledger = Ledger(leased.stored.slots)
        self._keeps_errors = keeps_errors
        self._errors: dict[Verb, BaseException] = {}
        self._bound: dict[int, bytes] | None = None
        self._lock = threading.RLock()  # a signal handler may settle the lease that its own thread is settling

    @property
    def counts(self) -> LeaseCounts:
        """Return the confirmed verdicts."""
        return self._ledger.counts

    @property
    def open(self) -> list[int]:
        """Return the slots without a verdict."""
        return self._ledger.open

    def record(self, verdicts: Sequence[Verdict]) -> list[VerdictGroup]:
        """Record verdicts, all of them or none, and return the groups to send.

        Raises:
            AlreadySettledError: a message has another verdict, or belongs to another lease.
            ConfigurationError: a verdict that does not exist.
        """
        with self._lock:
            # A single verdict is recorded whole or not at all, so only several need the copy.
            before = self._ledger.copy() if len(verdicts) > 1 else self._ledger
            try:
                groups = [self._group(verdict) for verdict in verdicts]
            except (AlreadySettledError, ConfigurationError) as error:
                self._ledger = before
                error.locate(queue=self._keys.name, operation="settle")
                raise
        return merge_verdicts([group for group in groups if group is not None])

    def confirm(self, sent: Sequence[int], lost: Sequence[int], buried: Sequence[int]) -> Sequence[int]:
        """Record Redis's answer to the verdicts that were sent; returns the slots whose verdict took effect."""
        with self._lock:
            return self._ledger.confirm(sent, lost, buried)

    def is_confirmed(self, slots: Iterable[int]) -> bool:
        """Return whether Redis has confirmed the verdicts of these slots."""
        return self._ledger.confirmed(slots)

    def pop_error(self, verb: Verb) -> BaseException | None:
        """Return the error of the last verdict of this kind that is not confirmed yet."""
        return self._errors.pop(verb, None)

    def message_at(self, slot: int) -> Message:
        """Return the message in a slot."""
        return self._leased.at(slot)

    def size_at(self, slot: int) -> int:
        """Return the stored size of the message in a slot, in bytes."""
        return self._leased.stored.size_at(slot)

    def only_id(self, slots: Sequence[int]) -> str | None:
        """Return the id of the message if there is one slot; None for several."""
        return self.message_at(slots[0]).id if len(slots) == 1 else None

    def bound_among(self, slots: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
        """Return the deduplication keys whose markers end with the messages in these slots."""
        if self._bound is None:  # read once: a queue without such markers has an empty answer
            self._bound = dict(self._leased.stored.bound())
        bound = self._bound
        return tuple((slot, bound[slot]) for slot in sorted(slots) if slot in bound) if bound else ()

    def _group(self, verdict: Verdict) -> VerdictGroup | None:
        if verdict.verb not in _VERBS:
            raise ConfigurationError(f"verb must be one of {', '.join(_VERBS)}, not {verdict.verb!r}")
        checks.not_negative("delay_seconds", verdict.delay_seconds)
        if self._keeps_errors and isinstance(verdict.error, BaseException):
            self._errors[verdict.verb] = verdict.error
        slots = self._ledger.rest(verdict.verb) if verdict.messages is None else self._slots(verdict.messages)
        try:
            return self._ledger.group(
                verdict.verb,
                slots,
                delay_seconds=verdict.delay_seconds,
                named=verdict.messages is not None,
                why=_why(verdict),
            )
        except AlreadySettledError as error:
            error.locate(message_id=self.only_id(slots))
            raise

    def _slots(self, messages: Message | Iterable[Message]) -> Sequence[int]:
        if messages is self._leased:
            return self._leased.stored.slots
        if isinstance(messages, Message):
            messages = (messages,)
        slots = []
        for message in messages:
            if not isinstance(message, Message) or not self._leased.owns(message):
                raise AlreadySettledError(
                    f"{message!r} is not a message of lease {self._lease_id!r}",
                    message_id=getattr(message, "id", None),
                )
            slots.append(message.slot)
        return slots


def _why(verdict: Verdict) -> bytes:
    """Return what is kept with the messages of a verdict: a result of an ack, or else reason and error."""
    if verdict.verb == "ack" and verdict.result is not None:
        return verdict.result
    reason = {"bury": verdict.reason or "buried", "discard": verdict.reason}.get(verdict.verb, "")
    return policies.why(reason, verdict.error)


class ClaimedBatch:
    """The state of one lease; `_lease_operations` moves it.

    Args:
        session: of the queue.
        claim: what was asked for.
        reply: what Redis answered.
        asked_at: when the claim was sent, by `elapsed_clock`: the lease's life begins no later.

    Attributes:
        claim: what was asked for.
        state: what was answered.
        opening: which opening of the lease's id this is.
        token: proves to Redis that the caller holds this opening.
        takeovers: how often the lease was taken over.
        silent_seconds: for `HELD`, how long its consumer has been silent.
        remembered: for `EMPTY`, whether it repeats an earlier answer.
        leased: the messages; none unless the state is `OPEN`.
        verdicts: their verdicts.
        lease_seconds: the lease's life, as claimed or last extended.
        confirmed_at: when Redis last confirmed that the caller holds the lease.
        is_gone: whether Redis said that the caller no longer holds the lease.
        is_finished: whether all of it is settled.
        is_detached: whether the lease continues without this object, under its handle.
        yielded: the position of the last message that an iteration yielded; -1 before the first.
        is_recorded: whether the end of the lease leaves a record in Redis.
        is_acked_ahead: whether it was acked before its messages are handled: at most once.
        is_concluded: whether it was recorded how the handling of such messages ended.
        acks_whole: whether one small call may ack all of it, because nothing is recorded of its messages.
        at_exit: changes the verdicts for what has none when the lease's block ends; None leaves them.
        after_extend: what an extension that succeeded asks of Redis as well; None for nothing.
        trace: what a tracer keeps with it.
    """

    __slots__ = (
        "_ended",
        "_max_lease_seconds",
        "_opened_at",
        "_renewed_at",
        "acks_whole",
        "after_extend",
        "at_exit",
        "claim",
        "confirmed_at",
        "is_acked_ahead",
        "is_concluded",
        "is_detached",
        "is_finished",
        "is_gone",
        "is_recorded",
        "lease_seconds",
        "leased",
        "opening",
        "remembered",
        "silent_seconds",
        "state",
        "takeovers",
        "token",
        "trace",
        "verdicts",
        "yielded",
    )

    def __init__(self, session: QueueSession[Any], claim: Claim, reply: ClaimReply, asked_at: float) -> None:
        self.claim = claim
        self.state = LeaseState.EMPTY
        self.opening = ""
        self.token = claim.request.nonce + b":"
        self.takeovers = 0
        self.silent_seconds = 0.0
        self.remembered = False
        self.leased = LeasedMessages(LeasedEntries([]))
        self.lease_seconds = claim.request.lease_seconds
        self.confirmed_at = self._renewed_at = self._opened_at = asked_at
        self.is_gone = self.is_finished = self.is_acked_ahead = self.is_concluded = self.is_detached = False
        self.yielded = -1
        self.acks_whole = True
        self.trace: Any = None
        self.at_exit: Callable[[list[Verdict]], list[Verdict]] | None = None
        self.after_extend: Callable[[], Operation[None]] | None = None
        self._max_lease_seconds = session.rules.max_lease_seconds
        self._ended: LeaseCounts | None = None
        match reply:
            case Opened(opening, takeovers):
                self.state = LeaseState.OPEN
                self.opening = opening.decode(errors="replace")
                self.token += opening
                self.takeovers = takeovers
                self.leased = LeasedMessages(reply.leased())
            case Held(_, silent_seconds):
                self.state = LeaseState.HELD
                self.silent_seconds = silent_seconds
            case Acked(acked, returned, buried):
                self.state = LeaseState.ACKED
                self._ended = LeaseCounts(acked, returned, buried)
            case Paused():
                self.state = LeaseState.PAUSED
            case _:
                self.remembered = isinstance(reply, Empty) and reply.remembered
        self.is_recorded = claim.is_named or len(self.leased) != 1
        self.verdicts = VerdictBook(session.keys, claim.lease_id, self.leased, keeps_errors=session.runner.emits_events)

    @property
    def messages(self) -> list[Message]:
        """Return the messages as objects, which are made at the first call; `leased` answers more cheaply."""
        return self.leased.all()

    @property
    def key(self) -> str:
        """Return a file-safe name for the lease's id and opening, as 32 hex digits."""
        return hashlib.sha256(f"{self.claim.lease_id}\0{self.opening}".encode()).hexdigest()[:32]

    @property
    def counts(self) -> LeaseCounts:
        """Return the confirmed verdicts; for `ACKED`, those of the earlier consumer."""
        return self._ended or self.verdicts.counts

    @property
    def is_held(self) -> bool:
        """Return whether messages are left to settle, as far as the consumer knows."""
        return bool(self.leased) and not (self.is_finished or self.is_gone or self.is_detached)

    @property
    def is_lost(self) -> bool:
        """Return whether Redis reported the lease as lost, or it has expired by our clock."""
        if not self.is_held:
            return self.is_gone
        now, most = elapsed_clock(), self._max_lease_seconds
        return now - self._renewed_at > self.lease_seconds or 0 < most < now - self._opened_at

    @property
    def held_for_seconds(self) -> float:
        """Return the time since this consumer claimed, took over or attached the lease."""
        return elapsed_clock() - self._opened_at

    @property
    def silent_for_seconds(self) -> float:
        """Return the time since Redis last confirmed that the caller holds the lease."""
        return elapsed_clock() - self.confirmed_at

    def refuse_detached(self) -> None:
        """Raise when the lease continues without this object.

        Raises:
            AlreadySettledError: it does.
        """
        if self.is_detached:
            raise AlreadySettledError(
                f"lease {self.claim.lease_id!r} was detached from this object; continue with queue.attach(handle)"
            )

    def renew(self, asked_at: float, lease_seconds: float) -> None:
        """Start the lease's life anew: Redis has extended it."""
        self.confirmed_at = self._renewed_at = asked_at
        self.lease_seconds = lease_seconds

    def drop(self, messages: Iterable[Message]) -> None:
        """Leave out messages that have their verdicts before their consumer has seen them."""
        self.leased.drop({message.slot for message in messages})

    def give_up(self) -> None:
        """Become what a claim that found nothing answers, after the messages were released."""
        self.state, self.leased = LeaseState.EMPTY, LeasedMessages(LeasedEntries([]))


class LeaseBase(Generic[R]):
    """A lease as its consumer reads it.

    Attributes:
        id: the lease's id, given by the caller or made by the library.
        state: what the claim answered.
        opening: which opening of the id this is: a new one whenever the id is claimed anew.
        takeovers: how often this opening was taken over.
        silent_seconds: for `HELD`, the time since its consumer last extended it.
        remembered: for `EMPTY`, whether an earlier claim under this id got the same answer.
    """

    def __init__(self, session: QueueSession[R], batch: ClaimedBatch) -> None:
        self.id = batch.claim.lease_id
        self.state = batch.state
        self.opening = batch.opening
        self.takeovers = batch.takeovers
        self.silent_seconds = batch.silent_seconds
        self.remembered = batch.remembered
        self._session = session
        self._batch = batch

    @property
    def messages(self) -> list[Message]:
        """Return the leased messages, oldest first."""
        return self._batch.leased.all()

    @property
    def leased(self) -> LeasedMessages:
        """Return the leased messages as a sequence that makes their objects only when one is read. Internal."""
        return self._batch.leased

    @property
    def key(self) -> str:
        """Return a file-safe name for this lease **and opening**.

        It stays the same after a takeover and changes whenever the id is opened anew. If a lease is settled in one
        call, only a retry overwrites output that is named by this key.
        """
        return self._batch.key

    @property
    def token(self) -> bytes:
        """Return the token that proves to Redis that the caller holds this opening."""
        return self._batch.token

    @property
    def counts(self) -> LeaseCounts:
        """Return the confirmed verdicts; for `ACKED`, those of the earlier consumer."""
        return self._batch.counts

    @property
    def lost(self) -> bool:
        """Return whether this consumer lost the lease: Redis reported it, or no heartbeat succeeded in time.

        It stays False after the consumer has settled all messages.
        """
        return self._batch.is_lost

    @property
    def unsettled(self) -> list[int]:
        """Return the slots without a verdict."""
        return self._batch.verdicts.open

    def traced(self) -> AbstractContextManager[None]:
        """Return a block in which the work on the messages is traced, if tracing is on; `with lease` is one."""
        if spans.tracer is None or not self:
            return nullcontext()
        return spans.tracer.handling(self._session, self._batch)

    def __len__(self) -> int:
        return len(self._batch.leased)

    def __bool__(self) -> bool:
        return len(self._batch.leased) > 0

    def __iter__(self) -> Iterator[Message]:
        batch = self._batch
        for position, message in enumerate(self.messages):
            if position > batch.yielded:  # noqa: PLR1730  (`max` takes three times as long, for every message)
                batch.yielded = position
            yield message

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, state={self.state.value}, messages={len(self)})"
