"""Stage a write: tasks store their rows, and at the end the driver publishes those of the attempts that Spark accepted.

A stage is a list with the rows of one attempt of one task. The record of the write names the stages of its first
commit, and only these are ever published. A commit publishes in steps. The batch id of a step follows from the stage
and the position, so that a repeated step, in any process, finds its receipt. The receipts outlive the stages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.publishing import call_ranges
from sluicegate.core.transitions.publish import Batch
from sluicegate.errors import PayloadTooLargeError, RedisMessageQueueError
from sluicegate.spark.transitions import WriteRecord, WriteVerb, commit_write_call, stage_rows_call, staged_rows_call
from sluicegate.spark.writing.naming import digest_of
from sluicegate.spark.writing.sending import Sender

__all__ = ["Promoted", "Stage", "StageLostError", "StageWriter", "abort", "commit", "is_done"]

_STAGE_SECONDS = 86_400.0  # life of a stage before a commit
_WRITE_SECONDS = 7 * 86_400.0  # life of the record of a write, and of the stages that it names
_RECEIPT_SECONDS = _WRITE_SECONDS + 86_400.0
_STEP_BYTES = 4 * 1024 * 1024  # about the largest step
_PAGE = 1000  # stages per call


class StageLostError(RedisMessageQueueError):
    """Staged rows are gone from Redis before they were published."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Describes the staged rows of one attempt of one task.

    Attributes:
        name: the name of the stage.
        rows: the number of its rows.
        step: rows that one call publishes.
    """

    name: str
    rows: int
    step: int

    @classmethod
    def of(cls, name: str, description: str) -> Stage:
        """Read a stage from the record of a write."""
        rows, step = description.split()
        return cls(name, int(rows), int(step))

    @property
    def description(self) -> str:
        """Return the text that the record of a write keeps."""
        return f"{self.rows} {self.step}"


@dataclass(slots=True)
class Promoted:
    """Counts what a commit did.

    Attributes:
        published: messages that this commit, or one that it repeats, published.
        duplicates: rows whose deduplication key was held.
        repeated: whether the write was done before.
    """

    published: int = 0
    duplicates: int = 0
    repeated: bool = False


class StageWriter:
    """Stages the rows of one attempt of one task.

    Args:
        sender: sends to the queue.
        write_id: the id of the write.
        partition: the partition of the task.
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
            PayloadTooLargeError: the server refuses a row as too large; `position` says which of the task's rows.
        """
        call = stage_rows_call(self._sender.keys, self._name.encode(), self._rows, parts, life_seconds=_STAGE_SECONDS)
        try:
            kept = self._sender.run(call)
        except PayloadTooLargeError as error:
            raise self._located(parts, error) from error
        if kept < 0:
            raise StageLostError(
                f"the {self._rows} rows that this task had staged are gone from Redis: they expired after "
                f"{_STAGE_SECONDS / 3600:.0f} hours, were evicted, or the write was aborted; run it again"
            )
        self._rows += len(parts)
        self._bytes += sum(map(len, parts))

    def _located(self, parts: Sequence[bytes], error: PayloadTooLargeError) -> PayloadTooLargeError:
        """Turn a gateway's error about an argument into one about a row."""
        position = self._rows + next((at for at, part in enumerate(parts) if len(part) == error.size), 0)
        return PayloadTooLargeError(
            f"the message at position {position} takes {error.size} bytes: {error}. Nothing of its {len(parts)} rows "
            "was staged; store the bulk elsewhere and publish where it is, or raise the limit",
            size=error.size,
            limit=error.limit,
            position=position,
        )

    def stage(self) -> Stage | None:
        """Return the stage; None if no row was staged."""
        if not self._rows:
            return None
        step = min(self._most, _STEP_BYTES * self._rows // self._bytes)
        return Stage(self._name, self._rows, max(1, step))


def is_done(sender: Sender, write_id: str) -> bool:
    """Return whether a write of this id was published completely."""
    seen = _commit_write(sender, write_id, "look", ())
    return seen.known and not seen.waiting


def commit(sender: Sender, write_id: str, stages: Sequence[Stage]) -> Promoted:
    """Publish the staged rows, each once however often the commit is repeated, and drop the stages.

    If a commit of this write id began before, this one completes that commit's stages and drops the given ones.

    Raises:
        StageLostError: a stage is gone.
        Exception: the error that stops a publish, with a note of what is published.
    """
    given = {stage.name for stage in stages}
    opened = _commit_write(sender, write_id, "open", stages)
    if opened.gone:
        raise StageLostError(
            f"write {write_id!r}: what was staged by one of its tasks is gone from Redis (it expired after "
            f"{_STAGE_SECONDS / 3600:.0f} hours, or was evicted); nothing was published, so run the write again"
        )
    left = [Stage.of(name, description) for name, description in opened.left.items()]
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
    """Drop the staged rows that are not published; return a sentence for the log.

    Args:
        sender: sends to the queue.
        write_id: the id of the write.
        stages: the stages of the tasks that ended.
        again: whether the same write may be repeated; then the rows of a commit that has begun are kept for it.
    """
    seen = _commit_write(sender, write_id, "look", ())
    if again and seen.known and seen.waiting:
        _drop(sender, write_id, "drop", stages)
        return (
            "its commit had begun, and the rows that it had not published are kept for a week; the same write under "
            "the same writeId completes it"
        )
    _drop(sender, write_id, "drop" if again else "cancel", stages)
    rows = sum(stage.rows for stage in stages)
    return f"the {rows} rows that {len(stages)} finished tasks had staged were dropped, except those that are published"


def _steps(sender: Sender, write_id: str, stage: Stage) -> Iterator[Batch]:
    """Yield the batches of a stage, the same at every repeat; none once another commit has published the stage."""
    for first in range(0, stage.rows, stage.step):
        count = min(stage.step, stage.rows - first)
        parts = sender.run(staged_rows_call(sender.keys, stage.name.encode(), first, count))
        if len(parts) != count:
            seen = _commit_write(sender, write_id, "look", [stage])
            if seen.known and not seen.left:
                return
            raise StageLostError(
                f"what was staged as {stage.name} is gone from Redis before it was published whole (it was evicted, or "
                "expired a week after its commit began); give the write another writeId to write everything again"
            )
        keys = [part.split(SEPARATOR, 2)[1] for part in parts]
        if not keys[0]:
            keys = []
        for start, end in call_ranges([len(part) for part in parts]):  # steps assume rows of average size
            batch_id = digest_of(stage.name, str(first + start))[:16].replace(b"-", b".")
            yield sender.batch(parts[start:end], keys[start:end], batch_id=batch_id, receipt_seconds=_RECEIPT_SECONDS)


def _commit_write(sender: Sender, write_id: str, verb: WriteVerb, stages: Sequence[Stage]) -> WriteRecord:
    described = {stage.name: stage.description for stage in stages}
    return sender.run(commit_write_call(sender.keys, digest_of(write_id), verb, described, life_seconds=_WRITE_SECONDS))


def _drop(sender: Sender, write_id: str, verb: WriteVerb, stages: Sequence[Stage]) -> None:
    for first in range(0, len(stages), _PAGE):
        _commit_write(sender, write_id, verb, stages[first : first + _PAGE])
