"""The commands by name: a command's module is imported when the command runs, so that `--help` stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COMMANDS", "Listed", "Section"]

Section = Literal["Publish and consume", "Look", "Administer", "Run"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A command, as the overview of all commands shows it.

    Attributes:
        name: what people type.
        section: of the overview.
        help: one line about it.
        module: the module in `sluicegate.cli.commands`; by default the name, with `_` for `-`. It has either a function
            of that name (`list` is `list_`), whose first parameter is a `Cli`, or, for a command with subcommands,
            `COMMANDS`: their functions by name.
    """

    name: str
    section: Section
    help: str
    module: str = ""


COMMANDS = (Listed("depth", "Look", "Count the messages of queues and groups by state."),)
