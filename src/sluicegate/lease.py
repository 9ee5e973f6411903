"""A lease: a batch of messages that one holder works on, settled message by message or whole."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Literal, get_args

from sluicegate.core import calls, operations, policies, replies
from sluicegate.core.call import Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import LeaseCounts, Ledger
from sluicegate.core.ranges import parse_ranges
from sluicegate.core.values import ClaimRequest, SettleRequest, Terms, Verb, VerdictGroup
from sluicegate.errors import AlreadySettledError, ConfigurationError, LeaseLostError, RedisMessageQueueError
from sluicegate.gateway import RedisGateway, elapsed_clock
from sluicegate.heartbeat import scheduler
from sluicegate.message import Message

__all__ = ["Lease", "LeaseBase", "LeaseState", "OnBatchError", "Verdict"]

OnBatchError = Literal["release", "ack"]
_VERBS: tuple[str, ...] = get_args(Verb)
_log = logging.getLogger("sluicegate")


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
        terms: Terms,
        request: ClaimRequest,
        reply: replies.ClaimReply,
        *,
        lease_id: str,
        chosen: bool,
        asked_at: float,
        on_batch_error: OnBatchError = "release",
    ) -> None:
        self.id = lease_id
        self.opening = ""
        self.takeovers = 0
        self.silent_seconds = 0.0
        self.messages: list[Message] = []
        self._keys = keys
        self._terms = terms
        self._request = request
        self._confirmed_at = asked_at
        self._renewed_at = asked_at
        self._lease_seconds = request.lease_seconds
        self._on_batch_error = on_batch_error
        self._ended: LeaseCounts | None = None
        self._gone = False
        self._finished = False
        self._yielded = -1
        self._lock = threading.Lock()
        match reply:
            case replies.Opened(opening, takeovers, slots, entries):
                self.state = LeaseState.OPEN
                self.opening = opening.decode()
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
        self._recorded = chosen or len(self.messages) != 1
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
        return elapsed_clock() - self._renewed_at > self._lease_seconds

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

    def _groups(self, verdicts: Iterable[Verdict]) -> list[VerdictGroup]:
        """Note verdicts, all of them or none, and give the groups to send."""
        with self._lock:
            before = self._ledger.copy()
            try:
                groups = [self._group(verdict) for verdict in verdicts]
            except (AlreadySettledError, ConfigurationError):
                self._ledger = before
                raise
        return [group for group in groups if group is not None]

    def _group(self, verdict: Verdict) -> VerdictGroup | None:
        if verdict.verb not in _VERBS:
            raise ConfigurationError(f"verb must be one of {', '.join(_VERBS)}, not {verdict.verb!r}")
        if not 0 <= verdict.delay_seconds < math.inf:
            raise ConfigurationError(f"delay_seconds must be a number of 0 or more, not {verdict.delay_seconds!r}")
        return self._ledger.group(
            verdict.verb,
            self._ledger.rest(verdict.verb) if verdict.messages is None else self._slots(verdict.messages),
            delay_seconds=verdict.delay_seconds,
            named=verdict.messages is not None,
            why=policies.why((verdict.reason or "buried") if verdict.verb == "bury" else "", verdict.error),
        )

    def _slots(self, messages: Message | Iterable[Message]) -> list[int]:
        if isinstance(messages, Message):
            messages = (messages,)
        slots = []
        for message in messages:
            if not isinstance(message, Message) or not self._owns(message):
                raise AlreadySettledError(f"{message!r} is not a message of lease {self.id!r}")
            slots.append(message.slot)
        return slots

    def _owns(self, message: Message) -> bool:
        slot = message.slot
        if 0 < slot <= len(self.messages) and self.messages[slot - 1] is message:
            return True
        return any(mine is message for mine in self.messages)

    def _settling(self, groups: Sequence[VerdictGroup]) -> Operation[None]:
        """Send verdicts and note what became of them."""
        if not groups:
            return
        request = SettleRequest(
            self._request.name, self.token, self._request.keep_seconds, self._recorded, tuple(groups)
        )
        asked_at = elapsed_clock()
        try:
            settled = yield from operations.settle(
                self._keys,
                self._terms,
                request,
                lease_seconds=self._lease_seconds,
                clock=elapsed_clock,
                confirmed_at=self._confirmed_at,
                lease_id=self.id,
            )
        except LeaseLostError:
            self._gone = True
            raise
        sent = [slot for group in groups for slot in parse_ranges(group.slots)]
        with self._lock:
            done = self._ledger.confirm(sent, settled.lost, settled.buried)
        if settled.lost:
            self._gone = True
            raise LeaseLostError(
                f"lease {self.id!r} is no longer held: {len(settled.lost)} of {len(sent)} verdicts came too "
                f"late, and their "
                "messages are or will be delivered again",
                lease_id=self.id,
                lost=settled.lost,
                settled=done,
            )
        self._confirmed_at = asked_at
        if settled.held == 0:
            self._finished, self._gone = True, False

    def _extending(self, lease_seconds: float | None = None) -> Operation[replies.Extended]:
        seconds = self._lease_seconds if lease_seconds is None else lease_seconds
        if not 0 < seconds < math.inf:
            raise ConfigurationError(f"lease_seconds must be a number above 0, not {seconds!r}")
        asked_at = elapsed_clock()
        extended: replies.Extended = yield calls.extend(
            self._keys,
            self._request.name,
            self.token,
            lease_seconds=seconds,
            longest_seconds=self._terms.longest_lease_seconds,
        )
        if extended is replies.Extended.OK:
            self._confirmed_at = self._renewed_at = asked_at
            self._lease_seconds = seconds
        elif extended is replies.Extended.LOST and not self._finished:
            self._gone = True
        return extended

    def _exit_verdicts(self, error: BaseException | None) -> list[Verdict]:
        """What leaving the block means for the messages without a verdict."""
        if error is None:
            return [Verdict("ack")]
        if not isinstance(error, Exception):
            return [Verdict("release")]
        open_slots = set(self._ledger.open)
        if self._yielded < 0:  # the handler took the batch whole
            worst = max((message.delivery_count for message in self.messages), default=1)
            delay = policies.backoff_seconds(policies.DEFAULT_BACKOFF, worst)
            return [Verdict("nack", None, delay, error)]
        in_hand = self.messages[self._yielded]
        earlier = [message for message in self.messages[: self._yielded] if message.slot in open_slots]
        later = [message for message in self.messages[self._yielded + 1 :] if message.slot in open_slots]
        verdicts = [Verdict(self._on_batch_error, earlier), Verdict("release", later)]
        if in_hand.slot in open_slots:
            delay = policies.backoff_seconds(policies.DEFAULT_BACKOFF, in_hand.delivery_count)
            verdicts.append(Verdict("nack", in_hand, delay, error))
        return [verdict for verdict in verdicts if verdict.messages]


class Lease(LeaseBase):
    """A batch of messages leased to this holder.

    Falsy unless it holds messages; `state` tells why. As a context manager it beats in the background, and leaving
    the block acks what has no
    verdict yet. When the block raises an `Exception`, the message in hand is nacked with the error, messages already
    yielded
    are released or acked as `on_batch_error` says, those not yet yielded are released; a block that never iterated
    has its whole batch
    nacked. Any other `BaseException` releases everything.

    A message has one verdict per lease. Verdicts raise `LeaseLostError` when they came too late.
    """

    def __init__(self, gateway: RedisGateway, *args: object, heartbeat_seconds: float | None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._gateway = gateway
        self._heartbeat_seconds = heartbeat_seconds

    def ack(self, *messages: Message | Iterable[Message]) -> None:
        """The messages are done; without arguments, all that have no verdict."""
        self.settle(*(Verdict("ack", message) for message in messages) if messages else (Verdict("ack"),))

    def nack(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        delay_seconds: float = 0,
        error: BaseException | str | None = None,
    ) -> None:
        """The messages failed: claimable again, after a delay if given; counts as a delivery and may bury them for
        their count.
        """
        self.settle(Verdict("nack", messages, delay_seconds, error))

    def release(self, messages: Message | Iterable[Message] | None = None) -> None:
        """The messages were not worked on: claimable again, not counted up to three times."""
        self.settle(Verdict("release", messages))

    def bury(
        self,
        messages: Message | Iterable[Message] | None = None,
        *,
        error: BaseException | str | None = None,
        reason: str = "buried",
    ) -> None:
        """The messages are hopeless: dead, with reason and error."""
        self.settle(Verdict("bury", messages, error=error, reason=reason))

    def settle(self, *verdicts: Verdict) -> None:
        """Give several verdicts in one call: all of them take effect, or the error names the slots that did not.

        Raises:
            LeaseLostError: some verdicts came too late.
            AlreadySettledError: a message has another verdict, or is not of this lease.
        """
        self._gateway.run(self._settling(self._groups(verdicts)))

    def extend(self, lease_seconds: float | None = None) -> None:
        """Move the deadline to now plus `lease_seconds` (default: as claimed or last extended).

        Raises:
            LeaseLostError: the lease is gone, in another hand, or has reached its longest life.
        """
        extended = self._gateway.run(self._extending(lease_seconds))
        if extended is not replies.Extended.OK:
            what = "over its longest life" if extended is replies.Extended.OVER else "lost"
            raise LeaseLostError(
                f"lease {self.id!r} cannot be extended: it is {what}",
                lease_id=self.id,
                lost=self._ledger.open,
            )

    def start_heartbeat(self, interval_seconds: float | None = None) -> None:
        """Extend in the background, every third of the lease unless told otherwise, until `stop_heartbeat`."""
        if not self.messages:
            return
        self._heartbeat_seconds = interval_seconds or self._heartbeat_seconds or self._lease_seconds / 3
        scheduler().watch(self, self._heartbeat_seconds)

    def stop_heartbeat(self) -> None:
        """No extension begins after this."""
        scheduler().unwatch(self)

    def beat(self) -> float | None:
        """One heartbeat, for the scheduler: extends once without retries; returns the seconds to the next, None for
        no more.
        """
        if self._finished:
            return None
        interval = self._heartbeat_seconds or self._lease_seconds / 3
        try:
            extended = self._gateway.run(self._extending(), retry=False)
        except RedisMessageQueueError as error:
            _log.warning("heartbeat of lease %r failed: %s", self.id, type(error).__name__)
            return None if self._silence() > 2 * self._lease_seconds else min(interval, 1.0)
        if self._finished:
            return None
        if extended is not replies.Extended.OK:
            _log.warning("lease %r is lost or over its longest life; its heartbeat stops", self.id)
            return None
        return interval

    def __enter__(self) -> Lease:
        if self._heartbeat_seconds is not None:
            self.start_heartbeat()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop_heartbeat()
        if not self.messages:
            return
        try:
            self.settle(*self._exit_verdicts(error))
        except RedisMessageQueueError as failure:
            if error is None:
                raise
            _log.warning("lease %r could not be settled after its block failed: %s", self.id, failure)
