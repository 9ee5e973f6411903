"""Runs a program for each message or batch until the queue is empty."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import Cell
from sluicegate.cli.parsing import Start, parse_seconds, start_of
from sluicegate.cli.places import Target
from sluicegate.cli.text import count, counted, duration, one_line
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.interrupts import BaseGracefulInterruptHandler

if TYPE_CHECKING:
    from sluicegate.draining.summary import DrainSummary

__all__ = ["drain"]


def drain(
    cli: Cli,
    target: Target,
    command: Annotated[
        str,
        typer.Option("--exec", metavar="COMMAND", help="The program and its arguments; no shell is used."),
    ],
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Run it for up to N messages at once, one JSON object per line.", show_default=False
        ),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="How many run at the same time.")] = 1,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", help="The most messages.", show_default=False)
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            parser=parse_seconds,
            metavar="DURATION",
            help="Wait for new messages for so long, instead of ending when the queue is empty.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=parse_seconds,
            metavar="DURATION",
            help="End the program after so long, which is a failure.",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[
        float,
        typer.Option(parser=parse_seconds, metavar="DURATION", help="How long a lease outlives this process."),
    ] = 60,
    bury_on: Annotated[
        list[int] | None,
        typer.Option(metavar="CODE", help="Exit codes that make dead letters at once.", show_default=False),
    ] = None,
    release_on: Annotated[
        list[int] | None,
        typer.Option(metavar="CODE", help="Exit codes that return a message uncounted.", show_default=False),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A name that a repeat uses again, to continue.", show_default=False),
    ] = None,
    start: Start = None,
) -> int:
    """Run a program for each message, or batch of messages, until the queue is empty.

    The program gets the payload on stdin. Exit code 0 acks the message; any other returns it with a growing delay, or
    buries it at its last delivery, with the end of stderr as the error. A failed batch is split until the failing
    messages are alone. Ctrl-C lets the program finish, and releases what was not begun. The exit code is 1 when a
    message failed.
    """
    from sluicegate.cli.programs import Program
    from sluicegate.draining.local import drain as drain_queue

    if limit is not None and wait is not None:
        raise ConfigurationError("give either --limit or --wait")
    interrupt = _Interrupt()
    queue = target.consumer(
        gateway=cli.gateway(target.url, retry_budget_seconds=120), interrupt=interrupt, **start_of(target, start)
    )
    program = Program(
        command,
        target.place.name,
        timeout_seconds=timeout,
        bury_on=bury_on or (),
        release_on=release_on or (),
        stopping=interrupt.is_interrupted,
        stdout=sys.stderr if cli.output.as_json else None,
    )
    failed: DrainFailedError | None = None
    with interrupt:
        try:
            summary = drain_queue(
                queue,
                program.each if batch is None else program.batch,
                workers=workers,
                worker_kind="thread",
                batch_size=1 if batch is None else batch,
                lease_seconds=lease,
                run_id=run_id,
                batch_format="messages",
                until=limit or ("empty" if wait is None else "deadline"),
                deadline_seconds=wait,
                progress=None if sys.stderr.isatty() and not cli.output.as_json else False,
            )
        except DrainFailedError as error:
            failed, summary = error, cast("DrainSummary", error.summary)
    _print(cli, target, summary)
    if interrupt.signal is not None:
        return 128 + interrupt.signal
    return ExitCode.DONE if failed is None else ExitCode.FINDING


def _print(cli: Cli, target: Target, summary: DrainSummary) -> None:
    output = cli.output
    if output.as_json:
        values = summary.to_dict()
        del values["queue"]
        output.record({**target.identity(), "drain": values})
        return
    rate = summary.claimed / summary.seconds if summary.seconds else 0
    facts: list[tuple[str, str | Cell]] = [
        ("acked", Cell(count(summary.acked), "bold")),
        ("returned", count(summary.returned)),
        ("buried", Cell(count(summary.buried), "red" if summary.buried else "")),
        ("time", f"{duration(summary.seconds)}, {rate:,.1f} messages/s"),
        ("ended", ", ".join(dict.fromkeys(part.ended for part in summary.partitions))),
    ]
    output.facts(facts, title=str(target))
    for failure in summary.failures[:10]:
        named = ", ".join(failure.message_ids) or counted(failure.messages, "message")
        fate = "buried" if failure.buried else "returned"
        output.line(f"  {named}: {one_line(failure.error, 160)} ({fate})", "red")
    if len(summary.failures) > 10:
        output.line(f"  … and {len(summary.failures) - 10} more failures")


class _Interrupt(BaseGracefulInterruptHandler):
    """Stops a drain at the first SIGINT or SIGTERM, so that programs finish; the second ends this process.

    Attributes:
        signal: which one arrived; None before.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def is_interrupted(self) -> bool:
        """Return whether to stop."""
        return self.signal is not None

    def __enter__(self) -> _Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, _frame: object) -> None:
        if self.signal is None:
            self.signal = number
            return
        raise KeyboardInterrupt
