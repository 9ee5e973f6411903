"""Hold the progress of a run as plain values: the runner writes them, the screen reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from example_dags.demo.orchestrators import AIRFLOW, Orchestrator
from example_dags.demo.watch import Sample

__all__ = ["Progress", "Step", "StepState"]

StepState = Literal["waiting", "running", "done", "failed"]


@dataclass(slots=True)
class Step:
    """Holds one step of the run; times are seconds since the epoch.

    Attributes:
        role: what it does in the demo.
        name: the orchestrator's name for it.
        title: what the screen shows.
    """

    role: str
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


def _steps(orchestrator: Orchestrator) -> dict[str, Step]:
    titles = {
        "prepare": "Find Java and the data, clear the last run",
        "start": orchestrator.starts,
        "publish_year": "Publish the year",
        "publish_month_again": "Publish one month a second time",
        "gate": orchestrator.waits,
        "drain": "Drain with Spark into Parquet, ack per lease",
        "average_delays": "Average delays with Spark",
        "verify": "Compare with pandas, straight from the CSV",
        "draw": "Draw the gate",
    }
    return {role: Step(role, orchestrator.names.get(role, role), title) for role, title in titles.items()}


@dataclass(slots=True)
class Progress:
    """Holds the progress of a run.

    Attributes:
        orchestrator: what runs the pipeline.
        crash: whether a worker is to be killed.
        total: flights in the file, 0 while unknown.
        again: flights of the month that is published twice.
        min_ready: the sensor's threshold.
        gate_opened: when the sensor opened the gate.
        steps: by role, in order.
        sample: the last sample of the queue.
        drained: messages written, per partition.
        events: further events, a line each.
    """

    orchestrator: Orchestrator = AIRFLOW
    crash: bool = False
    total: int = 0
    again: int = 0
    min_ready: int = 0
    gate_opened: float | None = None
    steps: dict[str, Step] = field(init=False)
    sample: Sample = field(default_factory=lambda: Sample(at=0.0))
    drained: dict[int, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = _steps(self.orchestrator)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step, by role."""
        return {role: round(step.seconds, 3) for role, step in self.steps.items()}
