"""The handler's context: facts about its batch, the verdicts it gives, and the files it writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.draining.output import OutputFiles, output_path
from sluicegate.draining.verdicts import MessageVerdict, VerdictCollector

__all__ = ["DrainContext"]


def _is_held() -> bool:
    return False


def _no_call() -> VerdictCollector:
    return VerdictCollector(())


@dataclass(frozen=True, slots=True)
class DrainContext:
    """The second argument of `process(batch, ctx)`.

    Name output by `lease_key`, so that a retry of the same lease replaces its own output and nothing else.
    `output_file` does that for files, whatever crashes or raises.

    `ack`, `nack`, `release` and `bury` give a verdict to some messages of the batch. The others are acked when the
    handler returns. These methods take a `Message`, an id, several of these (a list, an Arrow or pandas column), or a
    table or frame with a column `message_id` or `id`. Verdicts take effect together, once the handler has worked on the
    whole chunk. If the worker dies before that, none has taken effect. If the handler raises after a verdict, the
    verdict stands and the message is not given to the handler again (in a Dagster drain asset, whose batches fail as a
    whole, it does not stand). A second, different verdict for a message and a verdict for a message of another batch
    raise `AlreadySettledError`, which is a `ValueError`.

    Attributes:
        lease_key: a file-safe name of this batch: 32 hex digits for a whole chunk, followed by `-<first slot>-<last
            slot>` for a part of a chunk that failed as a whole. It stays the same when a retry takes the lease over,
            and changes whenever the lease is opened anew.
        lease_id: `<run id>/<partition>/<chunk>`.
        opening: which opening of that lease id this is.
        partition: number of the partition, from 0.
        chunk: number of the chunk in its partition, from 0.
        run_id: of the drain.
        attempt: number of this attempt, from 0: of Spark's task, of the worker process, or of Dagster's step.
    """

    lease_key: str
    lease_id: str
    opening: str
    partition: int
    chunk: int
    run_id: str
    attempt: int = 0
    _is_lost: Callable[[], bool] = field(default=_is_held, repr=False, compare=False)
    _collector: VerdictCollector = field(default_factory=_no_call, repr=False, compare=False)
    _files: OutputFiles | None = field(default=None, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Return whether the lease is lost; another consumer then does the work again."""
        return self._is_lost()

    def output_file(self, folder: str | os.PathLike[str], suffix: str = "") -> Path:
        """Return the path for a file of this batch, named `{folder}/{lease_key}{suffix}` after `process` returns.

        Until then the path has a hidden name. When `process` returns, the file is synced to disk and renamed, before
        the batch is acked. When `process` raises, or the lease was lost, the file is removed. A file replaces what
        earlier attempts at this lease wrote, also where one attempt worked on the lease whole and another in parts. No
        row that was in place is ever missing, even if a worker is killed or continues beside its successor.

        Args:
            folder: a folder that all workers see, on a file system that renames atomically, as local disks and NFS do
                and object stores do not. It is created.
            suffix: the end of the name, such as `.parquet`. A second call with the same folder and suffix answers the
                same path.

        Returns:
            The path to write to. The handler must write it. In a context that a test made by hand, it is the final
            path.

        Raises:
            ValueError: a suffix with a slash.
            OSError: the folder cannot be created.
        """
        if self._files is None:
            return output_path(folder, self.lease_key, suffix)
        return self._files.draft(folder, suffix)

    def ack(self, what: object) -> None:
        """Ack these messages, whatever happens to the others."""
        self._collector.add(what, MessageVerdict("ack"))

    def nack(
        self, what: object, *, delay_seconds: float | None = None, error: BaseException | str | None = None
    ) -> None:
        """Return these failed messages to the queue; the delivery counts, and the last one makes them dead letters.

        This run does not claim them again.

        Args:
            what: which messages; see the class.
            delay_seconds: how long no consumer can claim them; None for the queue's `retry_backoff`, a time that
                grows with their deliveries.
            error: what went wrong; it is kept with a dead letter.
        """
        self._collector.add(what, MessageVerdict("nack", delay_seconds, error))

    def release(self, what: object) -> None:
        """Return these messages to the queue for other runs, uncounted up to three times."""
        self._collector.add(what, MessageVerdict("release"))

    def bury(self, what: object, *, error: BaseException | str | None = None, reason: str = "buried") -> None:
        """Bury these messages as dead letters with this reason and error."""
        self._collector.add(what, MessageVerdict("bury", None, error, reason))
