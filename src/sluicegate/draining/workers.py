"""Workers of a drain inside this process: the calling thread, or several threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context

from sluicegate.consumer import QueueConsumer
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.summary import PartitionSummary
from sluicegate.errors import ConfigurationError, LeaseLostError

__all__ = ["MAX_ATTEMPTS", "note_progress", "run_threads", "work"]

MAX_ATTEMPTS = 4  # at one partition, as many as Spark gives a task
_log = logging.getLogger("sluicegate")


def work(
    plan: DrainPlan,
    queue: QueueConsumer,
    partition: int = 0,
    attempt: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> PartitionSummary:
    """Drain one partition; after a lost lease, the next attempt counts the finished chunks and continues."""
    while True:
        engine = DrainEngine(plan, queue, partition, attempt, should_stop=should_stop)
        try:
            return engine.run()
        except LeaseLostError as lost:
            attempt += 1
            if attempt >= MAX_ATTEMPTS:
                raise
            _log.warning("drain %r, worker %d continues after a lost lease: %s", plan.run_id, partition, lost)


def run_threads(plan: DrainPlan, queue: QueueConsumer) -> list[PartitionSummary]:
    """Drain every partition in a thread of its own.

    When one thread fails, or the caller is interrupted, the others finish the current chunk and end.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(plan.partitions, thread_name_prefix="sluicegate-drain") as pool:
        futures = [
            pool.submit(copy_context().run, work, plan, queue, number, 0, stop.is_set)
            for number in range(plan.partitions)
        ]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
    reports = [future.result() for future in futures if future.exception() is None]
    for future in futures:
        error = future.exception()
        if error is not None:
            raise note_progress(error, plan, reports)
    return reports


def note_progress(error: BaseException, plan: DrainPlan, reports: list[PartitionSummary]) -> BaseException:
    """Add to an error the results of the other workers, and advice how to continue."""
    if isinstance(error, ConfigurationError):  # no worker has begun
        return error
    acked = sum(report.acked for report in reports)
    error.add_note(
        f"the other workers of this drain acked {acked} messages; call drain again with run_id={plan.run_id!r} to take "
        "over what this one left open"
    )
    return error
