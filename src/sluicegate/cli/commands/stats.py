"""Shows the totals of queues, groups and streams since they exist."""

from __future__ import annotations

from typing import Any

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import Cell
from sluicegate.cli.places import Targets, read_states
from sluicegate.cli.text import count
from sluicegate.errors import RedisMessageQueueError

__all__ = ["stats"]

_ALWAYS = ("published", "duplicates", "claimed", "acked", "nacked", "buried")
_BAD = ("buried", "dropped", "dead_dropped", "discarded", "foreign")


def stats(cli: Cli, targets: Targets) -> int:
    """Show the totals of queues, groups and streams since they exist.

    Redis keeps them, so they count what all processes did. Totals of 0 are left out, except the first six.
    """
    states = read_states(cli, targets)
    for target, state in states.items():
        if isinstance(state, RedisMessageQueueError):
            if len(states) == 1:
                raise state
            cli.output.show(
                {**target.identity(), "error": state}, [("error", Cell(str(state), "red"))], title=str(target)
            )
            continue
        values = _values(state)
        cli.output.show({**target.identity(), "stats": values}, _facts(values), title=str(target))
    if not states:
        cli.output.note("no queues were found")
    return ExitCode.FINDING if any(isinstance(state, RedisMessageQueueError) for state in states.values()) else 0


def _values(state: Any) -> Any:
    from sluicegate.survey import StreamSnapshot

    return state.info if isinstance(state, StreamSnapshot) else state.stats


def _facts(values: Any) -> list[tuple[str, str | Cell]]:
    from dataclasses import fields

    facts: list[tuple[str, str | Cell]] = []
    for one in fields(values):
        value = getattr(values, one.name)
        if isinstance(value, bool):
            if value and one.name == "paused":
                facts.append(("paused", Cell("yes", "yellow")))
        elif isinstance(value, int) and (value or one.name in _ALWAYS):
            facts.append((one.name.replace("_", " "), Cell(count(value), "red" if value and one.name in _BAD else "")))
        elif isinstance(value, list):
            for group in value:
                lag = "unknown" if group.lag is None else count(group.lag)
                facts.append((f"group {group.name}", f"lag {lag}"))
    return facts
