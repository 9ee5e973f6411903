"""Run Dagster's daemon and `dg launch` in separate processes, and watch the runs in the storage of their instance."""

from __future__ import annotations

import contextlib
import shutil
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from example_dags.demo.orchestrators import DAGSTER
from example_dags.demo.paths import PROJECT, Paths
from example_dags.demo.progress import StepState
from example_dags.demo.workflow import BackgroundProcess, StepRun, WorkflowError

if TYPE_CHECKING:
    import dagster as dg

__all__ = ["DagsterWorkflow"]

EXAMPLE = PROJECT / "examples" / "dagster"
_LOOK_SECONDS = 0.3
_SENSOR_TAG = "dagster/sensor_name"
_STATES: dict[str, StepState] = {"SUCCESS": "done", "FAILURE": "failed", "IN_PROGRESS": "running"}
_ROLES = {name: role for role, name in DAGSTER.names.items()}


class DagsterWorkflow:
    """Publishes with `dg launch` while `dagster-daemon run` evaluates the sensor and launches the run it requests.

    Args:
        paths: the folders of the demo.
        environment: what the steps read, see `Paths.environment`.
    """

    def __init__(self, paths: Paths, environment: dict[str, str]) -> None:
        self._paths = paths
        inherited = {name: value for name, value in environment.items() if not name.startswith("DAGSTER")}
        self._environment = inherited | {
            "DAGSTER_HOME": str(paths.dagster_home),
            "REDIS_URL": paths.url,
            # Without it, the terminal's width would cut the lines of the log.
            "COLUMNS": "200",
        }
        self._daemon: BackgroundProcess | None = None
        self._publish: BackgroundProcess | None = None
        self._instance: dg.DagsterInstance | None = None
        self._exits = contextlib.ExitStack()
        self._looked_at = 0.0
        self._seen: dict[str, StepRun] = {}
        self._requested: float | None = None
        self._drained: bool | None = None

    @property
    def pid(self) -> int:
        """Return the id of the daemon, which the processes of its runs descend from; 0 before the start."""
        return self._daemon.pid if self._daemon else 0

    @property
    def log(self) -> Path:
        """Return Dagster's log."""
        return self._paths.dagster_log

    @property
    def gate_opened(self) -> float | None:
        """Return when the sensor requested its run."""
        return self._requested

    def prepare(self) -> None:
        """Create the instance anew, with the settings of the example: a run key is never used twice in one.

        Raises:
            WorkflowError: Dagster refused the settings.
        """
        import dagster as dg

        home = self._paths.dagster_home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(EXAMPLE / "dagster.yaml", home)
        try:
            self._instance = self._exits.enter_context(dg.DagsterInstance.from_config(str(home)))
            self._instance.get_runs(limit=1)  # creates the tables, before two processes do it at once
        except dg.DagsterError as error:
            # Dagster adds everything that it would accept.
            raise WorkflowError(f"{home / 'dagster.yaml'}: {textwrap.shorten(str(error), 300)}") from error

    def start(self) -> None:
        """Start the daemon and the publish in the background."""
        self._daemon = self._run("-m", "dagster._daemon", "run")
        assets = ",".join(DAGSTER.names[role] for role in ("publish_year", "publish_month_again"))
        self._publish = self._run("-m", "dagster_dg_cli.cli", "launch", "--assets", assets)

    def poll(self) -> int | None:
        """Return 0 once the sensor's run has succeeded, and 1 or the code of a process that ended too early."""
        if self._drained is not None:
            return 0 if self._drained else 1
        codes = [process.poll() for process in (self._daemon, self._publish) if process]
        if codes and codes[0] is not None:
            return codes[0] or 1  # a daemon does not end by itself
        return next((code for code in codes if code), None)

    def steps(self) -> dict[str, StepRun]:
        """Return the steps of this run that Dagster has started; looks into the storage a few times a second."""
        if self._instance is not None and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._look(self._instance)
            self._looked_at = time.monotonic()
        return self._seen

    def stop(self) -> None:
        """End the processes and every process that they started, if they still run."""
        for process in (self._publish, self._daemon):
            if process:
                # The daemon takes several seconds to end its threads, and a run that has ended needs none of them.
                process.stop(patience_seconds=1)
        self._exits.close()
        self._instance = None

    def _look(self, instance: dg.DagsterInstance) -> None:
        for record in reversed(instance.get_run_records()):
            run = record.dagster_run
            for stats in instance.get_run_step_stats(run.run_id):
                role, state = _ROLES.get(stats.step_key), _STATES.get(stats.status.value if stats.status else "")
                if role and state:
                    self._seen[role] = StepRun(state, stats.start_time, stats.end_time)
            if _SENSOR_TAG in run.tags:
                self._requested = record.create_timestamp.timestamp()
                if run.is_finished:
                    self._drained = run.is_success
        self._seen |= self._gate()

    def _gate(self) -> dict[str, StepRun]:
        """Return the gate as a step: from the end of the publish until the drain starts."""
        published, drain = self._seen.get("publish_month_again"), self._seen.get("drain")
        if published is None or published.state != "done":
            return {}
        if drain is None:
            return {"gate": StepRun("running", published.ended, None)}
        return {"gate": StepRun("done", published.ended, drain.started)}

    def _run(self, *arguments: str) -> BackgroundProcess:
        return BackgroundProcess(*arguments, environment=self._environment, log=self.log, folder=EXAMPLE)
