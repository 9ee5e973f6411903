"""One execution of a drain asset: the drain engine, with a hand-over to Dagster before the settle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import dagster as dg

from dagster_sluicegate.identity import lease_run_id, retry_number
from sluicegate import RedisMessageQueue
from sluicegate.draining import arguments
from sluicegate.draining.context import DrainContext
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.tally import Tally

__all__ = ["QueueDrainContext", "QueueDrainOptions", "SettleWhen", "drain"]

SettleWhen = Literal["after_yield", "per_batch"]
# A failed batch is delayed by 1 s to 20 s during its first five deliveries, and a retry of the step may come sooner.
_RETRY_WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDrainContext(DrainContext):
    """The second argument of a drain asset's `process`: a `DrainContext` with Dagster's context.

    A drain asset has one partition, so `partition` is 0 and `chunk` is the number of the batch in this run.

    Attributes:
        asset: Dagster's context of the step: `log`, `resources`, `run`, …
    """

    asset: dg.AssetExecutionContext


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueDrainOptions:
    """The options of a drain asset; see `build_queue_drain_asset`."""

    key: dg.AssetKey
    handler: Handler
    batch_size: int
    max_messages: int | None
    lease_seconds: float | None
    settle: SettleWhen
    combine: Callable[[list[Any]], Any] | None

    def plan(self, context: dg.AssetExecutionContext, ready: int) -> DrainPlan:
        """Return the plan of this step, with lease ids that a retry of the step or a re-execution of the run shares."""
        return DrainPlan(
            run_id=lease_run_id(context, self.key),
            handler=replace(self.handler, process=_returning_none(self.handler)) if self.per_batch else self.handler,
            batch_size=self.batch_size,
            lease_seconds=self.lease_seconds,
            limit=self.max_messages,
            enough=max(ready, 1),
            first_wait_seconds=_RETRY_WAIT_SECONDS if retry_number(context) else 0,
            remembers_empty=False,
            on_failure="raise",
            holds=not self.per_batch,
            keeps_results=True,
        )

    @property
    def per_batch(self) -> bool:
        """Return whether each batch is settled as soon as `process` returns."""
        return self.settle == "per_batch"

    def value_of(self, results: list[Any]) -> Any:
        """Return the value for the IO manager; None for nothing."""
        results = [result for result in results if result is not None]
        return self.combine(results) if results and self.combine is not None else results or None


def drain(
    context: dg.AssetExecutionContext, queue: RedisMessageQueue, options: QueueDrainOptions
) -> Iterator[dg.MaterializeResult[Any]]:
    """Drain as the options say; yield one result, or none when there was nothing to do.

    Code after the `yield` runs when Dagster has stored the result. If Dagster could not store it, this generator is
    closed at the `yield`, and the engine releases the batches that it holds.
    """
    arguments.check_queue(queue)
    make_context = functools.partial(QueueDrainContext, asset=context)
    plan = options.plan(context, queue.depth().ready)
    with DrainEngine(plan, queue, attempt=retry_number(context), make_context=make_context) as engine:
        if engine.run().ended == "paused":
            context.log.warning(f"Queue {queue.name!r} is paused.")
        tally = engine.tally
        if not tally.chunks and not (options.per_batch and tally.before.acked):
            context.log.info(
                f"Nothing to drain from queue {queue.name!r}; {options.key.to_user_string()} is not materialized."
            )
            return
        engine.extend_held()  # the result of a batch that was lost meanwhile must not be handed over
        yield _result(options, tally, queue)
        engine.settle_held()


def _returning_none(handler: Handler) -> Callable[..., None]:
    """Return the handler of an asset whose result no IO manager stores; it refuses a value, which would be lost."""

    def process(*arguments: Any) -> None:
        result = handler.process(*arguments)
        if result is not None:
            raise TypeError(
                "with settle='per_batch', process must write its result and return None, not "
                f"{type(result).__name__}: the batch would be acked before an IO manager had stored it"
            )

    return process


def _result(options: QueueDrainOptions, tally: Tally, queue: RedisMessageQueue) -> dg.MaterializeResult[Any]:
    value = options.value_of(tally.results)
    metadata: dict[str, Any] = {
        "dagster/row_count": tally.now.acked,
        "sluicegate/queue": queue.name,
        "sluicegate/batches": tally.chunks,
        "sluicegate/claimed": tally.now.acked + tally.now.returned + tally.now.buried,
        "sluicegate/acked": tally.now.acked,
        "sluicegate/returned": tally.now.returned,
        "sluicegate/buried": tally.now.buried,
        "sluicegate/acked_before": tally.before.acked,
        "sluicegate/ready_left": queue.depth().ready,
    }
    if value is None:
        return dg.MaterializeResult(asset_key=options.key, metadata=metadata)
    return dg.MaterializeResult(asset_key=options.key, metadata=metadata, value=value)
