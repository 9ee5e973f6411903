"""Leases that outlive a command: `claim` prints one, and later commands settle it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.places import Target
from sluicegate.cli.text import count, counted
from sluicegate.errors import ConfigurationError, LeaseEndedError
from sluicegate.place import Place

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer
    from sluicegate.lease import Lease
    from sluicegate.lease_handle import LeaseHandle
    from sluicegate.message import Message

__all__ = ["HeldLease", "Ids", "LeaseText", "read_lease", "settle"]

LeaseText = Annotated[
    str,
    typer.Argument(
        metavar="LEASE", help="What `claim --json` printed, a file with it, or - for stdin.", show_default=False
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Only this message; may be repeated. The others stay in the lease.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that a command was given.

    Attributes:
        target: where it is from.
        handle: proves that it is held.
    """

    target: Target
    handle: LeaseHandle

    def queue(self) -> QueueConsumer:
        """Make what the lease is of."""
        return self.target.consumer()


def read_lease(cli: Cli, text: str) -> HeldLease:
    """Return the lease that an argument names.

    Raises:
        ConfigurationError: it is no lease, or its file cannot be read.
    """
    from sluicegate.core import json
    from sluicegate.lease_handle import LeaseHandle

    advice = "LEASE is what `claim --json` printed, a file with it, or - for stdin"
    source = text
    if text == "-":
        source = sys.stdin.read()
    elif not text.lstrip().startswith("{"):
        path = Path(text)
        if not path.is_file():
            raise ConfigurationError(f"there is no file {text!r}; {advice}")
        source = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = json.loads(source)
        kind, name, group, held = (values[key] for key in ("kind", "name", "group", "lease"))
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"this is no lease; {advice}") from None
    place = Place(name, stream=group is not None, group=group)
    return HeldLease(Target(cli, place, kind), LeaseHandle.from_dict(held))


def settle(
    cli: Cli, text: str, ids: Sequence[str] | None, verb: str, give: Callable[[Lease, list[Message]], None]
) -> int:
    """Settle messages of a lease, and keep it open for the others.

    Args:
        cli: the command.
        text: names the lease.
        ids: of the messages; None for all that have no verdict.
        verb: what is done.
        give: gives the verdict to the messages.

    Returns:
        The exit code: 1 when some of the ids are not open in the lease.
    """
    held = read_lease(cli, text)
    queue = held.queue()
    try:
        lease = queue.attach(held.handle, heartbeat=False)
    except LeaseEndedError as ended:
        return _report_ended(cli, held, verb, ended)
    open_messages = list(lease.messages)
    chosen = open_messages if not ids else [message for message in open_messages if message.id in ids]
    missing = sorted(set(ids or ()) - {message.id for message in chosen})
    if chosen:
        give(lease, chosen)
    left = len(open_messages) - len(chosen)
    if left:
        lease.detach()
    record = {**held.target.identity(), "lease_id": held.handle.id, "verb": verb, "settled": len(chosen), "open": left}
    cli.output.show({**record, "not_open": missing})
    cli.output.line(f"{verb}: {counted(len(chosen), 'message')}{f', {count(left)} still open' if left else ''}")
    if missing:
        cli.output.note(f"not in the lease, or settled before: {', '.join(missing)}")
    return ExitCode.FINDING if missing else ExitCode.DONE


def _report_ended(cli: Cli, held: HeldLease, verb: str, ended: LeaseEndedError) -> int:
    """Report on a lease whose messages all have verdicts: done, if they are what is asked for."""
    counts: dict[str, Any] = {"acked": ended.acked, "returned": ended.returned, "buried": ended.buried}
    wanted = {"ack": "acked", "nack": "returned", "release": "returned", "bury": "buried"}[verb]
    if any(number for name, number in counts.items() if name != wanted):
        raise ended
    record = {
        **held.target.identity(),
        "lease_id": held.handle.id,
        "verb": verb,
        "settled": 0,
        "open": 0,
        "not_open": [],
    }
    cli.output.show(record)
    cli.output.line(f"{verb}: all messages of the lease had this verdict before")
    return ExitCode.DONE
