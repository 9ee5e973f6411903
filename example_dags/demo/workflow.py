"""What the demo needs of an orchestrator: start its pipeline in other processes, watch its steps, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from example_dags.demo.orchestrators import DAGSTER, Orchestrator
from example_dags.demo.paths import PROJECT, Paths
from example_dags.demo.progress import StepState

__all__ = ["BackgroundProcess", "StepRun", "Workflow", "WorkflowError", "make_workflow"]

_STOP_SECONDS = 10


class WorkflowError(RuntimeError):
    """The orchestrator could not be set up."""


@dataclass(frozen=True, slots=True)
class StepRun:
    """Holds the state of a step of the watched run; times are seconds since the epoch."""

    state: StepState
    started: float | None
    ended: float | None


class Workflow(Protocol):
    """Runs the pipeline once."""

    @property
    def pid(self) -> int:
        """Return the id of the process that Spark's workers descend from; 0 before the start."""
        ...

    @property
    def log(self) -> Path:
        """Return the log, which includes the output of the steps and of Spark's workers."""
        ...

    @property
    def gate_opened(self) -> float | None:
        """Return when the sensor opened the gate, None before."""
        ...

    def prepare(self) -> None:
        """Create the orchestrator's database.

        Raises:
            WorkflowError: the orchestrator failed; its log shows the reason.
        """
        ...

    def start(self) -> None:
        """Start the run in the background."""
        ...

    def poll(self) -> int | None:
        """Return 0 once the run has succeeded and another number once it has failed, None while it runs."""
        ...

    def steps(self) -> Mapping[str, StepRun]:
        """Return the steps of this run that have started, by role."""
        ...

    def stop(self) -> None:
        """End every process that was started, if it still runs."""
        ...


def make_workflow(orchestrator: Orchestrator, paths: Paths, environment: dict[str, str]) -> Workflow:
    """Make the workflow of an orchestrator, and import nothing of the other one."""
    if orchestrator is DAGSTER:
        from example_dags.demo.dagster_workflow import DagsterWorkflow

        return DagsterWorkflow(paths, environment)
    from example_dags.demo.airflow_workflow import AirflowWorkflow

    return AirflowWorkflow(paths, environment)


class BackgroundProcess:
    """Runs `python arguments…` in a process group of its own, and appends what it prints to a log."""

    def __init__(self, *arguments: str, environment: dict[str, str], log: Path, folder: Path | None = None) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder or PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A separate process group, so that Spark's JVM ends with it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return its process id, which is that of its group as well."""
        return self._process.pid

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait()

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.poll()

    def stop(self, patience_seconds: float = _STOP_SECONDS) -> None:
        """End it and every process that it started, if it still runs; by force after a while."""
        if self.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_seconds)
        # Also those that outlive the process that started them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
