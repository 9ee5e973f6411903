"""Counts the messages of queues and groups by state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode, exit_code_of
from sluicegate.cli.output import Cell, Column
from sluicegate.cli.places import NEVER_USED, PLACE_COLUMNS, Target, Targets, grouped, place_cells, places_or_known
from sluicegate.cli.text import count, duration
from sluicegate.errors import RedisMessageQueueError

if TYPE_CHECKING:
    from sluicegate.report import Depth

__all__ = ["depth"]


def depth(cli: Cli, targets: Targets) -> int:
    """Count the messages of queues and groups by state.

    `ready` is what a claim would get: pending, returned, due, and those of expired leases. One call per place, all of
    them in one round trip.
    """
    from sluicegate.depths import read_depths

    wanted = [target for target in places_or_known(cli, targets) if target.kind != "stream" or targets]
    for target in wanted:
        target.consumed()
    found: dict[Target, Depth | RedisMessageQueueError] = {}
    for gateway, some in grouped(wanted):
        depths = read_depths(gateway, [target.place for target in some])
        found.update({target: depths[target.place] for target in some})
    _print(cli, found)
    errors = [answer for answer in found.values() if isinstance(answer, RedisMessageQueueError)]
    return exit_code_of(errors[0]) or ExitCode.FINDING if errors else ExitCode.DONE


def _print(cli: Cli, found: Mapping[Target, Depth | RedisMessageQueueError]) -> None:
    output = cli.output
    if output.as_json:
        for target, answer in found.items():
            key = "error" if isinstance(answer, RedisMessageQueueError) else "depth"
            output.record({**target.identity(), key: answer})
    elif len(found) == 1:
        ((target, answer),) = found.items()
        if isinstance(answer, RedisMessageQueueError):
            raise answer
        output.facts(_facts(answer), title=str(target))
        if not answer.published_total and not answer.pending:
            output.note(NEVER_USED.format(target))
    else:
        columns = [*PLACE_COLUMNS, *(Column(name, right=True) for name in _COLUMNS), Column("")]
        output.table(columns, [_row(target, answer) for target, answer in found.items()], empty="no queues were found")


_COLUMNS = ("ready", "delayed", "in flight", "dead", "oldest")


def _row(target: Target, answer: Depth | RedisMessageQueueError) -> list[str | Cell]:
    if isinstance(answer, RedisMessageQueueError):
        return [*place_cells(target), *("-" for _ in _COLUMNS), Cell(str(answer), "red")]
    return [
        *place_cells(target),
        _ready(answer),
        count(answer.delayed - answer.due),
        count(answer.in_flight - answer.expired),
        _dead(answer),
        duration(answer.oldest_ready_age_seconds),
        Cell("paused", "yellow") if answer.paused else "",
    ]


def _facts(depth: Depth) -> list[tuple[str, str | Cell]]:
    parts = {"pending": depth.pending, "returned": depth.returned, "due": depth.due, "expired": depth.expired}
    listed = ", ".join(f"{count(number)} {name}" for name, number in parts.items() if number)
    leases = f" in {count(depth.leases)} lease{'' if depth.leases == 1 else 's'}"
    facts: list[tuple[str, str | Cell]] = [
        ("ready", Cell(f"{_ready(depth).text}{f'  ({listed})' if listed else ''}", _ready(depth).style)),
        ("oldest ready", duration(depth.oldest_ready_age_seconds)),
        ("in flight", f"{count(depth.in_flight)}{leases if depth.leases else ''}"),
        ("delayed", f"{count(depth.delayed)}{_until('next due', depth.next_due_seconds)}"),
        ("dead", _dead(depth)),
    ]
    if depth.leases:
        facts[2] = ("in flight", f"{count(depth.in_flight)}{leases}{_until('next expiry', depth.next_expiry_seconds)}")
    if depth.set_aside:
        facts.append(("set aside", Cell(f"{count(depth.set_aside)}  (of a newer version; see `repair`)", "yellow")))
    if depth.paused:
        facts.append(("paused", Cell("yes; `resume` lets claims take messages again", "yellow")))
    return facts


def _ready(depth: Depth) -> Cell:
    return Cell(count(depth.ready), "bold" if depth.ready else "")


def _dead(depth: Depth) -> Cell:
    return Cell(count(depth.dead), "red" if depth.dead else "")


def _until(what: str, seconds: float | None) -> str:
    return "" if seconds is None else f"  ({what} {f'in {duration(seconds)}' if seconds > 0 else 'now'})"
