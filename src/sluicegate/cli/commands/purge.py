"""Deletes everything that is in a state."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.parsing import Yes, confirmed
from sluicegate.cli.places import Target
from sluicegate.cli.text import count
from sluicegate.errors import ConfigurationError

__all__ = ["purge", "purge_states"]


def purge(
    cli: Cli,
    target: Target,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="pending, returned, delayed, dead, completed or failed; may be repeated.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of these states.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be deleted, and delete nothing.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Delete everything that is in a state, and free the deduplication keys that it holds.

    Messages in flight stay, and so does what arrives meanwhile. It cannot be undone.
    """
    from sluicegate.purging import states_of

    if everything == bool(state):
        raise ConfigurationError("give either --state, once or several times, or --all; nothing was deleted")
    return purge_states(cli, target, states_of(state or None, everything=everything), dry_run=dry_run, yes=yes)


def purge_states(
    cli: Cli,
    target: Target,
    states: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
    older_than_seconds: float | None = None,
) -> int:
    """Count, ask, delete, and print how many there were."""
    from sluicegate.purging import count_states

    queue = target.consumer()
    if dry_run or not yes:
        counts = count_states(queue, states)
        listed = ", ".join(f"{count(number)} {state}" for state, number in counts.items())
        if dry_run:
            cli.output.show({**target.identity(), "dry_run": True, "purged": counts})
            cli.output.line(f"{target}: would delete {listed}")
            return ExitCode.DONE
        if not confirmed(f"{target}: delete {listed}?", yes=yes):
            cli.output.note("nothing was deleted")
            return ExitCode.FINDING
    done = {state: queue.purge(state, older_than_seconds=older_than_seconds) for state in states}
    cli.output.show({**target.identity(), "dry_run": False, "purged": done})
    cli.output.line(f"{target}: deleted {', '.join(f'{count(number)} {state}' for state, number in done.items())}")
    return ExitCode.DONE
