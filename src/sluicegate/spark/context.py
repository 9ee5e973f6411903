"""What a drain tells its handler about the batch in hand, and what the handler tells about its messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.spark.draining.output import OutputFiles, output_path
from sluicegate.spark.draining.verdicts import Given, Word

__all__ = ["DrainContext"]


def _held() -> bool:
    return False


def _no_call() -> Given:
    return Given(())


@dataclass(frozen=True, slots=True)
class DrainContext:
    """The second argument of `process(batch, ctx)`.

    Name output by `lease_key`, so that a retry of the same lease replaces its own output and nothing else. For files
    `output_file` does it, whatever crashes or raises.

    `ack`, `nack`, `release` and `bury` give a verdict to some messages of the batch; the others are acked when the
    handler returns. They name messages by `Message`, by id, by several of these (a list, an Arrow or pandas column), or
    by a table or frame with a column `message_id` or `id`. A verdict stands although the handler raises after it: such
    a message is not given to it again. Verdicts take effect together once the handler is through with the whole chunk;
    when the worker dies before that, none did. A second, different verdict for a message, and one for a message of
    another batch, raise `ValueError`.

    Attributes:
        lease_key: a file-safe name of this batch: 32 hex digits for a whole chunk, followed by `-<first slot>-<last
            slot>` for a part of one that failed as a whole. The same when a retry takes the lease over, another
            whenever the lease is opened anew.
        lease_id: `<run id>/<partition>/<chunk>`.
        opening: which opening of that lease id this is.
        partition: number of the partition, from 0.
        chunk: number of the chunk in its partition, from 0.
        run_id: of the drain.
        attempt: Spark's attempt number of this task, from 0.
    """

    lease_key: str
    lease_id: str
    opening: str
    partition: int
    chunk: int
    run_id: str
    attempt: int = 0
    _is_lost: Callable[[], bool] = field(default=_held, repr=False, compare=False)
    _given: Given = field(default_factory=_no_call, repr=False, compare=False)
    _files: OutputFiles | None = field(default=None, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Whether the lease is no longer held, as of now; then another does the work again."""
        return self._is_lost()

    def output_file(self, folder: str | os.PathLike[str], suffix: str = "") -> Path:
        """Where to write a file of this batch, which becomes `{folder}/{lease_key}{suffix}` when `process` returns.

        Until then the path has a hidden name. The file then goes to disk, takes its place by a rename, and is there
        before the batch is acked; when `process` raises, or the lease was lost, it is removed. It replaces what
        earlier attempts at this lease wrote, also where one worked on it whole and another in parts, and at no point
        is something missing that was in place: a worker may be killed anywhere, and go on beside its successor.

        Args:
            folder: one that all executors see, on a file system that renames at once, as local disks and NFS do and
                object stores do not. It is made.
            suffix: the end of the name, such as `.parquet`. Asked again with both alike, it answers the same path.

        Returns:
            The path to write to; one that is asked for must be written. In a context that a test made by hand, the
            place itself.

        Raises:
            ValueError: a suffix with a slash.
            OSError: the folder cannot be made.
        """
        if self._files is None:
            return output_path(folder, self.lease_key, suffix)
        return self._files.draft(folder, suffix)

    def ack(self, what: object) -> None:
        """These messages are done, whatever becomes of the others."""
        self._given.say(what, Word("ack"))

    def nack(
        self, what: object, *, delay_seconds: float | None = None, error: BaseException | str | None = None
    ) -> None:
        """These messages failed: back to the queue, counted, and dead at their last delivery. This run does not claim
        them again.

        Args:
            what: which; see the class.
            delay_seconds: how long they stay out of everybody's reach; None for what the queue's `retry_backoff` says,
                a time that grows with their deliveries.
            error: what went wrong, kept with a dead letter.
        """
        self._given.say(what, Word("nack", delay_seconds, error))

    def release(self, what: object) -> None:
        """These messages were not worked on: back to the queue, for other runs, not counted up to three times."""
        self._given.say(what, Word("release"))

    def bury(self, what: object, *, error: BaseException | str | None = None, reason: str = "buried") -> None:
        """These messages are hopeless: dead, with reason and error."""
        self._given.say(what, Word("bury", None, error, reason))
