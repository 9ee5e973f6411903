"""Dead letters as a table, and the way back for those that a DataFrame selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate import checks
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import RedriveReport
from sluicegate.spark._options import options
from sluicegate.spark.browsing.frames import collect_ids, reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SelectedRedriveReport", "dead_letters", "redrive_selected"]

_ALL = 2**31 - 1
_MAX_PARTITIONS = 10_000
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SelectedRedriveReport(RedriveReport):
    """What a redrive of selected letters did: `redriven`, `blocked`, `missing` and `left` add up to `selected`.

    Attributes:
        selected: distinct letters that the DataFrame names.
        missing: of these, the letters that are not dead: redriven or purged since, or buried again after it began.
        left: of these, the letters that `max_pending_length`, or `limit`, left no room for; they stay dead.
    """

    selected: int = 0
    missing: int = 0
    left: int = 0


def dead_letters(
    spark: SparkSession, queue: RedisMessageQueue, *, limit: int | None = None, partitions: int | None = None
) -> DataFrame:
    """The dead letters of a queue as a DataFrame, the oldest first: read-only, looked at anew by each action.

    Columns: those of a message (`id`, `payload`, `headers`, `deduplication_key`, `delivery_count`, `sequence`,
    `enqueued_at`), and `reason`, `error_type`, `error` and `buried_at`. A value that was no message of ours has the
    reason `foreign` and an empty id.

    Args:
        spark: a session, classic or Connect.
        queue: it must be able to travel, so made from a `url` without a literal password.
        limit: most letters; default all.
        partitions: tasks of a read; default one per 10,000 letters, 200 at most.

    Raises:
        ConfigurationError: an argument that cannot work, or a queue that cannot travel.
    """
    checks.whole("limit", limit, _ALL)
    checks.whole("partitions", partitions, _MAX_PARTITIONS)
    named = options(queue)
    source = reader(spark).options(**named).option("state", "dead")
    source = source.option("limit", str(limit or _ALL))
    if partitions is not None:
        source = source.option("numPartitions", str(partitions))
    return source.load()


def redrive_selected(queue: RedisMessageQueue, df: DataFrame, *, limit: int | None = None) -> SelectedRedriveReport:
    """Send the dead letters whose ids are in a DataFrame back: pending again, with their deliveries reset.

    Only the column `id` (or `message_id`) is evaluated, whole, before the first letter moves: a DataFrame over
    `dead_letters` would shift under its own redrive. The letters then go in pages of 1,000, each in one step. A repeat
    counts the letters that went as missing, and sends the others. What dies again meanwhile stays dead. A letter stays
    dead, too, while another message holds its deduplication key.

    Args:
        queue: whose letters.
        df: rows that name letters; ids that occur twice count once, null is passed over.
        limit: most letters that are sent back.

    Returns:
        Counts of the letters selected, redriven, blocked and missing.

    Raises:
        ConfigurationError: the DataFrame has no such column, or a limit that cannot work.
    """
    if not isinstance(queue, RedisMessageQueue):
        raise TypeError(f"queue must be a RedisMessageQueue, not a {type(queue).__name__}")
    found = collect_ids(df, ("id", "message_id"), "redrive_selected")
    ids = dict.fromkeys(one for one in found if one is not None)  # in the DataFrame's order, in which they go
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
