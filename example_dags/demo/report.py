"""Print the end of a run: what happened, what was checked and where the files are; or what failed."""

from __future__ import annotations

import os
from pathlib import Path

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from example_dags.demo.logs import last_lines
from example_dags.demo.orchestrators import ORCHESTRATORS
from example_dags.demo.paths import PARTITIONS, PROJECT
from example_dags.demo.progress import Step
from example_dags.demo.run import Outcome, StepFailedError
from example_dags.demo.screen import BAD, DEEP, DIM, LINE, WATER

__all__ = ["print_failure", "print_outcome"]


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print the tables, the explanation, the files and the next commands."""
    console.print()
    console.print(Columns([_steps(outcome), _checks(outcome)], padding=(0, 3)))
    console.print()
    console.print(
        Panel(_seen(outcome), title="What you have just seen", title_align="left", border_style=DEEP, padding=(1, 2))
    )
    console.print(_places(outcome))
    console.print()
    console.print(_next(outcome))


def print_failure(console: Console, failure: StepFailedError) -> None:
    """Print which step failed, the last log lines, and what to do."""
    parts: list[RenderableType] = [Text(str(failure))]
    for log in failure.logs:
        lines = last_lines(log)
        if lines:
            told = Text("\n".join(lines), style=DIM, no_wrap=True, overflow="ellipsis")
            parts += [Text(f"\nfrom the end of {_short(log)}:", style="bold"), told]
    parts.append(Text(f"\nWhat to do: {failure.advice}.", style="bold"))
    title = Text(f"Failed: {failure.step.title} (step {failure.step.name})", style=f"bold {BAD}")
    console.print(Panel(Group(*parts), title=title, title_align="left", border_style=BAD, padding=(1, 2)))


def _steps(outcome: Outcome) -> Table:
    found, steps = outcome.findings, outcome.progress.steps
    table = Table(box=box.SIMPLE_HEAD, title="What happened", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("step")
    table.add_column("seconds", justify="right")
    table.add_column("messages", justify="right")
    table.add_column("per second", justify="right")

    def add(step: Step, count: int | None = None, seconds: float | None = None) -> None:
        rate = f"{count / max(seconds or step.seconds, 0.001):,.0f}" if count else ""
        table.add_row(step.title, f"{step.seconds:.1f}", f"{count:,}" if count else "", rate)

    add(steps["prepare"])
    add(steps["start"])
    add(steps["publish_year"], found.published)
    add(steps["publish_month_again"], found.duplicates_refused)
    add(steps["gate"])
    add(steps["drain"], found.drained, _working_seconds(outcome))
    add(steps["average_delays"])
    add(steps["verify"])
    add(steps["draw"])
    table.add_section()
    table.add_row(Text("in all", style="bold"), Text(f"{outcome.total_seconds:.1f}", style="bold"))
    table.caption = (
        f"drain: {_waiting_seconds(outcome):.1f} s until Spark's first lease, the rate is of the time after it"
    )
    table.caption_justify = "left"
    return table


def _working_seconds(outcome: Outcome) -> float:
    leases = outcome.leases
    return max(lease.finished for lease in leases) - min(lease.started for lease in leases)


def _waiting_seconds(outcome: Outcome) -> float:
    began = outcome.progress.steps["drain"].started or 0.0
    return max(0.0, min(lease.started for lease in outcome.leases) - began)


def _checks(outcome: Outcome) -> Table:
    found, total = outcome.findings, outcome.progress.total
    table = Table(
        box=box.SIMPLE_HEAD, title="What was checked", title_justify="left", title_style="bold", pad_edge=False
    )
    table.add_column("")
    table.add_column("found", justify="right")
    table.add_column("must be", justify="right", style=DIM)
    rows = [
        ("published", found.published, total),
        ("duplicates refused", found.duplicates_refused, outcome.progress.again),
        ("drained into Parquet", found.drained, total),
        ("acked", found.acked, total),
        ("lost", found.lost, 0),
        ("written twice", found.written_twice, 0),
        ("acked twice", found.acked_twice, 0),
        ("left in flight", found.in_flight_left, 0),
    ]
    for label, value, wanted in rows:
        style = "green3" if value == wanted else f"bold {BAD}"
        table.add_row(label, Text(f"{value:,}", style=style), f"{wanted:,}")
    equal = found.matches_pandas
    table.add_row("equals pandas", Text("yes" if equal else "no", style="green3" if equal else f"bold {BAD}"), "yes")
    if outcome.crash:
        table.add_row("leases taken over", Text(f"{found.taken_over}", style="green3"), "1")
    return table


def _seen(outcome: Outcome) -> Table:
    table = Table.grid(padding=(0, 1))
    for line in seen(outcome):
        table.add_row(Text("≈", style=WATER), line)
    return table


def seen(outcome: Outcome) -> list[str]:
    """Explain the run in three to five sentences, each of which was checked."""
    found, progress, crash = outcome.findings, outcome.progress, outcome.crash
    lines = [
        (
            f"{progress.orchestrator.publisher} published {found.published:,} real flights. One month came a second "
            f"time: its {found.duplicates_refused:,} messages were all refused, by their key."
        ),
        progress.orchestrator.gate.format(min_ready=progress.min_ready),
        (
            f"Spark drained them through {len(outcome.leases)} leases in {PARTITIONS} partitions: a lease is a batch, "
            "a file named after it, and one ack."
        ),
    ]
    if crash:
        lines.append(
            f"Worker {crash.pid} was killed after it had written {crash.lease.rows:,} messages and before it had acked "
            "them. The retry took over its lease, overwrote its file and acked: nothing lost, nothing twice."
        )
    lines.append("Spark's sums and counts equal those of pandas, straight from the CSV, and so does every cell.")
    return lines


def _places(outcome: Outcome) -> Table:
    paths, orchestrator = outcome.paths, outcome.progress.orchestrator
    table = Table.grid(padding=(0, 2))
    table.add_column(style=DIM)
    table.add_column()
    for label, path in (
        ("the chart", paths.chart),
        ("the report", paths.report),
        ("the flights, a file per lease", paths.flights),
        ("the average delays", paths.delays),
        (f"the logs of {orchestrator.label} and Spark", paths.logs),
        ("the pipeline", PROJECT / orchestrator.source),
    ):
        table.add_row(label, Text(_short(path), style=LINE))
    return table


def _next(outcome: Outcome) -> Table:
    calm, crash = outcome.progress.orchestrator.target
    table = Table.grid(padding=(0, 2))
    table.add_column(style=f"bold {WATER}")
    table.add_column(style=DIM)
    if outcome.progress.crash:
        table.add_row(calm, "the same without a crash")
    else:
        table.add_row(crash, "the same while a Spark worker is killed")
    for other in ORCHESTRATORS.values():
        if other is not outcome.progress.orchestrator:
            table.add_row(other.target[0], f"the same with {other.label}")
    table.add_row("make quickstart", "the queue in eight lines of Python, no Airflow, no Spark")
    table.add_row("make test", "every promise of it, against real servers")
    return table


def _short(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
