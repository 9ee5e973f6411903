"""Lists, shows, redrives or purges dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sluicegate.cli.commands.purge import purge_states
from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.messages import print_messages
from sluicegate.cli.output import Cell
from sluicegate.cli.parsing import Yes, parse_seconds
from sluicegate.cli.places import Target
from sluicegate.cli.text import count

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer
    from sluicegate.message import DeadMessage

__all__ = ["COMMANDS"]

_PAGE = 500
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only those buried for this reason.", show_default=False)
]
ErrorType = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only those with an error of this class.", show_default=False)
]
Search = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Only those with this text in the error, a header or the payload.", show_default=False
    ),
]
OlderThan = Annotated[
    float | None,
    typer.Option(
        parser=parse_seconds, metavar="DURATION", help="Only those buried at least so long ago.", show_default=False
    ),
]
Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="Only those with this deduplication key.", show_default=False)
]
Only = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; may be repeated.", show_default=False)
]


def list_(
    cli: Cli,
    target: Target,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.")] = 20,
    reason: Reason = None,
    error_type: ErrorType = None,
    search: Search = None,
    older_than: OlderThan = None,
    key: Key = None,
) -> None:
    """List dead letters, the oldest first."""
    wanted = _filter(reason, error_type, search, older_than, key)
    found: list[DeadMessage] = []
    for message in _dead(target.consumer()):
        if len(found) == limit:
            break
        if wanted(message):
            found.append(message)
    print_messages(cli.output, [*found], full=False, empty=f"{target}: no dead letters")


def show(
    cli: Cli,
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Of dead letters.", show_default=False)],
) -> int:
    """Show dead letters whole: error, headers and payload."""
    left = set(ids)
    found = []
    for message in _dead(target.consumer()):
        if message.id in left:
            found.append(message)
            left.remove(message.id)
        if not left:
            break
    print_messages(cli.output, [*found], full=True, empty="")
    for one in sorted(left):
        cli.output.note(f"{target} has no dead letter {one}")
    return ExitCode.FINDING if left else ExitCode.DONE


def summary(cli: Cli, target: Target) -> None:
    """Count dead letters by reason and error."""
    counted = Counter((message.reason, message.error_type) for message in _dead(target.consumer()))
    for (reason, error_type), number in counted.most_common():
        record = {**target.identity(), "reason": reason, "error_type": error_type or None, "messages": number}
        cli.output.show(record)
        cli.output.line(f"{count(number):>10}  {reason}{f'  {error_type}' if error_type else ''}")
    if not counted:
        cli.output.note(f"{target}: no dead letters")


def redrive(
    cli: Cli,
    target: Target,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="The most dead letters; default: all.", show_default=False)
    ] = None,
    reason: Reason = None,
    error_type: ErrorType = None,
    search: Search = None,
    older_than: OlderThan = None,
    key: Key = None,
    ids: Only = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and move nothing.")] = False,
) -> int:
    """Move dead letters back to the tail of the queue, with their deliveries reset.

    Those that are buried meanwhile stay dead. One whose deduplication key another message holds stays and is counted as
    blocked. The exit code is 1 when some were blocked.
    """
    by_text = error_type is not None or search is not None
    report = target.consumer().redrive(
        reason=reason,
        older_than_seconds=older_than,
        deduplication_key=key,
        ids=ids or None,
        where=_filter(None, error_type, search, None, None) if by_text else None,
        limit=limit,
        dry_run=dry_run,
    )
    verb = "would be redriven" if dry_run else "redriven"
    facts: list[tuple[str, str | Cell]] = [
        (verb, Cell(count(report.redriven), "bold")),
        ("blocked", Cell(count(report.blocked), "yellow" if report.blocked else "")),
        ("looked at", count(report.scanned)),
    ]
    cli.output.show({**target.identity(), "dry_run": dry_run, "redrive": report}, facts, title=str(target))
    return ExitCode.FINDING if report.blocked else ExitCode.DONE


def purge(
    cli: Cli,
    target: Target,
    older_than: OlderThan = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and delete nothing.")] = False,
    yes: Yes = False,
) -> int:
    """Delete dead letters: all, or those buried at least so long ago. It cannot be undone."""
    if older_than is not None and dry_run:
        wanted = _filter(None, None, None, older_than, None)
        number = sum(wanted(message) for message in _dead(target.consumer()))
        cli.output.show({**target.identity(), "dry_run": True, "purged": {"dead": number}})
        cli.output.line(f"{target}: would delete {count(number)} dead")
        return ExitCode.DONE
    return purge_states(cli, target, ("dead",), dry_run=dry_run, yes=yes, older_than_seconds=older_than)


COMMANDS = {"list": list_, "show": show, "summary": summary, "redrive": redrive, "purge": purge}


def _dead(queue: QueueConsumer) -> Iterator[DeadMessage]:
    """Yield the dead letters, the oldest first; those that leave meanwhile may hide others."""
    offset = 0
    while page := queue.peek(_PAGE, state="dead", offset=offset):
        yield from page
        offset += len(page)


def _filter(
    reason: str | None, error_type: str | None, search: str | None, older_than: float | None, key: str | None
) -> Callable[[DeadMessage], bool]:
    """Return whether a dead letter is one of those asked for."""
    from datetime import UTC, datetime, timedelta

    before = None if older_than is None else datetime.now(UTC) - timedelta(seconds=older_than)

    def is_wanted(message: DeadMessage) -> bool:
        return (
            (reason is None or message.reason == reason)
            and (error_type is None or message.error_type == error_type)
            and (before is None or message.buried_at <= before)
            and (key is None or (message.message is not None and message.message.deduplication_key == key))
            and (search is None or _has(message, search))
        )

    return is_wanted


def _has(message: DeadMessage, text: str) -> bool:
    payload = message.value if message.message is None else message.message.payload
    return text in message.error or text.encode() in payload or any(text in value for value in message.headers.values())
