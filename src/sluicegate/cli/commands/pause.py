"""Stops claims from taking new messages."""

from __future__ import annotations

from sluicegate.cli.context import Cli
from sluicegate.cli.places import Target

__all__ = ["pause"]


def pause(cli: Cli, target: Target) -> None:
    """Stop all claims from taking new messages, until `resume`.

    Messages in flight are not affected, and publishing continues.
    """
    changed = target.consumer().pause()
    cli.output.show({**target.identity(), "paused": True, "changed": changed})
    cli.output.line(f"{target} is paused" if changed else f"{target} was paused before")
