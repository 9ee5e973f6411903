"""Milliseconds of Dagster's sensors: one gate at any depth and after many runs, and a hundred gates in one tick."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Sample, median
from benchmarks.messages import orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

if TYPE_CHECKING:
    import dagster as dg

__all__ = ["run", "steps"]

_MOST_MS_OF_ONE = 50.0
_MOST_MS_OF_MANY = 1000.0
_QUEUES = 100
_LOCATION = "benchmark"


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        found = run(depths=settings["sizes"], past_runs=settings["past_runs"], ticks=settings["ticks"])
        how = f"median of {settings['ticks']} ticks, unix socket, runs in SQLite"
        bars = [
            Bar(
                f"Dagster {name}",
                "fast",
                median(each.wall for each in took) * 1000,
                _MOST_MS_OF_MANY if name.startswith(str(_QUEUES)) else _MOST_MS_OF_ONE,
                False,
                "ms",
                how,
            )
            for name, took in found.items()
        ]
        figures = {
            name: {
                "median ms": median(each.wall for each in took) * 1000,
                "most ms": max(each.wall for each in took) * 1000,
                "median ms of CPU": median(each.client_cpu for each in took) * 1000,
            }
            for name, took in found.items()
        }
        return Found({"Dagster sensor evaluation": figures}, bars)

    yield "sensors", measure


def run(*, depths: list[int], past_runs: int, ticks: int) -> dict[str, list[Sample]]:
    """Return what each tick took, by what is evaluated."""
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
    server = RedisServer(programs()[0]).start()
    try:
        with tempfile.TemporaryDirectory(prefix="sg-dagster-") as folder, _instance(Path(folder)) as instance:
            found = {}
            for depth in depths:
                with RedisMessageQueue(f"deep {depth}", url=server.url) as queue:
                    queue.publish_many(orders(depth))
                found[f"gate, {depth:,} messages ready"] = _one(instance, server.url, f"deep {depth}", ticks)
            _record_runs(instance, server.url, "busy", past_runs)
            with RedisMessageQueue("busy", url=server.url) as queue:
                queue.publish_many(orders(10))
            found[f"gate after {past_runs:,} runs"] = _one(instance, server.url, "busy", ticks)
            for state, messages in (("shut", 0), ("open", 10)):
                for number in range(_QUEUES if messages else 0):
                    with RedisMessageQueue(f"queue {number}", url=server.url) as queue:
                        queue.publish_many(orders(messages))
                for resources in (1, _QUEUES):
                    name = f"{_QUEUES} gates, {state}, {_counted(resources)}"
                    found[name] = _many(instance, server.url, ticks, resources, requests=_QUEUES if messages else 0)
            return found
    finally:
        server.remove()


def _one(instance: dg.DagsterInstance, url: str, name: str, ticks: int) -> list[Sample]:
    from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor

    sensor = build_queue_depth_sensor(name="gate", target=_job(), min_ready=1, attempt_delay_seconds=0)
    resources = {"queue": RedisQueueResource(url=url, queue_name=name)}
    return _timed(sensor, instance, resources, ticks, requests=1)


def _many(instance: dg.DagsterInstance, url: str, ticks: int, resources: int, requests: int) -> list[Sample]:
    """Measure the gates of many queues, which share a resource or have one each."""
    from dagster_sluicegate import QueueGate, RedisQueueResource, build_queue_gates_sensor

    keys = [f"queue_{number}" for number in range(resources)]
    job = _job()
    sensor = build_queue_gates_sensor(
        name="gates",
        queues=[
            QueueGate(target=job, resource_key=keys[number % resources], queue_name=f"queue {number}", min_ready=1)
            for number in range(_QUEUES)
        ],
    )
    return _timed(sensor, instance, {key: RedisQueueResource(url=url) for key in keys}, ticks, requests=requests)


def _timed(
    sensor: dg.SensorDefinition, instance: dg.DagsterInstance, resources: dict[str, Any], ticks: int, requests: int
) -> list[Sample]:
    """Return what each tick took, after one to warm up."""
    import dagster as dg
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin

    found: list[Sample] = []
    for number in range(ticks + 1):
        context = dg.build_sensor_context(instance=instance, resources=resources, sensor_name=sensor.name)
        context._code_location_origin = RegisteredCodeLocationOrigin(_LOCATION)
        wall, cpu = time.perf_counter(), time.process_time()
        data = sensor.evaluate_tick(context)
        sample = Sample(time.perf_counter() - wall, time.process_time() - cpu)
        assert len(data.run_requests or ()) == requests, data.skip_message
        if number > 0:
            found.append(sample)
    return found


def _counted(resources: int) -> str:
    return "one resource" if resources == 1 else f"{resources} resources"


@contextmanager
def _instance(folder: Path) -> Iterator[dg.DagsterInstance]:
    """Yield an instance as a user's is by default: its runs are in SQLite files."""
    import dagster as dg

    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        yield instance


def _job() -> dg.JobDefinition:
    import dagster as dg

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def drain() -> None:
        nothing()

    return drain


def _record_runs(instance: dg.DagsterInstance, url: str, queue: str, count: int) -> None:
    """Record runs of a gate that have succeeded, one per generation."""
    import dagster as dg

    from dagster_sluicegate.depths import identify
    from sluicegate.place import Place

    for number in range(count):
        instance.run_storage.add_run(
            dg.DagsterRun(
                job_name="drain",
                run_id=str(uuid.uuid4()),
                status=dg.DagsterRunStatus.SUCCESS,
                tags={
                    "sluicegate/queue": queue,
                    "sluicegate/queue_id": identify(url, Place(queue)),
                    "sluicegate/sensor": "gate",
                    "sluicegate/generation": str(-number),  # an earlier one than any that is looked for
                    "sluicegate/attempt": "0",
                    "sluicegate/ready": "1",
                    "dagster/code_location": _LOCATION,
                    "dagster/run_key": f"{queue}:{-number}:0",
                },
            )
        )
