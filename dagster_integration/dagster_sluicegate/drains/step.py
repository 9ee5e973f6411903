"""One execution of a drain step: the drain engine, with a hand-over to Dagster before the settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import dagster as dg

from dagster_sluicegate.drains.context import QueueDrainContext, StepNotes
from dagster_sluicegate.drains.outcome import Outcome, StepEvents
from dagster_sluicegate.drains.parameters import StepProcess
from dagster_sluicegate.drains.statistics import DrainStatistics
from dagster_sluicegate.identity import StepContext, lease_run_id, retry_number
from dagster_sluicegate.names import NO_NAMES, Names
from dagster_sluicegate.places import in_title, place_of
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import Message
from sluicegate.consumer import QueueConsumer
from sluicegate.draining import arguments
from sluicegate.draining.context import DrainContext
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.tally import Tally
from sluicegate.place import Place

__all__ = ["QueueDrainContext", "QueueDrainOptions", "SettleWhen", "drain"]

SettleWhen = Literal["after_yield", "per_batch"]
# A failed batch is delayed by 1 s to 20 s during its first five deliveries, and a retry of the step may come sooner.
_RETRY_WAIT_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_DAGSTER_RESULTS = (
    dg.MaterializeResult,
    dg.ObserveResult,
    dg.AssetCheckResult,
    dg.AssetMaterialization,
    dg.AssetObservation,
    dg.AssetCheckEvaluation,
    dg.Output,
    dg.DynamicOutput,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueDrainOptions:
    """The options that all forms of a drain share; see `build_queue_drain_asset`.

    Attributes:
        label: names the definition in errors and in the log.
        name: names it in lease ids.
        step: the user's function.
        names: of the queue or group that is drained, or a function that names it for a step.
        checks: names of the checks that the definition declares.
    """

    label: str
    name: str
    step: StepProcess
    batch_size: int
    max_messages: int | None
    lease_seconds: float | None
    settle: SettleWhen
    combine: Callable[[list[Any]], Any] | None
    names: Names | Callable[[StepContext], Names] = NO_NAMES
    checks: tuple[str, ...] = ()

    @property
    def per_batch(self) -> bool:
        """Return whether each batch is settled as soon as `process` returns."""
        return self.settle == "per_batch"

    def describe(self, resource_key: str) -> str:
        """Return in Markdown what a step does, for Dagster's UI."""
        most = "all messages" if self.max_messages is None else f"at most {self.max_messages:,} messages"
        return f"Drains {most} that are ready from {self.place(resource_key)}, in batches of {self.batch_size:,}."

    def place(self, resource_key: str) -> str:
        """Return in Markdown which queue or group is drained."""
        named = self.names.described if isinstance(self.names, Names) else ""
        return f"{named or 'the queue'} of the resource `{resource_key}`"

    def ref(self, context: StepContext, resource_key: str) -> QueueRef:
        """Return the reference to what a step drains."""
        return QueueRef(resource_key, self.names if isinstance(self.names, Names) else self.names(context))

    def plan(self, context: StepContext, handler: Handler, ready: int) -> DrainPlan:
        """Return the plan of a step, with lease ids that its retries and re-executions of the run share."""
        return DrainPlan(
            run_id=lease_run_id(context, self.name),
            handler=handler,
            batch_size=self.batch_size,
            lease_seconds=self.lease_seconds,
            limit=self.max_messages,
            enough=max(ready, 1),
            remembers_empty=False,
            on_failure="raise",
            holds=not self.per_batch,
            keeps_results=True,
        )

    def value_of(self, results: list[Any]) -> Any:
        """Return the value for the IO manager; None for nothing."""
        results = [result for result in results if result is not None]
        return self.combine(results) if results and self.combine is not None else results or None

    def refuse_unevaluated(self, outcome: Outcome) -> None:
        """Refuse a step that worked on messages without an answer to one of its checks.

        Raises:
            ValueError: names the check.
        """
        evaluated = {result.check_name for result in outcome.check_results}
        missing = [name for name in self.checks if name not in evaluated]
        if missing and outcome.metadata["sluicegate/batches"]:
            raise ValueError(
                f"{self.label}: process added no result for the check {missing[0]!r}; call "
                "ctx.add_check_result(dg.AssetCheckResult(passed=…, check_name=…)), or leave it out of check_specs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHandler(Handler):
    """The handler of one step: it keeps statistics, and refuses results that Dagster could not store.

    Attributes:
        statistics: of the batches.
        per_batch: whether a batch is acked before an IO manager could store its result.
    """

    statistics: DrainStatistics = field(default_factory=DrainStatistics)
    per_batch: bool = False

    def __call__(self, messages: Sequence[Message], context: DrainContext) -> object:
        """Call the function with a batch, and check what it returns.

        Raises:
            TypeError: it returns an event of Dagster, or a value that would be acked before it was stored.
        """
        self.statistics.note(messages)
        result = Handler.__call__(self, messages, context)
        if isinstance(result, _DAGSTER_RESULTS):
            raise TypeError(
                f"process returned a {type(result).__name__}, which no IO manager stores; return the value itself (or "
                "None when it is written), and add metadata with ctx.add_metadata(...) and check results with "
                "ctx.add_check_result(...)"
            )
        if self.per_batch and result is not None:
            raise TypeError(
                "with settle='per_batch', process must write its result and return None, not "
                f"{type(result).__name__}: the batch would be acked before an IO manager had stored it"
            )
        return result


def drain(
    context: StepContext,
    queue: QueueConsumer,
    options: QueueDrainOptions,
    events: StepEvents,
    given: Mapping[str, Any],
    resource: RedisQueueResource,
) -> Generator[Any, None, None]:
    """Drain as the options say; yield one event, or none when there was nothing to do.

    Code after the `yield` runs when Dagster has stored the result. If Dagster could not store it, this generator is
    closed at the `yield`, and the engine releases the batches that it holds.

    Args:
        context: of the step.
        queue: the queue or group to drain.
        options: of the definition.
        events: makes the event.
        given: config and resources for `process`, by name.
        resource: of the queue.
    """
    arguments.check_queue(queue)
    place = place_of(queue)
    notes, statistics = StepNotes(options.label, options.checks), DrainStatistics()
    found = options.step.handler
    handler = StepHandler(
        process=options.step.bound(given),
        takes_context=found.takes_context,
        batch_format=found.batch_format,
        columns=found.columns,
        statistics=statistics,
        per_batch=options.per_batch,
    )
    make_context = partial(QueueDrainContext, step=context, _notes=notes)
    with (
        queue.session.runner.outage.shared(),  # the calls of the whole step wait for Redis once
        _engine(context, queue, options.plan(context, handler, _ready(context, queue)), make_context) as engine,
    ):
        paused = engine.run().ended == "paused"
        if paused:
            context.log.warning(f"{in_title(place)} is paused.")
        tally = engine.tally
        value = options.value_of(tally.results)
        outcome = Outcome.of(queue, tally, statistics, notes, value=value, paused=paused, log=context.log)
        outcome.metadata.update(resource.page_metadata(place))
        _warn_of_old_run(context, options, place, tally, outcome)
        if not tally.chunks and not (options.per_batch and tally.before.acked):
            context.log.info(f"Nothing to drain from {place} for {options.label}.")
            yield from events.nothing(outcome)
            return
        options.refuse_unevaluated(outcome)
        engine.extend_held()  # the result of a batch that was lost meanwhile must not be handed over
        yield events.drained(outcome)
        engine.settle_held()


def _engine(
    context: StepContext, queue: QueueConsumer, plan: DrainPlan, make_context: Callable[..., DrainContext]
) -> DrainEngine:
    return DrainEngine(plan, queue, attempt=retry_number(context), make_context=make_context)


def _ready(context: StepContext, queue: QueueConsumer) -> int:
    """Return how many messages are ready; a retry of the step first waits for the batch that failed before."""
    depth, until = queue.depth(), time.monotonic() + _RETRY_WAIT_SECONDS
    while retry_number(context) and depth.next_due_seconds is not None and not depth.due:
        if time.monotonic() + depth.next_due_seconds > until:
            break
        time.sleep(max(_LOOK_SECONDS, depth.next_due_seconds))
        depth = queue.depth()
    return depth.ready


def _warn_of_old_run(
    context: StepContext, options: QueueDrainOptions, place: Place, tally: Tally, outcome: Outcome
) -> None:
    """Warn when a run that was executed again finds its work done: it looks like a drain and is none."""
    if tally.chunks or not tally.before.acked:
        return
    ready = outcome.metadata.get("sluicegate/ready_left", 0)
    text = (
        f"{options.label} found its work done: earlier tries of this run acked {tally.before.acked} messages of "
        f"{place}, and nothing new was claimed ({ready} messages are ready). New messages need a new run: launch one "
        "instead of re-executing this one."
    )
    context.log.warning(text)
    outcome.metadata["sluicegate/warning"] = text
