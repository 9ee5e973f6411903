"""Finds the queues, streams, groups and queues of jobs on a Redis."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode, exit_code_of
from sluicegate.cli.output import Cell, Column
from sluicegate.cli.places import PLACE_COLUMNS, Targets, found_places, place_cells, read_states
from sluicegate.cli.text import count, duration
from sluicegate.errors import RedisMessageQueueError

__all__ = ["queues"]

_COLUMNS = ("ready", "in flight", "delayed", "dead", "oldest", "published")


def queues(
    cli: Cli,
    names: Annotated[bool, typer.Option("--names", help="Print the names only, and read no counts.")] = False,
) -> int:
    """Find the queues, streams, groups and queues of jobs on a Redis, cluster-wide.

    It looks by SCAN, at about a million keys per second, and reads the counts of all that it finds in one round trip
    per server.
    """
    output, found = cli.output, found_places(cli)
    if names:
        for target in found:
            group = f" {target.place.group}" if target.place.group else ""
            output.show(target.identity())
            output.line(f"{target.kind} {target.place.name}{group}")
        return ExitCode.DONE
    states = read_states(cli, Targets(found))
    if output.as_json:
        for target, state in states.items():
            output.record({**target.identity(), **_record(state)})
    else:
        columns = [*PLACE_COLUMNS, *(Column(name, right=True) for name in _COLUMNS), Column("")]
        rows = [[*place_cells(target), *_cells(state)] for target, state in states.items()]
        output.table(columns, rows, empty="no queues were found")
    errors = [state for state in states.values() if isinstance(state, RedisMessageQueueError)]
    return exit_code_of(errors[0]) or ExitCode.FINDING if errors else ExitCode.DONE


def _record(state: Any) -> dict[str, Any]:
    if isinstance(state, RedisMessageQueueError):
        return {"error": state}
    if hasattr(state, "info"):
        return {"stream": state.info}
    return {"depth": state.depth, "stats": state.stats}


def _cells(state: Any) -> list[str | Cell]:
    if isinstance(state, RedisMessageQueueError):
        return [*("-" for _ in _COLUMNS), Cell(str(state), "red")]
    if hasattr(state, "info"):
        info = state.info
        return ["-", "-", "-", "-", "-", count(info.published), f"{count(info.length)} kept"]
    depth, stats = state.depth, state.stats
    return [
        Cell(count(depth.ready), "bold" if depth.ready else ""),
        count(depth.in_flight - depth.expired),
        count(depth.delayed - depth.due),
        Cell(count(depth.dead), "red" if depth.dead else ""),
        duration(depth.oldest_ready_age_seconds),
        count(stats.published),
        Cell("paused", "yellow") if depth.paused else "",
    ]
