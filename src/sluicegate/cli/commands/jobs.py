"""Lists, shows or cancels jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import Cell, Column
from sluicegate.cli.places import Target
from sluicegate.cli.text import ago, clock_time, count, one_line

if TYPE_CHECKING:
    from sluicegate.jobs.handle import Job

__all__ = ["COMMANDS"]

_STATUSES = ("running", "waiting", "delayed", "failed", "completed", "cancelled")
_STYLES = {"running": "cyan", "failed": "red", "completed": "green", "cancelled": "dim"}
_FIELDS = (
    *("id", "kind", "status", "attempts", "progress", "note", "worker", "lease_id", "enqueued_at", "claimed_at"),
    *("ended_at", "last_error_type", "last_error", "cancel_requested"),
)


def list_(
    cli: Cli,
    target: Target,
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS", help=f"{', '.join(_STATUSES)}; may be repeated. Default: all.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The most jobs of each status.")] = 20,
) -> None:
    """List jobs by their status: those to be claimed next first, or those that ended last."""
    queue = target.jobs()
    found = [job for each in status or _STATUSES for job in queue.list(each, limit)]  # type: ignore[arg-type]  # checked there
    if cli.output.as_json:
        for job in found:
            cli.output.record(_record(job))
        return
    columns = [
        Column("id"),
        Column("kind"),
        Column("status"),
        Column("attempts", right=True),
        Column("progress", right=True),
        Column("enqueued", right=True),
        Column("worker", flexible=True),
        Column("note or error", flexible=True),
    ]
    cli.output.table(columns, [_row(job) for job in found], empty=f"queue of jobs {target.place.name!r}: no jobs")


def show(
    cli: Cli,
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Of jobs.", show_default=False)],
) -> int:
    """Show jobs whole: status, progress, error, payload and result."""
    found = target.jobs().get_many(ids)
    for job in found.values():
        record = {**_record(job), "payload": job.payload, "result": job.stored_result}
        cli.output.show(record, _facts(record), title=job.id)
    for one in ids:
        if one not in found:
            cli.output.note(f"queue of jobs {target.place.name!r} has no job {one}")
    return ExitCode.DONE if len(found) == len(set(ids)) else ExitCode.FINDING


def cancel(
    cli: Cli,
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Of jobs.", show_default=False)],
) -> int:
    """Remove jobs that wait, and ask the workers of those that run to stop.

    The exit code is 1 when some of them have ended or are unknown.
    """
    done = list(target.jobs().cancel(ids))
    left = [one for one in ids if one not in done]
    cli.output.show(
        {"kind": "jobs", "name": target.place.name, "group": None, "cancelled": done, "not_cancelled": left}
    )
    for one in done:
        cli.output.line(f"cancelled, or asked to stop: {one}")
    if left:
        cli.output.note(f"not cancelled, because they have ended or are unknown: {', '.join(left)}")
    return ExitCode.FINDING if left else ExitCode.DONE


def stats(cli: Cli, target: Target) -> None:
    """Count jobs by status, now and since the queue exists."""
    totals = target.jobs().stats()
    now = {name: getattr(totals, name) for name in ("waiting", "delayed", "running", "dead")}
    ever = {
        name: getattr(totals, f"{name}_jobs") for name in ("enqueued", "completed", "failed", "cancelled", "reclaimed")
    }
    facts = [(name, count(number)) for name, number in (*now.items(), *ever.items())]
    cli.output.show(
        {"kind": "jobs", "name": target.place.name, "group": None, "now": now, "totals": ever},
        facts,
        title=f"queue of jobs {target.place.name!r}",
    )


COMMANDS = {"list": list_, "show": show, "cancel": cancel, "stats": stats}


def _record(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _FIELDS}


def _row(job: Job) -> list[str | Cell]:
    return [
        job.id,
        job.kind,
        Cell(job.status, _STYLES.get(job.status, "")),
        count(job.attempts),
        "-" if job.progress is None else f"{job.progress:.0%}",
        ago(job.enqueued_at),
        job.worker or "-",
        one_line(job.note or job.last_error or "", 200),
    ]


def _facts(record: dict[str, Any]) -> list[tuple[str, str | Cell]]:
    from datetime import datetime

    from sluicegate.cli.output import to_json

    facts: list[tuple[str, str | Cell]] = []
    for name, value in record.items():
        if name == "id" or value in (None, "", False):
            continue
        text = to_json(value) if isinstance(value, (dict, list)) else str(value)
        if isinstance(value, datetime):
            text = f"{clock_time(value)}  ({ago(value)})"
        facts.append((name.replace("_", " "), Cell(text, _STYLES.get(str(value), "") if name == "status" else "")))
    return facts
