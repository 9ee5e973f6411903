"""Moves what other libraries have stored into a queue, a stream or a queue of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import Cell, Column
from sluicegate.cli.text import count, duration

if TYPE_CHECKING:
    from sluicegate.migrating import Migration, MovePlan, MoveReport, Source

__all__ = ["COMMANDS"]

_RETRY_SECONDS = 120.0

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the queue, as its library knows it.", show_default=False)]
Into = Annotated[
    str | None,
    typer.Option("--into", metavar="NAME", help="The name here. Default: the same name.", show_default=False),
]
SourceUrl = Annotated[
    str | None,
    typer.Option(
        "--source-url", metavar="URL", help="The Redis to move from. Default: the one of --url.", show_default=False
    ),
]
InFlightOption = Annotated[
    str,
    typer.Option(
        "--in-flight",
        metavar="POLICY",
        help="What happens to messages that a consumer may be working on: refuse moves nothing, return takes them, "
        "leave leaves them.",
    ),
]
Live = Annotated[
    float,
    typer.Option(
        "--live-seconds",
        metavar="SECONDS",
        help="How long after a claim, or a call of a stream's consumer, it counts as working.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="PART",
        help="Move only this: pending, 'in flight', dead, failed, completed or 'deduplication keys'; may be repeated.",
        show_default=False,
    ),
]
Execute = Annotated[bool, typer.Option("--yes", "-y", "--execute", help="Move. Without it, only show what would move.")]


def message_queue(
    cli: Cli,
    name: Name,
    into: Into = None,
    separator: Annotated[str, typer.Option("--separator", metavar="TEXT", help="Its key_separator.")] = "::",
    dead_letter_key: Annotated[
        str | None,
        typer.Option(
            "--dead-letter-key",
            metavar="KEY",
            help="The list of its dead letters, if it has another name than NAME::dlq.",
            show_default=False,
        ),
    ] = None,
    only: Only = None,
    in_flight: InFlightOption = "refuse",
    source_url: SourceUrl = None,
    yes: Execute = False,
) -> int:
    """Move a queue of redis-message-queue, of any version, into a queue.

    Without --yes it reads only, and prints what would move. A run that was interrupted is continued by the next one.
    """
    from sluicegate.migrating import MessageQueueSource

    source = MessageQueueSource(name, separator, dead_letter_key)
    return _move(cli, source, into or name, source_url, yes=yes, in_flight=in_flight, parts=tuple(only or ()) or None)


def job_queue(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prefix of its keys.")] = "queue:jobs",
    into: Into = None,
    only: Only = None,
    in_flight: InFlightOption = "refuse",
    live_seconds: Live = 300,
    source_url: SourceUrl = None,
    yes: Execute = False,
) -> int:
    """Move the job queue of Redis's documentation into a queue of jobs; jobs keep their ids.

    Without --yes it reads only, and prints what would move. A run that was interrupted is continued by the next one.
    """
    from sluicegate.migrating import JobQueueSource

    options: dict[str, Any] = {"in_flight": in_flight, "live_seconds": live_seconds, "parts": tuple(only or ()) or None}
    return _move(cli, JobQueueSource(name), into or name, source_url, yes=yes, **options)


def stream(
    cli: Cli,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the stream.", show_default=False)],
    into: Into = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="NAME", help="Move what this group has not finished into a queue.", show_default=False
        ),
    ] = None,
    as_queue: Annotated[bool, typer.Option("--as-queue", help="Move all entries into a queue.")] = False,
    payload_field: Annotated[
        str | None,
        typer.Option(
            "--payload-field",
            metavar="FIELD",
            help="The field with the payload. Default: data, or all fields as JSON.",
            show_default=False,
        ),
    ] = None,
    in_flight: InFlightOption = "refuse",
    live_seconds: Live = 300,
    source_url: SourceUrl = None,
    yes: Execute = False,
) -> int:
    """Move a stream with its consumer groups into a stream, or into a queue.

    Entries keep their ids, and groups continue at their positions. Without --yes it reads only, and prints what would
    move. A run that was interrupted is continued by the next one.
    """
    from sluicegate.migrating import StreamSource

    options: dict[str, Any] = {"in_flight": in_flight, "live_seconds": live_seconds}
    if as_queue:
        options["into"] = "queue"
    return _move(cli, StreamSource(key, group, payload_field), into or key, source_url, yes=yes, **options)


COMMANDS = {"message-queue": message_queue, "job-queue": job_queue, "stream": stream}
"""The subcommands by their names."""


def _move(cli: Cli, source: Source, name: str, source_url: str | None, *, yes: bool, **options: Any) -> int:
    from sluicegate.migrating import Migration

    target = cli.gateway(retry_budget_seconds=_RETRY_SECONDS)
    origin = target if source_url is None else cli.gateway(source_url, retry_budget_seconds=_RETRY_SECONDS)
    migration = Migration(source, name, source_gateway=origin, target_gateway=target, **options)
    plan = migration.plan()
    if plan.problems or not yes:
        return _show_plan(cli, plan)
    return _run(cli, migration, plan)


def _show_plan(cli: Cli, plan: MovePlan) -> int:
    output = cli.output
    output.show({**_plain(plan), "dry_run": True, "total": plan.total, "problems": plan.problems})
    output.line(f"{plan.source} → {plan.target}", "bold")
    columns = [Column("part"), Column("key", flexible=True), Column("count", right=True), Column("becomes"), Column("")]
    rows: list[list[str | Cell]] = [
        [part.part, part.key, count(part.count), part.becomes, Cell(part.note, "dim")]
        for part in plan.parts
    ]  # fmt: skip
    output.table(columns, rows, empty="nothing would move")
    for note in plan.notes:
        output.note(note)
    for problem in plan.problems:
        output.warn(problem)
    if plan.problems:
        output.note("nothing was moved")
        return ExitCode.REFUSED
    if plan.total:
        output.note(f"{count(plan.total)} would move; give --yes to move them")
    return ExitCode.DONE


def _run(cli: Cli, migration: Migration, plan: MovePlan) -> int:
    try:
        with cli.output.progress(f"move {plan.source}", plan.total) as bar:
            report = migration.run(progress=lambda step: bar.update(step.done, step.part, total=step.total))
    except KeyboardInterrupt:
        cli.output.note("interrupted; run the same command again to continue")
        raise
    _show_report(cli, report)
    return ExitCode.FINDING if report.left else ExitCode.DONE


def _show_report(cli: Cli, report: MoveReport) -> None:
    output = cli.output
    rate = report.moved / report.seconds if report.seconds else 0.0
    output.show({**_plain(report), "dry_run": False, "moved": report.moved, "left": report.left})
    output.line(f"{report.source} → {report.target}", "bold")
    names = ("part", "moved", "as they were", "left", "moved before")
    columns = [Column(name, right=name != "part") for name in names]
    rows = [
        [part.part, count(part.moved), count(part.raw), count(part.left), count(part.known)] for part in report.parts
    ]
    output.table(columns, rows, empty="nothing was moved")
    for part in report.parts:
        for reason, number in part.reasons.items():
            output.warn(f"{count(number)} of {part.part} were left: {reason}")
    output.line(f"{count(report.moved)} moved in {duration(report.seconds)}, {rate:,.0f} messages/s")


def _plain(values: MovePlan | MoveReport) -> dict[str, Any]:
    from sluicegate.cli.output import plain

    found: dict[str, Any] = plain(values)
    return found
