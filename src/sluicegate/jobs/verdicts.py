"""What kinds of jobs make of verdicts and results. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sluicegate._lease_base import ClaimedBatch, Verdict
from sluicegate.core import json
from sluicegate.errors import PayloadTooLargeError
from sluicegate.jobs.kind import NO_KIND, JobKind, JobKinds
from sluicegate.message import Message

__all__ = ["CANCELLED", "EXHAUSTED", "JobRules", "kind_name"]

EXHAUSTED = "max_attempts"
"""The reason of a dead letter whose job has used up its attempts."""
CANCELLED = "cancelled"
"""The reason for which a running job is discarded when its worker heeds a request to cancel it."""


def kind_name(message: Message) -> str:
    """Return the kind of a job: from its header `kind`, else from the payload's field; `default` for none."""
    try:
        named = message.headers.get("kind")
        if named is not None:
            return named
        payload = message.json()
    except ValueError:  # not ours: its worker says what is wrong with it
        return NO_KIND
    found = payload.get("kind") if isinstance(payload, dict) else None
    return found if isinstance(found, str) else NO_KIND


class JobRules:
    """What a queue of jobs decides about the jobs of its leases.

    Args:
        kinds: of the queue.
        json_default: how results write values that JSON cannot carry; None refuses them.
        max_result_bytes: largest result as stored.
    """

    __slots__ = ("_json_default", "_max_result_bytes", "kinds")

    def __init__(self, kinds: JobKinds, json_default: json.Default | None, max_result_bytes: int) -> None:
        self.kinds = kinds
        self._json_default = json_default
        self._max_result_bytes = max_result_bytes

    def kind_of(self, message: Message) -> JobKind:
        """Return the kind of a job."""
        return self.kinds.get(kind_name(message))

    def encode_result(self, result: Any) -> bytes | None:
        """Return a result as it is stored; None for none.

        Raises:
            TypeError, ValueError: JSON cannot carry it; the text names the path.
            PayloadTooLargeError: it is larger than the queue allows.
        """
        if result is None:
            return None
        data = json.dumps(result, default=self._json_default)
        if len(data) > self._max_result_bytes:
            raise PayloadTooLargeError(
                f"a result of {len(data)} bytes as stored is over max_result_bytes={self._max_result_bytes}; store the "
                "bulk elsewhere and complete the job with where it is, or raise the limit",
                size=len(data),
                limit=self._max_result_bytes,
            )
        return data

    def by_kind(self, batch: ClaimedBatch, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Return verdicts with each failed job buried that has used up its attempts.

        A verdict for a whole batch of several buries none: any of them may be the one that failed.
        """
        return [part for verdict in verdicts for part in self._parts(batch, verdict)]

    def after_error(self, batch: ClaimedBatch, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Return the verdicts at the end of a block that raised: a retried job waits as its kind says."""
        found: list[Verdict] = []
        for verdict in verdicts:
            named = self._named(batch, verdict)
            if verdict.verb == "nack" and len(named) == 1:
                error = verdict.error if isinstance(verdict.error, BaseException) else None
                pause = self.kind_of(named[0]).pause_seconds(named[0].delivery_count, error)
                verdict = replace(verdict, messages=named, delay_seconds=pause)  # noqa: PLW2901
            found += self._parts(batch, verdict)
        return found

    def exhausted(self, messages: Iterable[Message]) -> list[Message]:
        """Return the jobs whose attempts were used up before this one, by crashes or lost leases."""
        return [
            message
            for message in messages
            if message.delivery_count > 1 and message.delivery_count > self.kind_of(message).max_attempts
        ]

    def longest_seconds(self, messages: Iterable[Message]) -> float:
        """Return the longest visibility timeout among the kinds of jobs."""
        if not self.kinds.differ:
            return self.kinds.shortest_seconds
        return max((self.kind_of(message).visibility_timeout_seconds for message in messages), default=0.0)

    def _parts(self, batch: ClaimedBatch, verdict: Verdict) -> list[Verdict]:
        if verdict.verb != "nack":
            return [verdict]
        named = self._named(batch, verdict)
        over = [message for message in named if message.delivery_count >= self.kind_of(message).max_attempts]
        if not over:
            return [verdict]
        gone = {message.slot for message in over}
        left = [message for message in named if message.slot not in gone]
        buried = Verdict("bury", over, error=verdict.error, reason=EXHAUSTED)
        return [replace(verdict, messages=left), buried] if left else [buried]

    @staticmethod
    def _named(batch: ClaimedBatch, verdict: Verdict) -> Sequence[Message]:
        """Return the messages that a verdict names; all without a verdict count as named when there is one at most."""
        if isinstance(verdict.messages, Message):
            return [verdict.messages]
        if verdict.messages is not None:
            return list(verdict.messages)
        return batch.messages if len(batch.leased) == 1 and batch.verdicts.open else []
