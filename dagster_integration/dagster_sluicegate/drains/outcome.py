"""The outcome of a drain step: its counts as metadata, and the event that Dagster gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import dagster as dg

from dagster_sluicegate.drains.context import StepNotes
from dagster_sluicegate.drains.statistics import DrainStatistics
from dagster_sluicegate.places import names_of, place_of
from sluicegate.consumer import QueueConsumer
from sluicegate.draining.tally import Tally
from sluicegate.errors import RedisMessageQueueError

__all__ = ["AssetEvents", "OnEmpty", "OpEvents", "Outcome", "StepEvents"]

OnEmpty = Literal["skip", "observe", "materialize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step did.

    Attributes:
        value: for the IO manager; None for nothing.
        metadata: the counts, and what `process` added.
        check_results: one per check that `process` has evaluated.
        paused: whether the queue was paused.
    """

    value: Any
    metadata: dict[str, Any]
    check_results: list[dg.AssetCheckResult]
    paused: bool = False

    @classmethod
    def of(
        cls,
        queue: QueueConsumer,
        tally: Tally,
        statistics: DrainStatistics,
        notes: StepNotes,
        *,
        value: Any,
        paused: bool,
        log: Any,
    ) -> Outcome:
        """Collect what a step did; what only the queue knows is left out when it cannot be asked."""
        metadata: dict[str, Any] = {
            "dagster/row_count": tally.now.acked,
            **names_of(place_of(queue)),
            "sluicegate/batches": tally.chunks,
            "sluicegate/claimed": tally.now.acked + tally.now.returned + tally.now.buried,
            "sluicegate/acked": tally.now.acked,
            "sluicegate/returned": tally.now.returned,
            "sluicegate/buried": tally.now.buried,
            "sluicegate/acked_before": tally.before.acked,
            "sluicegate/redelivered": statistics.redelivered,
            "sluicegate/bytes": statistics.bytes,
        }
        if statistics.oldest is not None and statistics.newest is not None:
            metadata |= {
                "sluicegate/oldest_message": dg.MetadataValue.timestamp(statistics.oldest),
                "sluicegate/newest_message": dg.MetadataValue.timestamp(statistics.newest),
                "sluicegate/wait_p50_seconds": round(statistics.waits.quantile(0.5), 3),
                "sluicegate/wait_p95_seconds": round(statistics.waits.quantile(0.95), 3),
                "sluicegate/waits": dg.MetadataValue.md(statistics.waits.to_markdown()),
            }
        try:
            depth, stats = queue.depth(), queue.stats()
        except RedisMessageQueueError as error:  # the work is done, and must be reported
            log.warning(f"The counts of {place_of(queue)} could not be read: {type(error).__name__}.")
        else:
            metadata |= {
                "sluicegate/ready_left": depth.ready,
                "sluicegate/dead": depth.dead,
                "sluicegate/duplicates_total": stats.duplicates,
            }
        if paused:
            metadata["sluicegate/paused"] = True
        return cls(value=value, metadata=metadata | notes.metadata, check_results=notes.check_results, paused=paused)


class StepEvents(Protocol):
    """Makes the events of a kind of definition."""

    def drained(self, outcome: Outcome) -> Any:
        """Return the event for messages that were drained."""

    def nothing(self, outcome: Outcome) -> Iterator[Any]:
        """Return the events for a queue without anything to drain."""


@dataclass(frozen=True, slots=True)
class AssetEvents:
    """The events of an asset.

    Attributes:
        key: of the asset.
        on_empty: what an empty queue becomes.
        check_outputs: names of the outputs that belong to its checks.
    """

    key: dg.AssetKey
    on_empty: OnEmpty = "skip"
    check_outputs: Sequence[str] = ()

    def drained(self, outcome: Outcome) -> dg.MaterializeResult[Any]:
        given = {} if outcome.value is None else {"value": outcome.value}
        return dg.MaterializeResult(
            asset_key=self.key, metadata=outcome.metadata, check_results=outcome.check_results, **given
        )

    def nothing(self, outcome: Outcome) -> Iterator[Any]:
        """Return the events; a paused queue may hold messages, so it never counts as up to date.

        A materialization has no value, so that no IO manager replaces the data of earlier runs. Dagster wants an output
        for each check, and one without a result records no evaluation.
        """
        if self.on_empty == "observe":
            yield dg.AssetObservation(asset_key=self.key, metadata=outcome.metadata)
        elif self.on_empty == "materialize" and not outcome.paused:
            yield dg.MaterializeResult(asset_key=self.key, metadata=outcome.metadata)
        for name in self.check_outputs:
            yield dg.Output(None, output_name=name)


@dataclass(frozen=True, slots=True)
class OpEvents:
    """The events of an op: an output for what was drained, and none otherwise, which skips the ops behind it."""

    def drained(self, outcome: Outcome) -> dg.Output[Any]:
        return dg.Output(outcome.value, metadata=outcome.metadata)

    def nothing(self, outcome: Outcome) -> Iterator[Any]:
        return iter(())
