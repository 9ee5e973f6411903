"""Checks for a probe whether Redis answers and places are within their limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import Cell
from sluicegate.cli.places import Targets, configured_places, grouped

__all__ = ["health"]


def health(
    cli: Cli,
    targets: Targets,
    max_ready: Annotated[int | None, typer.Option("--max-ready", min=0, help="Ready messages.")] = None,
    max_oldest_ready_seconds: Annotated[
        float | None, typer.Option("--max-age", min=0, help="Seconds that the oldest message may have been ready.")
    ] = None,
    max_in_flight: Annotated[int | None, typer.Option("--max-in-flight", min=0, help="Messages in flight.")] = None,
    max_dead: Annotated[int | None, typer.Option("--max-dead", min=0, help="Dead letters.")] = None,
    max_lag: Annotated[
        int | None, typer.Option("--max-lag", min=0, help="Messages of the stream that a group has not seen.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is wrong.")] = False,
) -> int:
    """Check that Redis answers and that places are within their limits: one round trip, nothing is retried.

    The limits are those of the options, else of the configuration file. The exit code is 0 if all is well, 1 if a limit
    is passed or a place cannot be read, and 3 if Redis does not answer.
    """
    from sluicegate.health import HealthLimits, HealthReport, check_health

    given: dict[str, Any] = {
        "max_ready": max_ready,
        "max_oldest_ready_seconds": max_oldest_ready_seconds,
        "max_in_flight": max_in_flight,
        "max_dead": max_dead,
        "max_lag": max_lag,
    }
    limits = HealthLimits.of({**cli.settings.health, **{name: one for name, one in given.items() if one is not None}})
    reports = [
        check_health(gateway, [target.place for target in some], limits=limits)
        for gateway, some in grouped(targets or configured_places(cli))
    ] or [check_health(cli.gateway(), limits=limits)]
    report = HealthReport([check for one in reports for check in one.checks])
    if cli.output.as_json:
        cli.output.record(report.as_json())
    else:
        for check in report.checks:
            if not quiet or not check.is_ok:
                mark = Cell("ok", "green") if check.is_ok else Cell("failed", "red bold")
                what = " ".join(part for part in (check.name, check.place) if part)
                cli.output.facts([(f"{mark.text:6}", Cell(f"{what}: {check.detail}", "" if check.is_ok else "red"))])
    if any(check.name == "redis" and not check.is_ok for check in report.checks):
        return ExitCode.UNREACHABLE
    return ExitCode.DONE if report.is_ready else ExitCode.FINDING
