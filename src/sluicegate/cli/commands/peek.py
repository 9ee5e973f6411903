"""Shows messages without claiming them."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.messages import print_messages
from sluicegate.cli.places import NEVER_USED, Target
from sluicegate.errors import ConfigurationError

__all__ = ["peek"]


def peek(
    cli: Cli,
    target: Target,
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE",
            help="pending, returned, delayed, in_flight, dead, completed, failed or set_aside.",
        ),
    ] = "pending",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many messages.")] = 10,
    offset: Annotated[int, typer.Option(help="How many to skip.")] = 0,
    from_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of a stream: the first message.", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print whole payloads.")] = False,
) -> None:
    """Show messages without claiming them.

    The first is the next to be claimed, the oldest dead letter, the newest record of a history, or the message whose
    lease expires first. Of a stream, its history is shown, whoever has finished it.
    """
    if target.kind == "stream":
        if state != "pending" or offset:
            raise ConfigurationError(f"{target} has one history and no states; leave --state and --offset out")
        found: list[object] = [*target.stream().peek(limit, from_id=from_id)]
    elif from_id is not None:
        raise ConfigurationError("--from-id is for streams; use --offset")
    else:
        found = [*target.consumer().peek(limit, state=state, offset=offset)]  # type: ignore[call-overload]  # checked there
    is_unknown = not found and target.kind != "stream" and not target.consumer().stats().published
    empty = f"{target}: nothing is {state.replace('_', ' ')}"
    print_messages(cli.output, found, full=full, empty=NEVER_USED.format(target) if is_unknown else empty)
