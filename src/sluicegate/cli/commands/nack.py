"""Returns failed messages of a lease."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.leases import Ids, LeaseText, settle
from sluicegate.cli.parsing import parse_seconds

__all__ = ["nack"]


def nack(
    cli: Cli,
    lease: LeaseText,
    ids: Ids = None,
    delay: Annotated[
        float,
        typer.Option(parser=parse_seconds, metavar="DURATION", help="How long they cannot be claimed."),
    ] = 0,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What went wrong; a dead letter keeps it.", show_default=False)
    ] = None,
) -> int:
    """Return failed messages of a lease; the delivery counts, and the last one makes them dead letters."""
    return settle(cli, lease, ids, "nack", lambda held, messages: held.nack(messages, delay_seconds=delay, error=error))
