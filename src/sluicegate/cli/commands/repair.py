"""Repairs counts and indexes."""

from __future__ import annotations

from dataclasses import fields

from sluicegate.cli.context import Cli
from sluicegate.cli.output import Cell
from sluicegate.cli.places import Target
from sluicegate.cli.text import count

__all__ = ["repair"]


def repair(cli: Cli, target: Target) -> None:
    """Repair counts and indexes after another program deleted or overwrote keys of a queue.

    It works beside publishers and consumers, may be repeated, and changes nothing in a consistent queue.
    """
    report = target.consumer().repair()
    values = {one.name: getattr(report, one.name) for one in fields(report)}
    changed = [
        (name.replace("_", " "), Cell(count(value), "yellow") if isinstance(value, int) else str(value))
        for name, value in values.items()
        if value and name != "recounted"
    ]
    cli.output.show({**target.identity(), "repair": values}, changed, title=str(target))
    if not changed:
        cli.output.line("  nothing was damaged")
