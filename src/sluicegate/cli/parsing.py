"""Values of options that are more than a text or a number."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from sluicegate.cli.places import Target
    from sluicegate.core.durability import DurabilityOption

__all__ = ["Start", "Yes", "confirmed", "durability_of", "headers_of", "parse_seconds", "start_of"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1, None: 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_seconds(text: str) -> float:
    """Return a duration in seconds: a number, or one with a unit, such as `90`, `1.5h` or `7d`.

    Raises:
        typer.BadParameter: it is neither.
    """
    found = _DURATION.fullmatch(str(text).strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write a number of seconds, or 500ms, 90s, 15m, 2h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


Start = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Of a group that does not exist: where to create it, beginning, end or an id.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def start_of(target: Target, start: str | None) -> dict[str, Any]:
    """Return the option `start` for a group.

    Raises:
        ConfigurationError: the place is no group.
    """
    if start is None:
        return {}
    if target.kind != "group":
        raise ConfigurationError(f"--start is for groups of streams, and {target} is none")
    return {"start": start}


def headers_of(given: Sequence[str] | None) -> dict[str, str] | None:
    """Return headers out of `NAME=VALUE`.

    Raises:
        typer.BadParameter: one has no `=`.
    """
    if not given:
        return None
    for text in given:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is no header; write NAME=VALUE", param_hint="--header")
    return dict(text.split("=", 1) for text in given)


def durability_of(text: str) -> DurabilityOption:
    """Return what a publish waits for: `memory`, `fsync`, or `replicated:N`.

    Raises:
        typer.BadParameter: it is none of these.
    """
    if text in ("memory", "fsync"):
        return text  # type: ignore[return-value]  # one of the two literals
    kind, _, number = text.partition(":")
    if kind == "replicated" and number.isdigit():
        from sluicegate.core.durability import replicated

        return replicated(int(number))
    raise typer.BadParameter(f"{text!r} is none of memory, fsync and replicated:N", param_hint="--durability")


def confirmed(question: str, *, yes: bool) -> bool:
    """Return whether to do something that cannot be undone: `--yes` says so, or a person at a terminal.

    Raises:
        typer.BadParameter: there is no terminal to ask at.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter(
            "this cannot be undone, and there is no terminal to ask at; add --yes", param_hint="--yes"
        )
    return typer.confirm(question, err=True)
