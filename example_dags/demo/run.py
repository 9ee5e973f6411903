"""Run the demo step by step and show its progress."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from example_dags.demo.crash import Crash, Crasher
from example_dags.demo.data import count_rows, find_csv
from example_dags.demo.expected import Expected, compute_expected
from example_dags.demo.logs import last_error
from example_dags.demo.orchestrators import AIRFLOW, ROLES, Orchestrator
from example_dags.demo.paths import Paths
from example_dags.demo.progress import Progress, Step
from example_dags.demo.screen import View, make_view
from example_dags.demo.system import find_java
from example_dags.demo.verify import Findings, verify
from example_dags.demo.watch import LeaseFile, Sample, Watcher
from example_dags.demo.workflow import StepRun, Workflow, make_workflow
from sluicegate.embedded import stop_server

__all__ = ["Outcome", "StepFailedError", "run"]

_LOOK_SECONDS = 0.1
_LINE_SHARE = 0.9  # the sensor's threshold, as a share of all flights
_LEASES = 84  # the number of batches, for a file of any size
_CRASH_SHARE = 0.35  # the share of messages that is acked before a worker is killed
_ADVICE = {
    "prepare": "fix what it says, then run it again",
    "start": "`make clean` removes the old database; then run it again",
    "drain": "Spark needs about 2 GB of free memory; otherwise run it again: it starts with an empty queue",
    "verify": "a second run would not help; please report it, with the report and the logs",
}


class StepFailedError(RuntimeError):
    """A step failed.

    Attributes:
        step: the step.
        logs: files that may show the reason, the most likely first.
        advice: what to do.
    """

    def __init__(self, step: Step, message: str, *, logs: tuple[Path, ...] = ()) -> None:
        super().__init__(message)
        self.step = step
        self.logs = logs
        self.advice = _ADVICE.get(step.role, "run it again; each run starts with an empty queue")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the results of a run."""

    paths: Paths
    progress: Progress
    findings: Findings
    samples: list[Sample]
    leases: list[LeaseFile]
    crash: Crash | None
    total_seconds: float


def run(
    paths: Paths,
    *,
    crash: bool,
    console: Console,
    csv: Path | None = None,
    orchestrator: Orchestrator = AIRFLOW,
) -> Outcome:
    """Run the demo from an empty queue to the chart and the report.

    Args:
        paths: the folders of the demo; the files of an earlier run are removed.
        crash: whether a Spark worker is killed during the drain.
        console: shows the progress.
        csv: another zipped file with the columns of the flights.
        orchestrator: what runs the pipeline.

    Raises:
        StepFailedError: a step failed, or the result is not as expected.
    """
    progress = Progress(orchestrator=orchestrator, crash=crash)
    with make_view(console, progress) as view:
        return _Runner(paths, progress, view, csv).run()


class _Runner:
    def __init__(self, paths: Paths, progress: Progress, view: View, csv: Path | None) -> None:
        self._paths = paths
        self._progress = progress
        self._view = view
        self._csv = csv
        self._month = 0
        self._began = time.monotonic()
        self._crasher: Crasher | None = None

    def run(self) -> Outcome:
        csv = self._prepare()
        with ThreadPoolExecutor(1, thread_name_prefix="demo-expected") as pool:
            computation = pool.submit(compute_expected, csv)
            # This takes a second, during which nothing waits for it.
            pool.submit(importlib.import_module, "example_dags.demo.chart")
            environment = self._paths.environment(
                csv=csv,
                min_ready=self._progress.min_ready,
                month=self._month,
                batch_size=max(1, self._progress.total // _LEASES),
            )
            workflow = make_workflow(self._progress.orchestrator, self._paths, environment)
            watcher = Watcher(self._paths)
            try:
                self._watch(workflow, watcher, computation)
            finally:
                workflow.stop()
                if self._crasher:
                    self._crasher.stop()
                watcher.stop()
                stop_server(self._paths.redis)
            return self._finish(computation, watcher)

    def _prepare(self) -> Path:
        with self._doing("prepare") as step:
            java = find_java()
            csv = self._csv or find_csv()
            self._progress.total, self._month = count_rows(csv)
            self._progress.min_ready = int(self._progress.total * _LINE_SHARE)
            self._paths.clear()
            step.detail = f"Java {java}, {self._progress.total:,} flights"
        return csv

    def _watch(self, workflow: Workflow, watcher: Watcher, computation: Future[Expected]) -> None:
        """Start the pipeline and watch it until it has ended."""
        with self._doing("start", workflow.log) as step:
            watcher.start()
            step.detail = f"with Redis {watcher.version()}, embedded"
            workflow.prepare()
            workflow.start()
            while ROLES[0] not in workflow.steps():
                if workflow.poll() is not None:
                    label = self._progress.orchestrator.label
                    raise RuntimeError(f"{label} ended with code {workflow.poll()} before its first step")
                self._look(watcher, workflow)
        while workflow.poll() is None:
            steps = workflow.steps()
            self._look(watcher, workflow)
            self._follow(steps)
            if self._progress.crash and self._crasher is None and self._progress.steps["drain"].started:
                after = int(self._progress.total * _CRASH_SHARE)
                self._crasher = Crasher(self._paths, after=after, root_pid=workflow.pid)
                self._crasher.start()
            if not self._progress.again and computation.done() and computation.exception() is None:
                self._progress.again = computation.result().months[self._month]
        watcher.stop()
        self._look(watcher, workflow)
        self._follow(workflow.steps())
        self._progress.gate_opened = workflow.gate_opened
        if workflow.poll() != 0:
            raise self._failure(workflow)

    def _look(self, watcher: Watcher, workflow: Workflow) -> None:
        crash_failure = self._crasher.failure if self._crasher else None
        for failure, what in (
            (watcher.failure, "the queue cannot be watched"),
            (crash_failure, "no worker can be killed"),
        ):
            if failure is not None:
                running = [step for step in self._progress.steps.values() if step.state == "running"]
                step = running[0] if running else self._progress.steps[ROLES[0]]
                step.state, step.ended = "failed", time.time()
                raise StepFailedError(step, f"{what}: {failure}", logs=(workflow.log,)) from failure
        self._progress.sample = watcher.samples[-1]
        self._progress.drained = watcher.drained()
        self._report_the_crash(watcher)
        self._view.update()
        time.sleep(_LOOK_SECONDS)

    def _report_the_crash(self, watcher: Watcher) -> None:
        crash = self._crasher.crash if self._crasher else None
        events = self._progress.events
        if crash and not events:
            events.append(
                f"Worker {crash.pid} of partition {crash.lease.partition} killed (SIGKILL): "
                f"{crash.lease.rows:,} messages written, none of them acked"
            )
        taken_over_at = next((sample.at for sample in watcher.samples if sample.taken_over), None)
        if crash and taken_over_at and len(events) == 1:
            events.append(f"Its lease was taken over by the retry after {max(0.0, taken_over_at - crash.at):.1f} s")

    def _follow(self, steps: Mapping[str, StepRun]) -> None:
        """Update the steps that the orchestrator runs."""
        for role, ran in steps.items():
            step = self._progress.steps[role]
            step.started = step.started or ran.started
            # The step is shown as done once the counts beside it are newer than its end.
            if ran.ended is None or self._progress.sample.at > ran.ended or ran.state != "done":
                step.ended = ran.ended
                step.state = ran.state
        sample = self._progress.sample
        details = {
            "publish_year": f"{sample.published:,} published",
            "publish_month_again": f"{sample.refused:,} duplicates refused",
            "gate": f"open: more than {self._progress.min_ready:,} are ready",
            "drain": f"{sum(self._progress.drained.values()):,} in Parquet files",
        }
        for name, detail in details.items():
            step = self._progress.steps[name]
            if step.started and (name != "gate" or step.ended):
                step.detail = detail

    def _failure(self, workflow: Workflow) -> StepFailedError:
        logs = (workflow.log, self._paths.spark_log)
        orchestrator = self._progress.orchestrator
        for role in ROLES:
            step = self._progress.steps[role]
            if step.state == "done":
                continue
            step.state, step.ended = "failed", step.ended or time.time()
            self._view.update()
            reason = last_error(workflow.log)
            what = f"{orchestrator.label}'s {orchestrator.step} {step.name} failed"
            return StepFailedError(step, f"{what}{f': {reason}' if reason else ''}", logs=logs)
        step = self._progress.steps[ROLES[-1]]
        return StepFailedError(step, f"{orchestrator.label} ended with code {workflow.poll()}", logs=logs)

    def _finish(self, computation: Future[Expected], watcher: Watcher) -> Outcome:
        progress, paths, last = self._progress, self._paths, watcher.samples[-1]
        progress.sample, progress.drained = last, watcher.drained()
        crash = self._crasher.crash if self._crasher else None
        leases = sorted(watcher.files.values(), key=lambda lease: lease.started)
        with self._doing("verify") as step:
            expected = computation.result()
            progress.again = expected.months[self._month]
            findings = verify(
                expected, watcher.totals, flights=paths.flights, delays=paths.delays,
                ready_left=last.ready, again=progress.again, crash=progress.crash,
            )  # fmt: skip
            step.detail = f"{len(expected.delays)} sums and counts, every cell of {expected.count:,} flights"
        with self._doing("draw") as step:
            chart = importlib.import_module("example_dags.demo.chart")
            chart.draw(chart.chart_data(progress, watcher.samples, leases, findings.delays, crash), paths.chart)
            step.detail = paths.chart.name
        outcome = Outcome(paths, progress, findings, watcher.samples, leases, crash, time.monotonic() - self._began)
        _write_report(outcome)
        if findings.problems:
            progress.steps["verify"].state = "failed"
            self._view.update()
            raise StepFailedError(progress.steps["verify"], "\n".join(findings.problems))
        return outcome

    @contextmanager
    def _doing(self, name: str, *logs: Path) -> Iterator[Step]:
        """Run a step of the runner itself: show it while it runs, and name it when it fails."""
        step = self._progress.steps[name]
        step.state, step.started = "running", time.time()
        self._view.update()
        try:
            yield step
        except StepFailedError:
            raise
        except Exception as error:
            step.state = "failed"
            raise StepFailedError(step, str(error) or type(error).__name__, logs=logs) from error
        else:
            step.state = "done"
        finally:
            step.ended = time.time()
            self._view.update()


def _write_report(outcome: Outcome) -> None:
    found = outcome.findings
    report = {
        "published": found.published,
        "duplicates_refused": found.duplicates_refused,
        "drained": found.drained,
        "acked": found.acked,
        "lost": found.lost,
        "unknown": found.unknown,
        "written_twice": found.written_twice,
        "acked_twice": found.acked_twice,
        "in_flight_left": found.in_flight_left,
        "ready_left": found.ready_left,
        "dead": found.dead,
        "matches_pandas": found.matches_pandas,
        "crash": outcome.crash is not None,
        "taken_over": found.taken_over,
        "leases": len(outcome.leases),
        "problems": list(found.problems),
        "steps": outcome.progress.seconds(),
        "total_seconds": round(outcome.total_seconds, 3),
    }
    outcome.paths.report.write_text(json.dumps(report, indent=2) + "\n")
