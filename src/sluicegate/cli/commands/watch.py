"""Shows queues, streams and groups live: a table with sparklines and rates."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.output import make_console
from sluicegate.cli.places import Target, Targets, configured_places, grouped
from sluicegate.cli.watching import Order, Row, Watcher, frame, ordered
from sluicegate.errors import RedisMessageQueueError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from sluicegate.survey.snapshots import PlaceState

__all__ = ["watch"]

_REFRESH_SECONDS = 30.0  # of what SCAN finds


def watch(
    cli: Cli,
    targets: Targets,
    interval: Annotated[float, typer.Option("--interval", "-n", min=0.1, help="Seconds between readings.")] = 1.0,
    times: Annotated[int, typer.Option("--count", min=0, help="How many readings; 0: until Ctrl-C.")] = 0,
    order: Annotated[Order, typer.Option("--sort", help="What comes first.")] = "name",
) -> int:
    """Show queues, streams and groups live, with sparklines of what is ready, and rates.

    Each reading is one command per place and one write per server. Ctrl-C ends it. Without PLACE it shows those of the
    configuration file, else all that it finds.
    """
    watching = _Watching(cli, targets, order)
    if cli.output.as_json or not sys.stdout.isatty():
        for rows in watching.readings(interval, times):
            watching.print(rows)
        return ExitCode.DONE
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=watching.console, screen=not times, auto_refresh=False) as live:
        for rows in watching.readings(interval, times):
            live.update(watching.frame(rows), refresh=True)
    return ExitCode.DONE


class _Watching:
    """Reads the places again and again, while Redis answers and while it does not."""

    def __init__(self, cli: Cli, targets: Targets, order: Order) -> None:
        self._cli = cli
        self._named: Sequence[Target] = targets or configured_places(cli)
        self._order = order
        self._watcher = Watcher(cli.settings.gates)
        self._problem = ""
        self._found_at = -_REFRESH_SECONDS
        self._found: Sequence[Target] = ()

    @cached_property
    def console(self) -> Console:
        """Return the terminal, or the file, that frames are printed on."""
        return make_console(sys.stdout)

    def readings(self, interval: float, times: int) -> Iterator[list[Row]]:
        """Yield the rows of each reading; the first failure is raised, a later one is shown until it has passed."""
        rows: list[Row] = []
        number = 0
        while True:
            start = time.monotonic()
            try:
                rows = ordered(self._watcher.rows(self._read(), time.monotonic()), self._order)
                self._problem = ""
            except RedisMessageQueueError as error:
                if number == 0:
                    raise
                self._problem = str(error)
            yield rows
            number += 1
            if times and number >= times:
                return
            time.sleep(max(0.0, interval - (time.monotonic() - start)))

    def frame(self, rows: Sequence[Row]) -> RenderableType:
        """Return what a terminal shows."""
        return frame(
            rows,
            title=self._title(),
            at=datetime.now().astimezone(),
            console=self.console,
            height=self.console.height if sys.stdout.isatty() else None,
            note=self._problem,
        )

    def print(self, rows: Sequence[Row]) -> None:
        """Print the rows as JSON, or as text below what was printed before."""
        output = self._cli.output
        if not output.as_json:
            self.console.print(self.frame(rows))
            return
        at = datetime.now().astimezone()
        for row in rows:
            output.record({"at": at, **row.record()})
        if self._problem:
            output.record({"at": at, "error": self._problem})

    def _title(self) -> str:
        servers = dict.fromkeys(target.gateway.server for target in self._named or self._found)
        return ", ".join(servers) or self._cli.gateway().server

    def _read(self) -> dict[Target, PlaceState]:
        from sluicegate.survey import read_snapshots

        states: dict[Target, PlaceState] = {}
        for gateway, some in grouped(self._named or self._search()):
            read = read_snapshots(gateway, [target.place for target in some], retry=False)
            states.update({target: read[target.place] for target in some})
        return states

    def _search(self) -> Sequence[Target]:
        """Find all places, once per half a minute."""
        from sluicegate.survey import find_places

        if time.monotonic() - self._found_at >= _REFRESH_SECONDS:
            found = find_places(self._cli.gateway())
            self._found = [Target(self._cli, one.place, one.kind) for one in found]
            self._found_at = time.monotonic()
        return self._found
