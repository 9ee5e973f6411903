"""Messages per second of Dagster's drain asset beside `sluicegate.drain`, in alternating rounds on one server.

The asset's time is that of its step, as Dagster records it. With `after_yield` it keeps all messages until the end,
which costs memory and garbage collections, so this mode is held against an engine that does the same.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.measure import median
from benchmarks.messages import BATCH, QUEUE, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate import Message, RedisMessageQueue, drain
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import Handler
from sluicegate.draining.plan import DrainPlan
from tests.support.servers import RedisServer, programs

__all__ = ["run", "steps"]

_LEAST = 0.8
_PER_RUN = 5  # rounds' counts of messages: a run of Dagster is worth more messages than a call of the queue
_SIDES = ("drain", "asset, per_batch", "drain that holds its batches", "asset, after_yield")


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        count = _PER_RUN * settings["count"]
        rates = run(rounds=settings["rounds"], count=count)
        how = f"median of {settings['rounds']} rounds of {count:,}, unix socket"
        bars = [
            Bar(f"Dagster {ours} / {plain}", "fast", _ratio(rates, ours, plain), _LEAST, True, "x", how)
            for plain, ours in (_SIDES[:2], _SIDES[2:])
        ]
        return Found(
            {"Dagster drain asset": {name: {"messages/s": median(each)} for name, each in rates.items()}}, bars
        )

    yield "drain asset", measure


def run(*, rounds: int, count: int) -> dict[str, list[float]]:
    """Return messages per second of each side by round, after one round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in _SIDES}
    server = RedisServer(programs()[0]).start()
    try:
        with server.client() as client, RedisMessageQueue(QUEUE, url=server.url) as queue:
            sides, messages = _sides(server.url), orders(count)
            for number in range(rounds + 1):
                for name in _SIDES if number % 2 else _SIDES[::-1]:
                    client.flushall()
                    queue.publish_many(messages)
                    drained, seconds = sides[name]()
                    assert drained == count
                    if number > 0:
                        found[name].append(count / seconds)
    finally:
        server.remove()
    return found


def _decode(messages: list[Message]) -> None:
    for message in messages:
        message.json()


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def _sides(url: str) -> dict[str, Callable[[], tuple[int, float]]]:
    """Return what is measured: each drains all messages, decodes their JSON, and returns number and seconds."""
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
    import dagster as dg

    from dagster_sluicegate import RedisQueueResource, build_queue_drain_asset

    instance = dg.DagsterInstance.ephemeral()
    resources = {"queue": RedisQueueResource(url=url, queue_name=QUEUE)}

    def plain() -> int:
        with RedisMessageQueue(QUEUE, url=url) as queue:
            return drain(queue, _decode, batch_size=BATCH, progress=False).acked

    def holding() -> int:
        plan = DrainPlan(run_id=uuid.uuid4().hex, handler=Handler.of(_decode), batch_size=BATCH, holds=True)
        with RedisMessageQueue(QUEUE, url=url) as queue, DrainEngine(plan, queue) as engine:
            acked = engine.run().acked
            engine.settle_held()
        return acked

    def side(settle: Any) -> Callable[[], tuple[int, float]]:
        asset = build_queue_drain_asset(
            spec="drained", process=_decode, batch_size=BATCH, settle=settle, max_messages=1_000_000
        )
        job = dg.Definitions(
            assets=[asset],
            resources=resources,
            jobs=[dg.define_asset_job("job", selection="*", executor_def=dg.in_process_executor)],
        ).resolve_job_def("job")

        def measured() -> tuple[int, float]:
            result = job.execute_in_process(
                instance=instance, run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
            )
            (event,) = result.asset_materializations_for_node("drained")
            acked: Any = event.metadata["sluicegate/acked"].value
            (success,) = [event for event in result.events_for_node("drained") if event.is_step_success]
            return int(acked), success.step_success_data.duration_ms / 1000

        return measured

    return {
        "drain": partial(_timed, plain),
        "asset, per_batch": side("per_batch"),
        "drain that holds its batches": partial(_timed, holding),
        "asset, after_yield": side("after_yield"),
    }


def _ratio(rates: dict[str, list[float]], ours: str, plain: str) -> float:
    return median(our / other for our, other in zip(rates[ours], rates[plain], strict=True))
