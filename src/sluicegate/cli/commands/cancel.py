"""Deletes waiting messages by id."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.places import Target

__all__ = ["cancel"]


def cancel(
    cli: Cli,
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The ids of messages or jobs.", show_default=False)],
) -> int:
    """Delete waiting messages by id, and free their deduplication keys.

    A job that runs is asked to stop. The exit code is 1 when some of them could not be cancelled: those that are in
    flight, dead, done or unknown.
    """
    done = list(target.open().cancel(ids))
    left = [one for one in ids if one not in done]
    cli.output.show({**target.identity(), "cancelled": done, "not_cancelled": left})
    for one in done:
        cli.output.line(f"cancelled {one}")
    if left:
        cli.output.note(f"not cancelled, because they do not wait: {', '.join(left)}")
    return ExitCode.FINDING if left else ExitCode.DONE
