"""Show a live view of steps and bars on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from example_dags.demo.paths import PARTITIONS
from example_dags.demo.progress import Progress, Step

__all__ = ["LiveView", "PlainView", "View", "bar", "make_view", "render"]

WATER, DEEP, LINE, REFUSED, BAD, DIM = "deep_sky_blue1", "dodger_blue2", "gold1", "orchid", "red1", "grey50"
PARTITION_STYLES = ("spring_green2", "turquoise2", "sky_blue2", "medium_purple1")
_EIGHTHS = " ▏▎▍▌▋▊▉"
_PLAIN_SECONDS = 5.0


class View(Protocol):
    """Shows the progress of a run."""

    def __enter__(self) -> View: ...
    def __exit__(self, *error: object) -> None: ...
    def update(self) -> None:
        """Show that the progress has changed."""
        ...


def make_view(console: Console, progress: Progress) -> View:
    """Make a live view for a console that can move its cursor, and plain lines for any other."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console, progress) if live else PlainView(console, progress)


class LiveView:
    """Redraws the progress in place and leaves its last state on the screen."""

    def __init__(self, console: Console, progress: Progress) -> None:
        spinner = Spinner("dots", style=WATER)
        # A separate thread redraws, so that the clock advances while a step keeps the runner busy.
        self._live = Live(
            console=console, get_renderable=lambda: render(progress, console, spinner), refresh_per_second=8
        )

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def update(self) -> None:
        """Do nothing: the view is redrawn eight times a second."""


class PlainView:
    """Prints a line when a step begins, ends or something happens, and a count every few seconds."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._told: dict[str, str] = {}
        self._events = 0
        self._counted_at = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *error: object) -> None: ...

    def update(self) -> None:
        """Print the changes."""
        progress = self._progress
        for event in progress.events[self._events :]:
            self._say(event)
        self._events = len(progress.events)
        for step in progress.steps.values():
            if step.state == self._told.get(step.name, "waiting"):
                continue
            self._told[step.name] = step.state
            if step.state == "running":
                self._say(f"{step.title} ...")
            else:
                self._say(f"{step.title}: {step.state} after {step.seconds:.1f} s  {step.detail}".rstrip())
            self._counted_at = time.monotonic()
        if progress.sample.at and time.monotonic() - self._counted_at > _PLAIN_SECONDS:
            self._counted_at = time.monotonic()
            self._say(
                f"  published {progress.sample.published:,}, refused {progress.sample.refused:,}, "
                f"ready {progress.sample.ready:,}, drained {sum(progress.drained.values()):,}"
            )

    def _say(self, line: str) -> None:
        self._console.print(
            f"{time.monotonic() - self._began:6.1f} s  {line}", soft_wrap=True, highlight=False, markup=False
        )


def render(progress: Progress, console: Console, spinner: RenderableType | str) -> RenderableType:
    """Render the whole live view."""
    title = Text.assemble(("Sluicegate", f"bold {WATER}"), "  a year of flights through the gate")
    if progress.crash:
        title.append("  and a worker killed on the way", style=f"bold {BAD}")
    parts: list[RenderableType] = [_steps(progress, spinner)]
    if progress.sample.at:
        width = max(10, min(56, console.width - 42))
        parts += [Text(""), _bars(progress, width, ascii_only=console.options.ascii_only)]
    parts += [Text(f"  {event}", style=LINE) for event in progress.events]
    return Panel(Group(*parts), title=title, title_align="left", border_style=DEEP, padding=(1, 2), expand=False)


def _steps(progress: Progress, spinner: RenderableType | str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", width=7)
    table.add_column(style=DIM, overflow="ellipsis", no_wrap=True)
    for step in progress.steps.values():
        table.add_row(_mark(step, spinner), Text(step.title, style=_style(step)), _elapsed(step), step.detail)
    return table


def _mark(step: Step, spinner: RenderableType | str) -> RenderableType:
    marks = {"waiting": Text("·", style=DIM), "done": Text("✔", style="green3"), "failed": Text("✘", style=BAD)}
    return marks.get(step.state, spinner)


def _style(step: Step) -> str:
    return {"waiting": DIM, "running": "bold", "failed": f"bold {BAD}"}.get(step.state, "")


def _elapsed(step: Step) -> Text:
    return Text(f"{step.seconds:.1f} s" if step.started else "", style="bold" if step.state == "running" else DIM)


def _bars(progress: Progress, width: int, *, ascii_only: bool) -> Table:
    sample, total = progress.sample, max(progress.total, 1)
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", width=12)
    table.add_column(width=width)
    table.add_column(justify="right", width=9)
    table.add_column(style=DIM, no_wrap=True)

    def add(label: str, count: int, of: int, style: str, note: str = "", mark: int | None = None) -> None:
        drawn = bar(count, of, width, style, mark=mark, ascii_only=ascii_only)
        table.add_row(label, drawn, f"{count:,}", note)

    add("published", sample.published, total, DEEP, f"of {progress.total:,}")
    add("refused", sample.refused, total, REFUSED, f"of {progress.again:,} duplicates" if progress.again else "")
    add("ready", sample.ready, total, WATER, f"gate at {progress.min_ready:,}", mark=progress.min_ready)
    drained = sum(progress.drained.values())
    add("drained", drained, total, "green3", f"{sample.leases} leases open" if sample.leases else "")
    share = max(total / PARTITIONS, *(progress.drained.values() or [0]))
    for partition in range(PARTITIONS):
        add(f"part {partition}", progress.drained.get(partition, 0), round(share), PARTITION_STYLES[partition])
    return table


def bar(count: int, of: int, width: int, style: str, *, mark: int | None = None, ascii_only: bool = False) -> Text:
    """Draw a bar `width` cells wide, full when `count` reaches `of`, with a mark at a value of the same scale."""
    eighths = round(min(1.0, count / max(of, 1)) * width * 8)
    if ascii_only:
        cells = "#" * (eighths // 8)
    else:
        cells = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    text = Text(cells, style=style)
    text.append(("." if ascii_only else "·") * (width - len(cells)), style="grey23")
    if mark is None:
        return text
    at = min(width - 1, int(mark / max(of, 1) * width))
    return Text.assemble(text[:at], ("|" if ascii_only else "┃", f"bold {LINE}"), text[at + 1 :])
