"""The verdicts of one lease: from messages to the groups of slots that a settle sends."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import get_args

from sluicegate import checks
from sluicegate._lease_values import Verdict
from sluicegate.core import policies
from sluicegate.core.entry import bound_markers
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import LeaseCounts, Ledger, Verb, VerdictGroup, merge_verdicts
from sluicegate.errors import AlreadySettledError, ConfigurationError
from sluicegate.message import Message

__all__ = ["VerdictBook"]

_VERBS: tuple[str, ...] = get_args(Verb)


class VerdictBook:
    """Records one verdict per message of a lease.

    Args:
        keys: the queue's Redis keys.
        lease_id: the lease's id, for errors.
        messages: the lease's messages.
        keeps_errors: whether the errors of verdicts are kept for their events.
    """

    __slots__ = (
        "_bound",
        "_by_slot",
        "_errors",
        "_keeps_errors",
        "_keys",
        "_lease_id",
        "_ledger",
        "_lock",
        "_messages",
    )

    def __init__(self, keys: QueueKeys, lease_id: str, messages: list[Message], *, keeps_errors: bool) -> None:
        self._keys = keys
        self._lease_id = lease_id
        self._messages = messages
        self._ledger = Ledger(message.slot for message in messages)
        self._keeps_errors = keeps_errors
        self._errors: dict[Verb, BaseException] = {}
        self._bound: dict[int, bytes] | None = None
        self._by_slot: dict[int, Message] | None = None
        self._lock = threading.RLock()  # a signal handler may settle the lease that its own thread is settling

    @property
    def counts(self) -> LeaseCounts:
        """The confirmed verdicts."""
        return self._ledger.counts

    @property
    def open(self) -> list[int]:
        """The slots without a verdict."""
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

    def confirm(self, sent: Sequence[int], lost: Sequence[int], buried: Sequence[int]) -> tuple[int, ...]:
        """Record Redis's answer to the verdicts that were sent; returns the slots whose verdict took effect."""
        with self._lock:
            return self._ledger.confirm(sent, lost, buried)

    def is_confirmed(self, slots: Iterable[int]) -> bool:
        """Whether Redis has answered to the verdicts of these slots."""
        return self._ledger.confirmed(slots)

    def pop_error(self, verb: Verb) -> BaseException | None:
        """The error given with the last verdict of this kind that is not yet confirmed."""
        return self._errors.pop(verb, None)

    def message_at(self, slot: int) -> Message:
        """The message in a slot."""
        if self._by_slot is None:
            self._by_slot = {message.slot: message for message in self._messages}
        return self._by_slot[slot]

    def size_at(self, slot: int) -> int:
        """The stored size of the message in a slot, in bytes."""
        return self.message_at(slot).size

    def only_id(self, slots: Sequence[int]) -> str | None:
        """The id of the message when there is one slot; None for several."""
        return self.message_at(slots[0]).id if len(slots) == 1 else None

    def bound_among(self, slots: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
        """The deduplication markers that end with the messages in these slots."""
        if self._bound is None:  # read once: a queue without such markers has an empty answer
            entries = [(message.slot, message.entry) for message in self._messages]
            self._bound = dict(bound_markers(self._keys, entries))
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
                why=policies.why((verdict.reason or "buried") if verdict.verb == "bury" else "", verdict.error),
            )
        except AlreadySettledError as error:
            error.locate(message_id=self.only_id(slots))
            raise

    def _slots(self, messages: Message | Iterable[Message]) -> list[int]:
        if isinstance(messages, Message):
            messages = (messages,)
        slots = []
        for message in messages:
            if not isinstance(message, Message) or not self._owns(message):
                raise AlreadySettledError(
                    f"{message!r} is not a message of lease {self._lease_id!r}",
                    message_id=getattr(message, "id", None),
                )
            slots.append(message.slot)
        return slots

    def _owns(self, message: Message) -> bool:
        slot = message.slot
        if 0 < slot <= len(self._messages) and self._messages[slot - 1] is message:
            return True
        if self._by_slot is None:  # a lease that was taken over after a part of it was settled
            self._by_slot = {mine.slot: mine for mine in self._messages}
        return self._by_slot.get(slot) is message
