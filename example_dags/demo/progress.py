"""Hold the progress of a run as plain values: the runner writes them, the screen reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from example_dags.demo.watch import Sample

__all__ = ["Progress", "Step", "StepState"]

StepState = Literal["waiting", "running", "done", "failed"]


@dataclass(slots=True)
class Step:
    """Holds one step of the run; times are seconds since the epoch."""

    name: str
    title: str
    state: StepState = "waiting"
    started: float | None = None
    ended: float | None = None
    detail: str = ""

    @property
    def seconds(self) -> float:
        """Return the duration of the step, until now if it still runs."""
        if self.started is None:
            return 0.0
        return max(0.0, (self.ended or time.time()) - self.started)


def _steps() -> dict[str, Step]:
    titles = {
        "prepare": "Find Java and the data, clear the last run",
        "start_airflow": "Start Airflow (dag.test on SQLite)",
        "publish_year": "Publish the year",
        "publish_month_again": "Publish one month a second time",
        "gate": "Wait at the gate until it is deep enough",
        "drain": "Drain with Spark into Parquet, ack per lease",
        "average_delays": "Average delays with Spark",
        "verify": "Compare with pandas, straight from the CSV",
        "draw": "Draw the gate",
    }
    return {name: Step(name, title) for name, title in titles.items()}


@dataclass(slots=True)
class Progress:
    """Holds the progress of a run.

    Attributes:
        crash: whether a worker is to be killed.
        total: flights in the file, 0 while unknown.
        again: flights of the month that is published twice.
        min_ready: the sensor's threshold.
        steps: by name, in order.
        sample: the last sample of the queue.
        drained: messages written, per partition.
        events: further events, a line each.
    """

    crash: bool = False
    total: int = 0
    again: int = 0
    min_ready: int = 0
    steps: dict[str, Step] = field(default_factory=_steps)
    sample: Sample = field(default_factory=lambda: Sample(at=0.0))
    drained: dict[int, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step."""
        return {name: round(step.seconds, 3) for name, step in self.steps.items()}
