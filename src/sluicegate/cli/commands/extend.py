"""Moves the deadline of a lease."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.leases import LeaseText, read_lease
from sluicegate.cli.parsing import parse_seconds
from sluicegate.cli.text import duration

__all__ = ["extend"]


def extend(
    cli: Cli,
    lease: LeaseText,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--lease",
            parser=parse_seconds,
            metavar="DURATION",
            help="How long it lives from now; default: as when it was claimed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Move the deadline of a lease to a time from now."""
    held = read_lease(cli, lease)
    held.queue().extend(held.handle, seconds)
    life = held.handle.lease_seconds if seconds is None else seconds
    cli.output.show({**held.target.identity(), "lease_id": held.handle.id, "lease_seconds": life})
    cli.output.line(f"the lease lives for {duration(life)} from now")
