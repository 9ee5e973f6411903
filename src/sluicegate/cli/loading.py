"""Makes typer's commands of the functions in `sluicegate.cli.commands`, each when it is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sluicegate.cli.coercion import coerce_plainly
from sluicegate.cli.options import bind
from sluicegate.cli.output import styled
from sluicegate.cli.registry import COMMANDS, Listed

__all__ = ["Command", "Group", "RootGroup"]

_COMMON = ("--url", "--config", "--json", "--help")
_TYPE = re.compile(r" <[^<>]*>$")
_HEADING = re.compile(r"^(Usage|[A-Z][A-Za-z ]*):(?=\s|$)", re.MULTILINE)
_NAME = re.compile(r"^(  )(-\S.*?|\[?[A-Za-z][\w.\[\]-]*)(?=  |$)", re.MULTILINE)


class Command(TyperCommand):
    """A command whose help is plain text with a few colours."""

    def get_help(self, ctx: Any) -> str:
        """Return the help text."""
        return _coloured(super().get_help(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _plain(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the command's own options, and those that all commands have."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Common options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((_TYPE.sub("", record[0]), record[1]))
            else:
                is_common = any(name in _COMMON for name in parameter.opts)
                sections["Common options" if is_common else "Options"].append(record)
        for section, records in sections.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """A command with subcommands."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _plain(super().get_help_option(ctx))

    def get_help(self, ctx: Any) -> str:
        """Return the help text."""
        return _coloured(super().get_help(ctx))


class RootGroup(Group):
    """All commands by their names; the overview of them imports none."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the overview, section by section."""
        for section in dict.fromkeys(listed.section for listed in COMMANDS):
            with formatter.section(section):
                formatter.write_dl([(one.name, one.help) for one in COMMANDS if one.section == section])


class _Commands(MutableMapping[str, Any]):
    """The commands of the registry, each made when somebody asks for it."""

    def __init__(self) -> None:
        self._listed = {listed.name: listed for listed in COMMANDS}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _load(self._listed[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are added in sluicegate.cli.registry")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are removed in sluicegate.cli.registry")


def _load(listed: Listed) -> Any:
    module = import_module(f"sluicegate.cli.commands.{listed.module or listed.name.replace('-', '_')}")
    app = _app(cls=Group, help=module.__doc__)
    functions = getattr(module, "COMMANDS", None)
    if functions is None:
        name = listed.name.replace("-", "_")
        app.command(listed.name, cls=Command)(bind(getattr(module, name, None) or getattr(module, f"{name}_")))
        command = get_command(app)
        coerce_plainly(*command.params)
        return command
    app.callback()(lambda: None)
    for name, function in functions.items():
        app.command(name, cls=Command)(bind(function))
    made: Any = get_command(app)
    for command in made.commands.values():
        coerce_plainly(*command.params)
    made.name, made.help, made.no_args_is_help = listed.name, listed.help, False
    return made


def _plain(option: Any) -> Any:
    if option is not None:
        coerce_plainly(option)
    return option


def _app(**options: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **options)


def _coloured(text: str) -> str:
    """Return a help text with headings in bold and the names of options and commands in colour."""
    text = _HEADING.sub(lambda found: styled(found[0], "bold", sys.stdout), text)
    return _NAME.sub(lambda found: found[1] + styled(found[2], "cyan", sys.stdout), text)
