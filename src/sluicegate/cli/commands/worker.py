"""Runs a worker that a module of yours makes."""

from __future__ import annotations

import dataclasses
import logging
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.places import Targets
from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from sluicegate.handling.report import WorkerReport

__all__ = ["worker"]


def worker(
    cli: Cli,
    app: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A Worker, or a function that makes one.", show_default=False)
    ],
    targets: Targets,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Handlers that run at the same time.")
    ] = None,
    stop_timeout: Annotated[
        float | None, typer.Option("--stop-timeout", min=0, help="Seconds that handlers may take after a signal.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="Of what is logged to stderr.")] = "info",
) -> int:
    """Run a worker until SIGTERM or Ctrl-C: it claims no more, and its handlers end.

    NAME is a Worker, or a function that takes `queue` (and `concurrency`) and returns one; an async function makes one
    for asyncio. With such a function, PLACE names what it consumes from. Messages of handlers that do not end in time
    are released. A second signal ends it at once. The exit code is 0 after a stop in which every handler ended.
    """
    from sluicegate.cli.running import Settings, load, run

    _log_to_stderr(log_level)
    if len(targets) > 1:
        raise ConfigurationError("a worker consumes from one PLACE; start one worker for each")
    # The module may install handlers of its own, which want the signals at their defaults.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    settings = Settings(targets[0] if targets else None, concurrency, stop_timeout)
    report = run(load(app), settings, lambda made: _announce(cli, made))
    _print(cli, report)
    return ExitCode.DONE if not report.released else ExitCode.FINDING


def _announce(cli: Cli, made: Any) -> None:
    cli.output.note(f"worker {made.name} runs, {made.concurrency} at a time; SIGTERM or Ctrl-C stops it")


def _print(cli: Cli, report: WorkerReport) -> None:
    counts = {**dataclasses.asdict(report), "claimed": report.claimed}
    shown = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number and name != "claimed")
    cli.output.show(counts)
    cli.output.line(f"{report.claimed:,} message{'' if report.claimed == 1 else 's'}{f': {shown}' if shown else ''}")


def _log_to_stderr(level: str) -> None:
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigurationError(f"--log-level is debug, info, warning or error, not {level!r}")
    if not logging.getLogger().handlers:
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
