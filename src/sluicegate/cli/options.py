"""The options that all commands have, and how the parameters of a command's function become its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.places import Target, Targets, target_of

__all__ = ["CommandFunction", "StoppedError", "bind"]

CommandFunction = Callable[..., int | None]
"""A command: it gets a `Cli`, prints, and returns its exit code, None for 0."""


def _complete_place(incomplete: str) -> list[str]:
    """Return the names of the configuration file that begin as typed; Redis is not asked."""
    from sluicegate.cli.settings import Settings
    from sluicegate.errors import ConfigurationError

    try:
        settings = Settings.load()
    except ConfigurationError:
        return []
    names = (*settings.queues, *settings.streams, *settings.jobs)
    return [name for name in names if name.startswith(incomplete)]


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where Redis is, such as redis://host:6379/0; else SLUICEGATE_URL, else the configuration file.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration file; else SLUICEGATE_CONFIG, ./sluicegate.toml, or the user's.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
_PLACE_HELP = "A name, or a URL such as redis+sluicegate://host:6379/0?queue=orders."
PlaceName = Annotated[
    str, typer.Argument(metavar="PLACE", help=_PLACE_HELP, show_default=False, autocompletion=_complete_place)
]
PlaceNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PLACE",
        help=f"{_PLACE_HELP} Without any: those of the configuration file, else all that are found.",
        show_default=False,
        autocompletion=_complete_place,
    ),
]
IsStream = Annotated[bool, typer.Option("--stream", help="PLACE is a stream.")]
GroupName = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="A group of the stream PLACE.", show_default=False)
]
IsJobs = Annotated[bool, typer.Option("--jobs", help="PLACE is a queue of jobs.")]

_OF_PLACES = {"stream": (IsStream, False), "group": (GroupName, None), "jobs": (IsJobs, False)}
_COMMON = {"url": (Url, None), "config": (Config, None), "json": (AsJson, False)}


class StoppedError(Exception):
    """Carries through typer what stopped a command, where typer would end the process by itself.

    Attributes:
        reason: what was raised.
    """

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


def bind(function: CommandFunction) -> Callable[..., int | None]:
    """Return a function with the options of the command line, for typer.

    A parameter of type `Cli` gets the call, to which the common options belong. One of type `Target` becomes the
    argument PLACE with `--stream`, `--group` and `--jobs`; one of type `Targets` takes any number of places. All others
    are declared to typer by their annotations.

    Args:
        function: of the command.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    (cli_name,) = [one.name for one in own if one.annotation is Cli]
    target_name = next((one.name for one in own if one.annotation in (Target, Targets)), None)
    parameters = [*_expanded(own), *(_parameter(name, *rest) for name, rest in _COMMON.items())]

    def call(context: typer.Context, **given: Any) -> int | None:
        root = context.find_root().params
        cli = Cli(
            url=given.pop("url") or root.get("url"),
            config=given.pop("config") or root.get("config"),
            as_json=given.pop("json"),
        )
        context.call_on_close(cli.close)
        if target_name is not None:
            options = {name: given.pop(name) for name in _OF_PLACES}
            texts: str | Sequence[str] | None = given.pop("places")
            given[target_name] = (
                target_of(cli, texts, **options)
                if isinstance(texts, str)
                else Targets(target_of(cli, text, **options) for text in texts or ())
            )
        try:
            return function(**{cli_name: cli}, **given)
        except (OSError, EOFError, KeyboardInterrupt) as error:
            raise StoppedError(error) from error

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    call.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]  # typer reads it
    call.__annotations__ = {one.name: one.annotation for one in (context, *parameters)}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _expanded(own: Any) -> Iterator[inspect.Parameter]:
    for one in own:
        if one.annotation in (Target, Targets):
            many = one.annotation is Targets
            yield _parameter("places", PlaceNames if many else PlaceName, None if many else inspect.Parameter.empty)
            for name, rest in _OF_PLACES.items():
                yield _parameter(name, *rest)
        elif one.annotation is not Cli:
            yield one.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
