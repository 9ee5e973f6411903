"""`sluicegate.drain`: a queue drained by this process, or by worker processes or threads of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Literal

from sluicegate import checks
from sluicegate.consumer import QueueConsumer
from sluicegate.draining import arguments
from sluicegate.draining.arguments import OnFailures, Progress, Until
from sluicegate.draining.conclude import conclude
from sluicegate.draining.drivers import driver_heartbeat
from sluicegate.draining.handler import BatchFormat, Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.progress import watching
from sluicegate.draining.summary import DrainSummary, PartitionSummary
from sluicegate.draining.workers import run_threads, work
from sluicegate.errors import ConfigurationError
from sluicegate.tables.columns import Schema

__all__ = ["WorkerKind", "drain"]

WorkerKind = Literal["process", "thread"]
_MAX_WORKERS = 256


def drain(
    queue: QueueConsumer,
    process: Callable[..., object],
    *,
    workers: int = 1,
    worker_kind: WorkerKind = "process",
    batch_size: int = 1000,
    lease_seconds: float = 60,
    run_id: str | None = None,
    remember_empty: bool = True,
    batch_format: BatchFormat | None = None,
    schema: Schema | None = None,
    mode: str = "FAILFAST",
    column_name_of_corrupt_record: str | None = None,
    until: Until = "empty",
    deadline_seconds: float | None = None,
    progress: Progress = None,
    on_failures: OnFailures = "raise",
) -> DrainSummary:
    """Claim, work on and settle messages until the queue is empty or paused, or another end is reached.

    Each worker claims chunk after chunk, one lease each, calls `process(batch)` or `process(batch, ctx)`, and acks the
    messages when it returns. A heartbeat keeps the lease while the handler works. Delivery is at least once.

    What the handler raises is caught. A failed chunk is bisected until the failing messages are alone; they are nacked
    with the error and a growing delay (or buried, at their last delivery), and the others are acked. The handler may
    also give verdicts, through the context or by what it returns, see `DrainContext` and the page on draining. A worker
    whose handler fails at everything ends, and the others continue.

    A worker process that is killed is started again and takes over the chunk that it held, three times at most. Ctrl-C
    releases their current chunks at once, except those of threads, which finish them. With
    `interrupt=GracefulInterruptHandler()` on the queue, a signal lets every worker finish the current chunk, and the
    summary says `interrupted`.

    Args:
        queue: the queue to drain. For worker processes it must be made from a URL without a literal password; its
            callbacks (`on_event`, `interrupt`, …) are not called in them.
        process: a plain function of a batch and optionally a `DrainContext`. For worker processes it stands at the top
            level of a module.
        workers: how many work at the same time, each with its own leases. A single one works in the calling thread.
        worker_kind: `"process"` or `"thread"`, for several workers. A program that starts processes with a
            handler of its main module calls `drain` under `if __name__ == "__main__":`.
        batch_size: most messages of a chunk, from 1 to 10,000. Messages that failed before come in smaller ones.
        lease_seconds: how long a lease outlives its worker; renewed every third of it unless the queue's
            `heartbeat_interval_seconds` says otherwise.
        run_id: names the work; default a fresh one. A call that repeats an earlier one under the same `run_id`, with
            the same number of workers, takes over what that one left open, repeats nothing that it finished (remembered
            for a day), counts it, and continues with the messages that failed. So give each scheduled run a `run_id` of
            its own. A second call under it that runs at the same time logs a warning and sets `summary.other_driver`.
        remember_empty: whether a repeated call takes the earlier answer that the queue is empty as its own, for ten
            minutes; if messages are ready by then, it logs a warning and counts them in `summary.skipped_ready`. False:
            it drains them.
        batch_format: `"messages"` (a list of `Message`, the default), `"arrow"` (a `pyarrow.Table` with the columns id,
            payload, headers, deduplication_key, delivery_count, sequence and enqueued_at) or `"pandas"` (the same as a
            frame); also by the annotation of the function's first parameter.
        schema: of the JSON payloads, a `pyarrow.Schema` or a Spark `StructType`. The batch then has these fields,
            followed by the columns of the message under the prefix `message_`.
        mode: of a drain with a schema, in any case. `"FAILFAST"`: a payload that does not fit is a failure of its
            message. `"PERMISSIVE"`: the fields that do not fit are null, and a declared string column
            `_corrupt_record` holds the payload. `"BURY"`: its message becomes a dead letter with the reason
            `invalid_payload` and the path, and the handler gets the others.
        column_name_of_corrupt_record: another name for that column.
        until: `"empty"`: a worker ends when it finds nothing to claim; `"deadline"`: it waits for new messages until
            `deadline_seconds` have passed; a number: at most this many messages are claimed, in equal shares.
        deadline_seconds: how long chunks are claimed; the current chunk is finished. Needed for `until="deadline"`.
        progress: None: a bar on a terminal (with rich installed), else a log line every 10 s; False for nothing; True
            for a bar everywhere; a function is called about once a second with a `DrainProgress`.
        on_failures: `"raise"`: messages that the handler failed on make the call raise at its end; `"return"`: the call
            returns, and `summary.failed` and `summary.failures` list them.

    Returns:
        What every worker did; `partitions` has one entry per worker.

    Raises:
        DrainFailedError: the handler failed on a message at least (unless `on_failures="return"`), or a worker process
            was killed four times. By then all workers have ended; `summary` says what was done.
        ConfigurationError: something that cannot work as given, before anything is claimed.
        RedisUnavailableError: Redis stayed away for longer than the queue's retry budget.
        TypeError: an asyncio queue; make a `RedisMessageQueue` from its spec and call `asyncio.to_thread(drain, …)`.
    """
    arguments.check_queue(queue)
    checks.count("workers", workers, _MAX_WORKERS)
    if worker_kind not in ("process", "thread"):
        raise ConfigurationError(f"worker_kind must be 'process' or 'thread', not {worker_kind!r}")
    checks.flag("remember_empty", remember_empty)
    arguments.check(
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        run_id=run_id,
        until=until,
        deadline_seconds=deadline_seconds,
        progress=progress,
        on_failures=on_failures,
    )
    started = time.monotonic()
    plan = DrainPlan(
        run_id=uuid.uuid4().hex if run_id is None else run_id,
        handler=Handler.of(process, batch_format, schema, mode, column_name_of_corrupt_record),
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        partitions=workers,
        limit=until if isinstance(until, int) else None,
        waits=until == "deadline",
        deadline_seconds=deadline_seconds,
        deadline_at=time.time() + (deadline_seconds or 0),
        remembers_empty=remember_empty,
    )
    with driver_heartbeat(queue, run_id, lease_seconds) as drivers:
        reports = _run(plan, queue, worker_kind, progress)
    return conclude(
        queue.name,
        plan.run_id,
        reports,
        time.monotonic() - started,
        None if run_id is None else lambda: queue.depth().ready,
        on_failures,
        drivers.other,
    )


def _run(plan: DrainPlan, queue: QueueConsumer, kind: WorkerKind, progress: Progress) -> list[PartitionSummary]:
    if plan.partitions > 1 and kind == "process":
        from sluicegate.draining.processes import check_processes, run_processes

        spec = check_processes(plan, queue)
        with watching(queue, plan.run_id, progress):
            return run_processes(plan, queue, spec)
    with watching(queue, plan.run_id, progress):
        return [work(plan, queue)] if plan.partitions == 1 else run_threads(plan, queue)
