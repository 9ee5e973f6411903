"""Read dead letters as a table, and redrive those that a DataFrame selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate import checks
from sluicegate.consumer import QueueConsumer
from sluicegate.draining.arguments import MAX_PARTITIONS
from sluicegate.report import RedriveReport
from sluicegate.spark._options import options
from sluicegate.spark.browsing.frames import collect_ids, reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SelectedRedriveReport", "dead_letters", "redrive_selected"]

_ALL = 2**31 - 1
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SelectedRedriveReport(RedriveReport):
    """Counts a redrive of selected dead letters: `redriven`, `blocked`, `missing` and `left` add up to `selected`.

    Attributes:
        selected: distinct dead letters that the DataFrame names.
        missing: selected messages that are no longer dead, or were buried again after the redrive began.
        left: selected messages that stay dead because of `max_pending_length` or `limit`.
    """

    selected: int = 0
    missing: int = 0
    left: int = 0


def dead_letters(
    spark: SparkSession, queue: QueueConsumer, *, limit: int | None = None, partitions: int | None = None
) -> DataFrame:
    """Return the dead letters of a queue as a DataFrame, the oldest first; each action reads them again.

    Columns: those of a message (`id`, `payload`, `headers`, `deduplication_key`, `delivery_count`, `sequence`,
    `enqueued_at`), and `reason`, `error_type`, `error` and `buried_at`. A value that
    is not a Sluicegate message has the reason `foreign` and an empty id.

    Args:
        spark: a session, classic or Connect.
        queue: the queue or group of a stream; it is sent to executors, so make it from a `url` without a literal
            password.
        limit: the largest number of dead letters; default all.
        partitions: tasks of a read; default one per 10,000 dead letters, at most 200.

    Raises:
        ConfigurationError: an argument cannot work, or the queue cannot be serialized.
    """
    if not isinstance(queue, QueueConsumer):
        raise TypeError(f"queue must be a RedisMessageQueue or the group of a stream, not a {type(queue).__name__}")
    checks.whole("limit", limit, _ALL)
    checks.whole("partitions", partitions, MAX_PARTITIONS)
    named = options(queue)
    source = reader(spark).options(**named).option("state", "dead")
    source = source.option("limit", str(limit or _ALL))
    if partitions is not None:
        source = source.option("numPartitions", str(partitions))
    return source.load()


def redrive_selected(queue: QueueConsumer, df: DataFrame, *, limit: int | None = None) -> SelectedRedriveReport:
    """Redrive the dead letters whose ids are in a DataFrame: they are pending again, with their deliveries reset.

    Only the column `id` (or `message_id`) is evaluated, and completely before the first message moves, because the
    redrive would change a DataFrame over `dead_letters`. The messages then move in pages of 1,000, each in one step. A
    repeat counts the moved messages as missing and redrives the others. A message that is buried again meanwhile stays
    dead, and so does a message whose deduplication key another message holds.

    Args:
        queue: the queue of the dead letters.
        df: rows that name dead letters; an id that occurs twice counts once, null is ignored.
        limit: the largest number of messages to redrive.

    Returns:
        The numbers of dead letters selected, redriven, blocked and missing.

    Raises:
        ConfigurationError: the DataFrame has no such column, or the limit cannot work.
    """
    if not isinstance(queue, QueueConsumer):
        raise TypeError(f"queue must be a RedisMessageQueue or the group of a stream, not a {type(queue).__name__}")
    found = collect_ids(df, ("id", "message_id"), "redrive_selected")
    ids = dict.fromkeys(one for one in found if one is not None)  # redriven in the DataFrame's order
    foreign = int("" in ids)
    ids.pop("", None)
    if not ids:
        return SelectedRedriveReport(selected=foreign, blocked=foreign)
    report = queue.redrive(ids=ids, limit=limit, page_size=_PAGE)
    looked_for = len(ids) if report.after is None else int(report.after.rpartition(":")[2])
    return SelectedRedriveReport(
        redriven=report.redriven,
        blocked=report.blocked + foreign,
        scanned=report.scanned,
        after=report.after,
        selected=len(ids) + foreign,
        missing=looked_for - report.scanned,
        left=len(ids) - looked_for,
    )
