"""One execution of a drain asset: claim, process, hand over, settle."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg

from sluicegate import Lease, LeaseState, Message, RedisMessageQueue, Verdict
from sluicegate.errors import AlreadySettledError, LeaseLostError, RedisMessageQueueError

__all__ = ["DrainPlan", "QueueDrainContext", "SettleWhen", "drain", "wants_context"]

SettleWhen = Literal["after_yield", "per_batch"]
# A batch that failed stays out of reach for 1 s to 20 s during its first five deliveries, and a retry of the step may
# come sooner.
_RETRY_WAIT_SECONDS = 20.0


class QueueDrainContext:
    """What a drain asset's `process` may know about its batch and decide for single messages.

    Attributes:
        asset: Dagster's context of the step: `log`, `resources`, `run`, …
        chunk: number of the batch in this run, from 0.
    """

    def __init__(self, asset: dg.AssetExecutionContext, lease: Lease, chunk: int) -> None:
        self.asset = asset
        self.chunk = chunk
        self.verdicts: list[Verdict] = []
        self._lease = lease
        self._undecided = {id(message) for message in lease.messages}

    @property
    def lease_id(self) -> str:
        """Readable name of the lease: root run, asset, chunk."""
        return self._lease.id

    @property
    def lease_key(self) -> str:
        """File-safe name of lease and opening: output named by it is overwritten by a retry, and by nothing else."""
        return self._lease.key

    @property
    def lost(self) -> bool:
        """Whether the batch is no longer this step's; a long `process` had better stop then."""
        return self._lease.lost

    def nack(
        self,
        messages: Message | Iterable[Message],
        *,
        delay_seconds: float = 0,
        error: BaseException | str | None = None,
    ) -> None:
        """These messages failed and shall come back, while the others are acked. Takes effect when the batch is
        settled.

        Args:
            messages: of this batch.
            delay_seconds: how long they stay out of reach.
            error: kept when they end as dead letters for their count.

        Raises:
            AlreadySettledError: a message is not of this batch, or already has a verdict.
        """
        self.verdicts.append(Verdict("nack", self._decide(messages), delay_seconds, error))

    def bury(
        self,
        messages: Message | Iterable[Message],
        *,
        error: BaseException | str | None = None,
        reason: str = "buried",
    ) -> None:
        """These messages are hopeless and become dead letters, while the others are acked. Takes effect when the batch
        is settled.

        Args:
            messages: of this batch.
            error: kept with the dead letter.
            reason: kept with the dead letter.

        Raises:
            AlreadySettledError: a message is not of this batch, or already has a verdict.
        """
        self.verdicts.append(Verdict("bury", self._decide(messages), error=error, reason=reason))

    def _decide(self, messages: Message | Iterable[Message]) -> list[Message]:
        chosen = [messages] if isinstance(messages, Message) else list(messages)
        for message in chosen:
            if id(message) not in self._undecided:
                raise AlreadySettledError(f"{message!r} has a verdict already, or is not of lease {self.lease_id!r}")
            self._undecided.discard(id(message))
        return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainPlan:
    """How a drain asset drains; see `build_queue_drain_asset`."""

    key: dg.AssetKey
    process: Callable[..., Any]
    batch_size: int
    max_batches: int | None
    lease_seconds: float | None
    settle: SettleWhen
    combine: Callable[[list[Any]], Any] | None

    def call(self, batch: _Batch) -> Any:
        """Run the user's function."""
        messages = batch.lease.messages
        return self.process(messages, batch.context) if wants_context(self.process) else self.process(messages)

    def value_of(self, results: list[Any]) -> Any:
        """What the IO manager gets; None for nothing."""
        results = [result for result in results if result is not None]
        if not results:
            return None
        if self.combine is not None:
            return self.combine(results)
        return results[0] if self.max_batches == 1 else results


@dataclass(frozen=True, slots=True)
class _Batch:
    lease: Lease
    context: QueueDrainContext

    def work(self, plan: DrainPlan) -> Any:
        """Process the batch; a failure gives it back with the error, counted as a delivery, and propagates."""
        self.lease.start_heartbeat()
        try:
            result = plan.call(self)
            if result is not None and plan.settle == "per_batch":
                raise TypeError(
                    "with settle='per_batch', process must write its result and return None, not "
                    f"{type(result).__name__}: the batch would be acked before an IO manager had stored it"
                )
            return result
        except Exception:
            # Leaving a lease's block by an exception returns a whole batch without burying neighbours of the culprit.
            with self.lease:
                raise

    def settle(self) -> None:
        """Ack what the handler left without a verdict, and give the verdicts, in one call."""
        self.lease.stop_heartbeat()
        self.lease.settle(*self.context.verdicts, Verdict("ack"))

    def give_back(self, context: dg.AssetExecutionContext) -> None:
        """Release what has no verdict, so that nobody waits for the lease to run out; after a settle, nothing."""
        self.lease.stop_heartbeat()
        try:
            self.lease.release()
        except RedisMessageQueueError as error:
            context.log.warning(f"Lease {self.lease.id!r} could not be released and will run out: {error}")


@dataclass(slots=True)
class _Tally:
    batches: int = 0
    claimed: int = 0
    returned: int = 0
    buried: int = 0
    acked_before: int = 0
    results: list[Any] = field(default_factory=list)

    def add(self, batch: _Batch, result: Any) -> None:
        self.batches += 1
        self.claimed += len(batch.lease)
        for verdict in batch.context.verdicts:
            count = len(list(verdict.messages)) if isinstance(verdict.messages, list) else 0
            if verdict.verb == "bury":
                self.buried += count
            else:
                self.returned += count
        self.results.append(result)

    def metadata(self, queue: RedisMessageQueue) -> dict[str, Any]:
        acked = self.claimed - self.returned - self.buried
        return {
            "dagster/row_count": acked,
            "sluicegate/queue": queue.name,
            "sluicegate/batches": self.batches,
            "sluicegate/claimed": self.claimed,
            "sluicegate/acked": acked,
            "sluicegate/returned": self.returned,
            "sluicegate/buried": self.buried,
            "sluicegate/acked_before": self.acked_before,
            "sluicegate/ready_left": queue.depth().ready,
        }


def drain(
    context: dg.AssetExecutionContext, queue: RedisMessageQueue, plan: DrainPlan
) -> Iterator[dg.MaterializeResult[Any]]:
    """Drain as planned; yields one result, or none when there was nothing to do.

    Code after the `yield` runs when Dagster has stored the result. When it could not, this generator is closed at the
    `yield`, and what is held goes back.
    """
    tally = _Tally()
    held: list[_Batch] = []
    try:
        for batch in _batches(context, queue, plan, tally):
            held.append(batch)
            tally.add(batch, batch.work(plan))
            if plan.settle == "per_batch":
                batch.settle()
                held.clear()
        if not tally.claimed and not (plan.settle == "per_batch" and tally.acked_before):
            context.log.info(
                f"Nothing to drain from queue {queue.name!r}; {plan.key.to_user_string()} is not materialized."
            )
            return
        for batch in held:
            batch.lease.extend()  # a batch that was lost meanwhile must not be handed over
        yield _result(plan, tally, queue)
        _settle_all(held)
    finally:
        for batch in held:
            batch.give_back(context)


def wants_context(process: Callable[..., Any]) -> bool:
    """Whether a handler takes a second argument: a required one, or one called `ctx` or `context`."""
    try:
        parameters = list(inspect.signature(process).parameters.values())
    except ValueError:  # some builtins tell nothing
        return False
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        return False
    return positional[1].default is inspect.Parameter.empty or positional[1].name in ("ctx", "context")


def _batches(
    context: dg.AssetExecutionContext, queue: RedisMessageQueue, plan: DrainPlan, tally: _Tally
) -> Iterator[_Batch]:
    """Claim batch after batch: those that an earlier try of this run left open first, then up to what is ready now."""
    ready = queue.depth().ready
    fresh = chunk = 0
    while plan.max_batches is None or chunk < plan.max_batches:
        lease = _claim(context, queue, plan, chunk)
        if lease.state is LeaseState.ACKED:
            tally.acked_before += lease.counts.acked
        elif lease:
            yield _Batch(lease, QueueDrainContext(context, lease, chunk))
            fresh += 0 if lease.takeovers else len(lease)
        else:
            return
        chunk += 1
        if plan.max_batches is None and fresh >= max(ready, 1):
            return


def _claim(context: dg.AssetExecutionContext, queue: RedisMessageQueue, plan: DrainPlan, chunk: int) -> Lease:
    """Claim under a name that a retry of the step, and a re-execution of the run, would use again."""
    root_run_id = context.run.root_run_id or context.run.run_id
    lease = queue.claim(
        plan.batch_size,
        lease_seconds=plan.lease_seconds,
        lease_id=f"{root_run_id}:{plan.key.to_user_string()}:{chunk}",
        take_over_after_seconds=0,
        wait_seconds=_RETRY_WAIT_SECONDS if context.retry_number and chunk == 0 else 0,
    )
    if lease.state is LeaseState.HELD:
        raise dg.Failure(
            f"Lease {lease.id!r} is being worked on by another run of the same root run.", allow_retries=True
        )
    if lease.state is LeaseState.PAUSED:
        context.log.warning(f"Queue {queue.name!r} is paused.")
    return lease


def _result(plan: DrainPlan, tally: _Tally, queue: RedisMessageQueue) -> dg.MaterializeResult[Any]:
    value = plan.value_of(tally.results)
    metadata = tally.metadata(queue)
    if value is None:
        return dg.MaterializeResult(asset_key=plan.key, metadata=metadata)
    return dg.MaterializeResult(asset_key=plan.key, metadata=metadata, value=value)


def _settle_all(batches: list[_Batch]) -> None:
    """Settle every batch, also when one of them was lost.

    Raises:
        LeaseLostError: the first that came too late; its messages are or will be delivered again.
    """
    lost: LeaseLostError | None = None
    for batch in batches:
        try:
            batch.settle()
        except LeaseLostError as error:
            lost = lost or error
    if lost is not None:
        raise lost
