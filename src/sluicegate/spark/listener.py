"""Add the backlog of a queue to the progress of streaming queries that read from it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sluicegate.consumer import QueueConsumer
from sluicegate.log_lines import log_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["QueueProgressListener", "StreamProgress"]

_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The progress of a streaming query, with the state of its queue when Spark reported it.

    Attributes:
        query: the name of the query, or its id if it has no name.
        consumer: the option `consumer` of its source.
        batch_id: the number of the micro-batch.
        rows: rows of the micro-batch.
        rows_per_second: rows processed per second.
        backlog: messages that are ready and not claimed.
        oldest_ready_age_seconds: the age of the oldest of them; None without any.
        in_flight: messages in open leases, those of this query included.
        redelivered: messages that returned to the queue since the listener was made: released, nacked or expired, by
            any consumer.
    """

    query: str
    consumer: str
    batch_id: int
    rows: int
    rows_per_second: float
    backlog: int
    oldest_ready_age_seconds: float | None
    in_flight: int
    redelivered: int


class QueueProgressListener(StreamingQueryListener):
    """Reports the queue's backlog, oldest age and redeliveries with each progress of a query that consumes from it.

    ::

        spark.streams.addListener(QueueProgressListener(queue))

    Spark gives a Python source no metrics of its own in `StreamingQueryProgress`. The listener reads the queue when
    Spark reports a progress, in the process that added it. It never fails: a Redis that is away reports nothing.

    Args:
        queue: the queue or group from which the queries read.
        show: called with each `StreamProgress`; default a line in the log.
        consumer: report only the query with this option `consumer`; default every query whose source is Sluicegate's.
    """

    def __init__(
        self,
        queue: QueueConsumer,
        show: Callable[[StreamProgress], object] | None = None,
        *,
        consumer: str | None = None,
    ) -> None:
        self._queue = queue
        self._show = _log_progress if show is None else show
        self._consumer = consumer
        self._returned_before: int | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note how many messages had returned before; what returns from here on is counted."""
        if self._returned_before is None:
            try:
                self._returned_before = self._returned()
            except Exception as error:  # noqa: BLE001  (a query does not fail because of its display)
                _log.debug("queue %r cannot be read: %s", self._queue.name, error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Read the queue, and show the progress of a query that consumes from it."""
        try:
            self.report(json.loads(event.progress.json))
        except Exception as error:  # noqa: BLE001  (the same)
            _log.debug("the progress of queue %r cannot be shown: %s", self._queue.name, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last progress was reported."""

    def report(self, progress: dict[str, Any]) -> StreamProgress | None:
        """Show one progress of Spark, as its JSON has it; return None if no source of it is the queue's consumer."""
        consumers = [name for name in map(_consumer_of, progress["sources"]) if name is not None]
        if not consumers or (self._consumer is not None and self._consumer not in consumers):
            return None
        depth, returned = self._queue.depth(), self._returned()
        if self._returned_before is None:
            self._returned_before = returned
        found = StreamProgress(
            query=progress.get("name") or progress["id"],
            consumer=self._consumer or consumers[0],
            batch_id=progress["batchId"],
            rows=progress.get("numInputRows", 0),
            rows_per_second=float(progress.get("processedRowsPerSecond") or 0),
            backlog=depth.ready,
            oldest_ready_age_seconds=depth.oldest_ready_age_seconds,
            in_flight=depth.in_flight - depth.expired,
            redelivered=returned - self._returned_before,
        )
        self._show(found)
        return found

    def _returned(self) -> int:
        stats = self._queue.stats()
        return stats.nacked + stats.released + stats.reaped


def _consumer_of(source: dict[str, Any]) -> str | None:
    """Return the consumer of a source of ours, which its offsets name."""
    end = source.get("endOffset")
    if isinstance(end, str):  # Spark shows an offset that it cannot parse as text
        try:
            end = json.loads(end)
        except ValueError:
            return None
    if not isinstance(end, dict) or not {"c", "e", "n"} <= end.keys():
        return None
    return str(end["c"])


def _log_progress(progress: StreamProgress) -> None:
    age = progress.oldest_ready_age_seconds
    log_line(
        logging.INFO,
        f"query {progress.query!r}, batch {progress.batch_id}: {progress.rows} rows, {progress.backlog} messages ready"
        f"{'' if age is None else f', the oldest for {age:.0f} s'}, {progress.redelivered} redelivered",
    )
