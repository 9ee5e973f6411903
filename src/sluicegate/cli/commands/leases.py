"""Shows which consumers hold messages, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.output import Cell, Column
from sluicegate.cli.places import Target
from sluicegate.cli.text import ago, count, duration

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer
    from sluicegate.message import InFlightMessage

__all__ = ["leases"]

_PAGE = 1000
_IDS = 10


def leases(
    cli: Cli,
    target: Target,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many leases.")] = 100,
) -> None:
    """Show which consumers hold messages, and until when.

    The lease that expires first comes first. One that has expired is returned to the queue by the next claim.
    """
    found: dict[str, list[InFlightMessage]] = {}
    for message in _in_flight(target.consumer()):
        if message.lease_id not in found and len(found) == limit:
            break
        found.setdefault(message.lease_id, []).append(message)
    records = [_record(lease_id, messages) for lease_id, messages in found.items()]
    if cli.output.as_json:
        for record in records:
            cli.output.record(record)
        return
    columns = [
        Column("lease", flexible=True),
        Column("consumer", flexible=True),
        Column("messages", right=True),
        Column("expires in", right=True),
        Column("held for", right=True),
        Column("silent for", right=True),
        Column("deliveries", right=True),
    ]
    cli.output.table(columns, [_row(record) for record in records], empty=f"{target}: no message is in flight")


def _in_flight(queue: QueueConsumer) -> Iterator[InFlightMessage]:
    """Yield the messages in flight; those that move between two pages may be missed or repeated."""
    seen: set[str] = set()
    offset = 0
    while page := queue.peek(_PAGE, state="in_flight", offset=offset):
        yield from (message for message in page if message.id not in seen)
        seen.update(message.id for message in page)
        offset += len(page)


def _record(lease_id: str, messages: list[InFlightMessage]) -> dict[str, Any]:
    first = messages[0]
    return {
        "lease_id": lease_id,
        "consumer": first.consumer,
        "messages": len(messages),
        "deadline": first.deadline,
        "seconds_left": first.seconds_left,
        "expired": first.expired,
        "opened_at": first.opened_at,
        "held_since": first.held_since,
        "extended_at": first.extended_at,
        "takeovers": first.takeovers,
        "most_deliveries": max(message.delivery_count for message in messages),
        "message_ids": [message.id for message in messages[:_IDS]],
    }


def _row(record: dict[str, Any]) -> list[str | Cell]:
    return [
        record["lease_id"],
        record["consumer"] or "-",
        count(record["messages"]),
        Cell("expired", "yellow") if record["expired"] else duration(record["seconds_left"]),
        ago(record["held_since"]).removesuffix(" ago"),
        ago(record["extended_at"]).removesuffix(" ago"),
        count(record["most_deliveries"]),
    ]
