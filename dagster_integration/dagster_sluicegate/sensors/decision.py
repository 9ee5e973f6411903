"""The decision about one queue in one tick: which runs a gate requests, or why none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dagster_sluicegate.places import in_title, shown
from dagster_sluicegate.sensors.pauses import waits_after_failures, waits_for_next_attempt
from dagster_sluicegate.sensors.runs import GateRuns, History, Unfinished
from sluicegate import Depth, checks
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate, why_not_ready
from sluicegate.place import Place

__all__ = ["Decision", "GateRules", "Look", "WatchedQueue", "decide", "describe"]


_HAS_BEGUN = ("STARTED", "CANCELING")
"""Statuses of runs that may have claimed; the generation tells whether they have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRules:
    """When a gate opens, and how many runs may be in flight.

    Attributes:
        gate: the condition on the depth.
        max_in_flight: how many runs may be unfinished at a time.
        messages_per_run: how many ready messages warrant a run each, up to `max_in_flight`; None for the gate's
            `min_ready`.
        attempt_delay_seconds: pause after a run that ended without claiming, doubled with each attempt.
        failure_delay_seconds: pause after a run that failed, doubled with each further failure in a row.
        stale_run_seconds: how old an unfinished run may be while no lease of the queue is alive.

    Raises:
        ConfigurationError: an option that cannot work.
    """

    gate: Gate
    max_in_flight: int = 1
    messages_per_run: int | None = None
    attempt_delay_seconds: float = 60
    failure_delay_seconds: float = 60
    stale_run_seconds: float = 3600

    def __post_init__(self) -> None:
        checks.count("max_in_flight", self.max_in_flight)
        if self.messages_per_run is not None:
            checks.count("messages_per_run", self.messages_per_run)
        elif self.max_in_flight > 1 and self.gate.min_ready is None:
            raise ConfigurationError(
                f"max_in_flight={self.max_in_flight} without min_ready needs messages_per_run, the number of ready "
                "messages that warrants each run"
            )
        checks.not_negative("attempt_delay_seconds", self.attempt_delay_seconds)
        checks.not_negative("failure_delay_seconds", self.failure_delay_seconds)
        checks.positive("stale_run_seconds", self.stale_run_seconds)

    @property
    def share(self) -> int:
        """Return how many ready messages warrant a run each."""
        return self.messages_per_run or self.gate.min_ready or 1

    def warranted(self, depth: Depth) -> int:
        """Return how many runs the ready messages of a queue whose gate is open warrant."""
        return min(self.max_in_flight, max(1, math.ceil(depth.ready / self.share)))


@dataclass(frozen=True, slots=True)
class WatchedQueue:
    """A queue, or a group of a stream, that a gate watches.

    Attributes:
        place: the queue or the group.
        queue_id: its name and a mark of its server, which separates queues of one name on several servers.
        rules: of its gate.
        label: how its run keys begin.
    """

    place: Place
    queue_id: str
    rules: GateRules
    label: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a gate decided about its queue.

    Attributes:
        queue: that was looked at.
        depth: what was seen.
        generation: of the queue, which moves when a run has done something.
        attempts: numbers of the runs to request; none while the gate is shut.
        reason: in words, why none is requested.
        summary: in words, what was seen, for the cursor.
        warnings: about runs that are no longer counted.
        is_idle: whether the queue has neither ready messages nor runs in flight.
    """

    queue: WatchedQueue
    depth: Depth
    generation: str
    attempts: Sequence[int]
    reason: str
    summary: str
    warnings: Sequence[str] = ()
    is_idle: bool = False


def decide(
    runs: GateRuns,
    queues: Sequence[WatchedQueue],
    read: Callable[[], Mapping[str, Depth | Exception]],
) -> dict[str, Decision | Exception]:
    """Decide about any number of queues in at most five questions to the run storage.

    Args:
        runs: what is known about the runs of their gates.
        queues: to decide about; each has an id of its own.
        read: reads the depths by id of the queue. A queue that is left out is left out of the answer.

    Returns:
        By id of the queue the decision, or why its depth could not be read.
    """
    # Runs first: one that was unfinished then and has ended since had claimed by the time of the depth.
    unfinished = runs.unfinished([queue.queue_id for queue in queues])
    depths = read()
    looks: dict[str, Look] = {}
    decided: dict[str, Decision | Exception] = {}
    for queue in queues:
        match depths.get(queue.queue_id):
            case None:
                pass
            case Exception() as error:
                decided[queue.queue_id] = error
            case depth:
                look = Look.of(queue, depth, unfinished[queue.queue_id])
                if look.why_shut:
                    decided[queue.queue_id] = look.shut(look.why_shut)
                else:
                    looks[queue.queue_id] = look
    if looks:
        histories = runs.histories({queue_id: look.generation for queue_id, look in looks.items()})
        decided |= {queue_id: look.decide(histories[queue_id]) for queue_id, look in looks.items()}
    return decided


@dataclass(frozen=True, slots=True)
class Look:
    """One queue as one tick sees it, before the question about the history of its runs."""

    queue: WatchedQueue
    depth: Depth
    counted: Sequence[Unfinished]
    stale: Sequence[Unfinished]

    @classmethod
    def of(cls, queue: WatchedQueue, depth: Depth, unfinished: Sequence[Unfinished]) -> Look:
        """Separate the runs that count from those whose process has died unnoticed.

        These are old, and no lease of the queue is alive.
        """
        alive = depth.in_flight > depth.expired
        stale = [run for run in unfinished if not alive and run.age_seconds > queue.rules.stale_run_seconds]
        return cls(queue, depth, [run for run in unfinished if run not in stale], stale)

    @property
    def generation(self) -> str:
        """Return how many messages were ever claimed, which moves when a run claims."""
        return str(self.depth.claimed_total)

    @property
    def why_shut(self) -> str:
        """Return why the gate is shut as far as depth and unfinished runs decide; "" if they leave it open."""
        rules = self.queue.rules
        if self.depth.paused:
            return f"The {'group' if self.queue.place.group else 'queue'} is paused: {self._seen}."
        if rules.gate.fired_by(self.depth) is None:
            return f"{self._seen}; the gate opens when {rules.gate.condition}."
        waiting = sum(run.status not in _HAS_BEGUN for run in self.counted)
        if self._room(len(self.counted), waiting) <= 0:
            return f"{self._seen}; {self._enough(len(self.counted), waiting)}."
        return ""

    def decide(self, history: History) -> Decision:
        """Decide with what became of earlier runs of the generation."""
        rules = self.queue.rules
        stale = {run.run_id for run in self.stale}
        # Another sensor may have requested one since the unfinished runs were read.
        recent = history.unfinished - stale
        unclaimed = recent | {run.run_id for run in self.counted if run.status not in _HAS_BEGUN}
        in_flight = len({run.run_id for run in self.counted} | unclaimed)
        number = self._room(in_flight, len(unclaimed))
        if number <= 0:
            return self.shut(f"{self._seen}; {self._enough(in_flight, len(unclaimed))}.")
        waiting = waits_for_next_attempt(
            history, rules.attempt_delay_seconds, unclaimed=len(recent)
        ) or waits_after_failures(history.failures, rules.failure_delay_seconds)
        if waiting:
            return self.shut(f"{self._seen}; {waiting}.")
        return Decision(
            self.queue,
            self.depth,
            self.generation,
            attempts=range(history.next_attempt, history.next_attempt + number),
            reason="",
            summary=f"{self._summary}, {_counted(number, 'run')} requested",
            warnings=[f"{in_title(self.queue.place)}: {_described(run)}" for run in self.stale],
        )

    def shut(self, reason: str) -> Decision:
        """Decide for no run."""
        idle = not self.depth.ready and not self.counted and not self.depth.paused
        return Decision(self.queue, self.depth, self.generation, (), reason, self._summary, is_idle=idle)

    @property
    def _seen(self) -> str:
        return describe(self.depth, self.queue.place) + "".join(f"; {_described(run)}" for run in self.stale)

    @property
    def _summary(self) -> str:
        paused = "paused, " if self.depth.paused else ""
        return f"{paused}{self.depth.ready} ready, {_counted(len(self.counted), 'run')} in flight"

    def _room(self, in_flight: int, unclaimed: int) -> int:
        """Return how many further runs are due.

        What is ready now is left for them by the runs that have claimed, and not by those that have yet to claim.
        """
        rules = self.queue.rules
        return min(rules.warranted(self.depth) - unclaimed, rules.max_in_flight - in_flight)

    def _enough(self, in_flight: int, unclaimed: int) -> str:
        rules = self.queue.rules
        said = f"{in_flight} of at most {rules.max_in_flight} runs in flight"
        if in_flight >= rules.max_in_flight:
            return said
        return (
            f"{said}, {unclaimed} yet to claim; a further one follows at {unclaimed * rules.share + 1} ready messages"
        )


def describe(depth: Depth, place: Place) -> str:
    """Return in words what a queue or a group holds."""
    if not depth.ready:
        return f"0 messages ready in {shown(place)} ({why_not_ready(depth, datetime.now(UTC))})"
    age = depth.oldest_ready_age_seconds
    oldest = "" if age is None else f", the oldest for {age:.1f} s"
    # Messages of expired leases and those that are due count as ready already.
    elsewhere = f"{depth.in_flight - depth.expired} in flight, {depth.delayed - depth.due} delayed"
    return f"{_counted(depth.ready, 'message')} ready in {shown(place)}{oldest} ({elsewhere})"


def _described(run: Unfinished) -> str:
    hours = run.age_seconds / 3600
    return (
        f"run {run.run_id} ({run.status}) has not ended for {hours:.1f} h and no lease is alive, so it is not counted; "
        "terminate it, and enable run_monitoring"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
