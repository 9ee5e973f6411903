"""Staged writes: tasks put their rows aside, and the driver publishes exactly those that Spark took, at the end.

A stage is the list of one attempt of one task. The record of the write names the stages of its first commit: only these
are ever published, in steps whose batch ids follow from the stage and the position, so that a step that is repeated, by
whichever process, finds its receipt. The receipts outlive the stages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluicegate.core.entry import SEPARATOR
from sluicegate.core.publishing import call_ranges
from sluicegate.core.transitions.publish import Batch
from sluicegate.errors import PayloadTooLargeError, RedisMessageQueueError
from sluicegate.spark.transitions import WriteRecord, WriteVerb, commit_write_call, stage_rows_call, staged_rows_call
from sluicegate.spark.writing.naming import digest_of
from sluicegate.spark.writing.sending import Sender

__all__ = ["Promoted", "Stage", "StageLostError", "StageWriter", "abort", "commit", "is_done"]

_STAGE_SECONDS = 86_400.0  # of a stage that no commit has named yet
_WRITE_SECONDS = 7 * 86_400.0  # of the record of a write, and of the stages that it names
_RECEIPT_SECONDS = _WRITE_SECONDS + 86_400.0
_STEP_BYTES = 4 * 1024 * 1024  # of one step, about
_PAGE = 1000  # stages that are dropped by one call


class StageLostError(RedisMessageQueueError):
    """What a task has staged is gone before it was published."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one attempt of one task has put aside.

    Attributes:
        name: of its own.
        rows: in it.
        step: rows that are published by one call.
    """

    name: str
    rows: int
    step: int

    @classmethod
    def of(cls, name: str, told: str) -> Stage:
        """From the record of a write."""
        rows, step = told.split()
        return cls(name, int(rows), int(step))

    @property
    def told(self) -> str:
        """What the record of a write keeps of it."""
        return f"{self.rows} {self.step}"


@dataclass(slots=True)
class Promoted:
    """What a commit did.

    Attributes:
        published: messages that were published, by this commit or by one that it repeats.
        duplicates: rows whose deduplication key was held.
        repeated: the write was done before.
    """

    published: int = 0
    duplicates: int = 0
    repeated: bool = False


class StageWriter:
    """Puts the rows of one attempt of one task aside.

    Args:
        sender: to the queue.
        write_id: of the write.
        partition: of the task.
        most: rows that one call may publish.
    """

    def __init__(self, sender: Sender, write_id: str, partition: int, most: int) -> None:
        self._sender = sender
        self._most = most
        self._name = f"{digest_of(write_id).decode()}.{partition}.{uuid.uuid4().hex}"
        self._rows = self._bytes = 0

    def append(self, parts: Sequence[bytes]) -> None:
        """Add rows, at most 1,000.

        Raises:
            StageLostError: the stage is gone.
            PayloadTooLargeError: a row that the server does not accept as a message; says which of the task's rows.
        """
        call = stage_rows_call(self._sender.keys, self._name.encode(), self._rows, parts, life_seconds=_STAGE_SECONDS)
        try:
            kept = self._sender.run(call)
        except PayloadTooLargeError as error:
            raise self._located(parts, error) from error
        if kept < 0:
            raise StageLostError(
                f"the {self._rows} rows that this task had staged are gone from Redis: they ran out after "
                f"{_STAGE_SECONDS / 3600:.0f} hours, were evicted, or the write was aborted; run it again"
            )
        self._rows += len(parts)
        self._bytes += sum(map(len, parts))

    def _located(self, parts: Sequence[bytes], error: PayloadTooLargeError) -> PayloadTooLargeError:
        """The error of a gateway about an argument, as one about a row."""
        position = self._rows + next((at for at, part in enumerate(parts) if len(part) == error.size), 0)
        return PayloadTooLargeError(
            f"the message at position {position} takes {error.size} bytes: {error}. Nothing of its {len(parts)} rows "
            "was staged; store the bulk elsewhere and publish where it is, or raise the limit",
            size=error.size,
            limit=error.limit,
            position=position,
        )

    def stage(self) -> Stage | None:
        """What was put aside; None for nothing."""
        if not self._rows:
            return None
        step = min(self._most, _STEP_BYTES * self._rows // self._bytes)
        return Stage(self._name, self._rows, max(1, step))


def is_done(sender: Sender, write_id: str) -> bool:
    """Whether a write of this id was published whole."""
    seen = _commit_write(sender, write_id, "look", ())
    return seen.known and not seen.waiting


def commit(sender: Sender, write_id: str, stages: Sequence[Stage]) -> Promoted:
    """Publish what was staged, each row once however often this is repeated, and drop the stages.

    A write of this id whose commit began before is ended with the stages of that one, and these are dropped.

    Raises:
        StageLostError: a stage is gone.
        Exception: whatever stops a publish; a note tells what is published.
    """
    given = {stage.name for stage in stages}
    opened = _commit_write(sender, write_id, "open", stages)
    if opened.gone:
        raise StageLostError(
            f"write {write_id!r}: what was staged by one of its tasks is gone from Redis (it ran out after "
            f"{_STAGE_SECONDS / 3600:.0f} hours, or was evicted); nothing was published, so run the write again"
        )
    left = [Stage.of(name, told) for name, told in opened.left.items()]
    promoted = Promoted(repeated=not left and bool(given))
    try:
        for stage in sorted(left, key=lambda stage: stage.name):
            for report in sender.send(_steps(sender, write_id, stage)):
                promoted.published += report.accepted
                promoted.duplicates += report.duplicates
            _commit_write(sender, write_id, "finish", [stage])
    except Exception as error:
        rows = sum(stage.rows for stage in left)
        error.add_note(
            f"write {write_id!r}: {promoted.published} of {rows} staged rows were published before this error and stay "
            "so"
        )
        raise
    _drop(sender, write_id, "drop", [stage for stage in stages if stage.name not in opened.left])
    return promoted


def abort(sender: Sender, write_id: str, stages: Sequence[Stage], *, again: bool) -> str:
    """Drop what was staged and is not published; returns what there is to say about it.

    Args:
        sender: to the queue.
        write_id: of the write.
        stages: of the tasks that ended.
        again: whether the same write may come again: then what its commit has begun to publish is left for that.
    """
    seen = _commit_write(sender, write_id, "look", ())
    if again and seen.known and seen.waiting:
        _drop(sender, write_id, "drop", stages)
        return (
            "its commit had begun, and what it had not published is kept for a week; the same write under the same "
            "writeId completes it"
        )
    _drop(sender, write_id, "drop" if again else "cancel", stages)
    rows = sum(stage.rows for stage in stages)
    return f"what {len(stages)} finished tasks had staged ({rows} rows) was dropped, but for what is published"


def _steps(sender: Sender, write_id: str, stage: Stage) -> Iterator[Batch]:
    """One call after the other; the same ones at every repeat, none once another commit of the write has ended them."""
    for first in range(0, stage.rows, stage.step):
        count = min(stage.step, stage.rows - first)
        parts = sender.run(staged_rows_call(sender.keys, stage.name.encode(), first, count))
        if len(parts) != count:
            seen = _commit_write(sender, write_id, "look", [stage])
            if seen.known and not seen.left:
                return
            raise StageLostError(
                f"what was staged as {stage.name} is gone from Redis before it was published whole (it was evicted, or "
                "ran out a week after its commit began); give the write another writeId to write everything again"
            )
        keys = [part.split(SEPARATOR, 2)[1] for part in parts]
        markers = [sender.keys.dedup(key) for key in keys] if keys[0] else []
        for start, end in call_ranges([len(part) for part in parts]):  # a step goes by the size of an average row
            batch_id = digest_of(stage.name, str(first + start))[:16].replace(b"-", b".")
            yield sender.batch(
                parts[start:end], markers[start:end], batch_id=batch_id, receipt_seconds=_RECEIPT_SECONDS
            )


def _commit_write(sender: Sender, write_id: str, verb: WriteVerb, stages: Sequence[Stage]) -> WriteRecord:
    told = {stage.name: stage.told for stage in stages}
    return sender.run(commit_write_call(sender.keys, digest_of(write_id), verb, told, life_seconds=_WRITE_SECONDS))


def _drop(sender: Sender, write_id: str, verb: WriteVerb, stages: Sequence[Stage]) -> None:
    for first in range(0, len(stages), _PAGE):
        _commit_write(sender, write_id, verb, stages[first : first + _PAGE])
