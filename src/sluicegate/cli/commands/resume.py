"""Lets claims take messages again."""

from __future__ import annotations

from sluicegate.cli.context import Cli
from sluicegate.cli.places import Target

__all__ = ["resume"]


def resume(cli: Cli, target: Target) -> None:
    """Let claims take messages again, and wake waiting consumers."""
    changed = target.consumer().resume()
    cli.output.show({**target.identity(), "paused": False, "changed": changed})
    cli.output.line(f"{target} is resumed" if changed else f"{target} was not paused")
