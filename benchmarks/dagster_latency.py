"""Seconds from a message to its run, with a real daemon: requested, started and drained."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import median
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from tests.dagster.live.deployment import LiveDagster
from tests.dagster.live.gate import LiveGate
from tests.support.waiting import wait_until

__all__ = ["run", "steps"]

_LOCATION = Path(__file__).with_name("dagster_location.py")
_LOOP_SECONDS = 5.0  # between two evaluations by the daemon, and between two looks into its run queue
_STAGES = ("requested", "started", "drained")


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        found = run(settings["gate_messages"])
        how = f"{settings['gate_messages']} messages, each at a random moment of the daemon's loop; the slowest"
        bar = Bar("message to run request", "fast", max(found["requested"]), 2 * _LOOP_SECONDS, False, "s", how)
        figures: Figures = {
            f"message to run {stage}": {"s, median": median(seconds), "s, most": max(seconds)}
            for stage, seconds in found.items()
        }
        return Found({"Dagster, from a message to its run": figures}, [bar])

    yield "one message", measure


def run(messages: int) -> dict[str, list[float]]:
    """Return the seconds from each message to the request, the start and the end of the drain of its run."""
    deployment = LiveDagster({"gates": str(_LOCATION)})
    try:
        deployment.start()
        gate = LiveGate(deployment, "prompt", deployment.home)
        gate.open()
        randomly = random.Random(messages)
        rounds = [_one(gate, number, randomly.uniform(0, _LOOP_SECONDS)) for number in range(messages + 1)]
        gate.close()
    finally:
        deployment.remove()
    # The first round warms up.
    return {stage: [seconds[stage] for seconds in rounds[1:]] for stage in _STAGES}


def _one(gate: LiveGate, number: int, pause_seconds: float) -> dict[str, float]:
    resumes = time.monotonic() + pause_seconds
    wait_until(lambda: time.monotonic() > resumes, "the pause ends")
    published = time.time()
    gate.publish(1)
    wait_until(lambda: gate.queue.stats().acked == number + 1, "the message is drained", 120)
    drained = time.time()
    gate.wait_for(*["SUCCESS"] * (number + 1))
    (record,) = gate.deployment.instance.get_run_records(limit=1)
    assert record.start_time is not None
    return {
        "requested": record.create_timestamp.timestamp() - published,
        "started": record.start_time - published,
        "drained": drained - published,
    }
