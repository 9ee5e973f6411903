"""Turns messages of a lease into dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.leases import Ids, LeaseText, settle

__all__ = ["bury"]


def bury(
    cli: Cli,
    lease: LeaseText,
    ids: Ids = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for filters of `dead`.")] = "buried",
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="What went wrong.", show_default=False)] = None,
) -> int:
    """Turn messages of a lease into dead letters."""
    return settle(cli, lease, ids, "bury", lambda held, messages: held.bury(messages, reason=reason, error=error))
