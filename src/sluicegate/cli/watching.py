"""What `sluicegate watch` shows: a table of all places with sparklines, rates and states, read again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sluicegate.cli.text import count, duration, shown, sparkline
from sluicegate.errors import RedisMessageQueueError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from sluicegate.cli.places import Target
    from sluicegate.gates import Gate
    from sluicegate.survey.snapshots import PlaceState

__all__ = ["History", "Order", "Row", "Watcher", "frame"]

Order = Literal["name", "ready", "rate"]
_KEPT = 60  # values behind a sparkline
_LINES_AROUND = 5  # of a frame: title, heading, rule, the line about what is left out, and one to spare
_MOST_ERRORS = 3
_GAP, _WIDE = 2, 90
_LEAST_SPARK, _MOST_SPARK = 8, 40
_AGE_LATE_SECONDS = 3600


@dataclass(slots=True)
class History:
    """What was read of one place so far.

    Attributes:
        ready: ready messages, or the length of a stream, newest last.
        at: when it was read last, by a monotonic clock.
        published, acked: the totals then.
    """

    ready: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    at: float | None = None
    published: int = 0
    acked: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One place at one time.

    Attributes:
        target: the place.
        ready: messages that a claim would get; of a stream, its length.
        in_flight, delayed, dead: as in its depth; None where a stream has none.
        oldest_seconds: the age of the oldest ready message.
        published_per_second, acked_per_second: since the last reading; None for the first one.
        history: ready messages so far, newest last.
        state: what else there is to say, such as `paused`.
        error: why it could not be read; "" otherwise.
    """

    target: Target
    ready: int = 0
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    oldest_seconds: float | None = None
    published_per_second: float | None = None
    acked_per_second: float | None = None
    history: Sequence[float] = ()
    state: str = ""
    error: str = ""

    def record(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        values = {
            "ready": self.ready,
            "in_flight": self.in_flight,
            "delayed": self.delayed,
            "dead": self.dead,
            "oldest_ready_age_seconds": self.oldest_seconds,
            "published_per_second": self.published_per_second,
            "acked_per_second": self.acked_per_second,
            "state": self.state,
        }
        return {**self.target.identity(), **({"error": self.error} if self.error else values)}


class Watcher:
    """Turns readings into rows, and keeps what rates and sparklines need.

    Args:
        gates: by the name of their place; a row says whether its gate is open.
    """

    def __init__(self, gates: Mapping[str, Gate]) -> None:
        self._gates = gates
        self._known: dict[Target, History] = {}

    def rows(self, states: Mapping[Target, PlaceState], now: float) -> list[Row]:
        """Return a row per place.

        Args:
            states: what was read.
            now: when, by a monotonic clock.
        """
        return [self._row(target, state, now) for target, state in states.items()]

    def _row(self, target: Target, state: PlaceState, now: float) -> Row:
        from sluicegate.survey import StreamSnapshot

        if isinstance(state, RedisMessageQueueError):
            return Row(target, error=str(state))
        history = self._known.setdefault(target, History())
        if isinstance(state, StreamSnapshot):
            info = state.info
            rates = _advance(history, now, info.length, info.published, 0)
            groups = len(info.groups)
            return Row(
                target,
                ready=info.length,
                published_per_second=rates[0],
                history=list(history.ready),
                state=f"{groups} group{'' if groups == 1 else 's'}",
            )
        depth, stats = state.depth, state.stats
        published, acked = _advance(history, now, depth.ready, depth.published_total, stats.acked)
        return Row(
            target,
            ready=depth.ready,
            in_flight=depth.in_flight - depth.expired,
            delayed=depth.delayed - depth.due,
            dead=depth.dead,
            oldest_seconds=depth.oldest_ready_age_seconds,
            published_per_second=published,
            acked_per_second=acked,
            history=list(history.ready),
            state=self._state(target, state),
        )

    def _state(self, target: Target, state: Any) -> str:
        depth = state.depth
        words = ["paused"] if depth.paused else []
        gate = self._gates.get(target.place.name)
        if gate is not None:
            fired = gate.fired_by(depth)
            words.append(f"gate open ({fired})" if fired else "gate closed")
        if depth.expired:
            words.append(f"{count(depth.expired)} expired")
        if depth.set_aside:
            words.append(f"{count(depth.set_aside)} set aside")
        return ", ".join(words)


def _advance(history: History, now: float, ready: int, published: int, acked: int) -> tuple[float | None, float | None]:
    """Add a reading to what is known of a place, and return the rates since the last one."""
    rates: tuple[float | None, float | None] = (None, None)
    if history.at is not None and now > history.at:
        seconds = now - history.at
        rates = (max(0, published - history.published) / seconds, max(0, acked - history.acked) / seconds)
    history.ready.append(ready)
    history.at, history.published, history.acked = now, published, acked
    return rates


def ordered(rows: Iterable[Row], order: Order) -> list[Row]:
    """Return rows in the order that was asked for; places that cannot be read come first."""
    keys: dict[Order, Callable[[Row], float]] = {
        "name": lambda row: 0.0,
        "ready": lambda row: -float(row.ready),
        "rate": lambda row: -((row.published_per_second or 0.0) + (row.acked_per_second or 0.0)),
    }
    return sorted(rows, key=lambda row: (not row.error, keys[order](row), str(row.target)))


def frame(
    rows: Sequence[Row], *, title: str, at: datetime, console: Console, height: int | None, note: str = ""
) -> RenderableType:
    """Return one frame: a title, the table, why places cannot be read, and how many rows did not fit.

    Args:
        rows: in their order.
        title: where the places are.
        at: when they were read.
        console: what it is printed on; narrow ones get fewer columns.
        height: lines of the terminal; None for all rows.
        note: what is wrong at the moment, such as a server that does not answer.
    """
    from rich.console import Group
    from rich.text import Text

    errors = [f"{row.target}: {row.error}" for row in rows if row.error][:_MOST_ERRORS]
    fitting = len(rows) if height is None else max(1, height - _LINES_AROUND - bool(note) - len(errors))
    parts: list[RenderableType] = [
        Text.assemble(
            (shown(title), "bold"), ("   ", ""), (at.strftime("%H:%M:%S"), "cyan"), (f"   {_places(len(rows))}", "dim")
        )
    ]
    if note:
        parts.append(_cut(note, "bold red"))
    # On a terminal the sparklines keep their width while they fill; elsewhere they need no more than they have.
    most = _MOST_SPARK if height is not None else max((len(row.history) for row in rows), default=0)
    parts.append(_table(rows[:fitting], console.width, most) if rows else Text("nothing was found yet", "dim"))
    parts += [_cut(error, "red") for error in errors]
    if len(rows) > fitting:
        parts.append(_cut(f"… and {_places(len(rows) - fitting)} more; name some, or make the window higher", "dim"))
    return Group(*parts)


def _places(number: int) -> str:
    return f"{number:,} place{'' if number == 1 else 's'}"


def _cut(text: str, style: str) -> Text:
    """Return a line that is cut where the terminal ends."""
    from rich.text import Text

    return Text(shown(text), style, no_wrap=True, overflow="ellipsis")


def _table(rows: Sequence[Row], width: int, most_spark: int) -> RenderableType:
    """Return the table: numbers keep their width, and names, sparklines and states share what is left."""
    from rich import box
    from rich.table import Table

    numbers = [column for column in _NUMBERS if width >= column.least]
    cells = [[column.cell(row) for column in numbers] for row in rows]
    states = [_state_of(row) for row in rows]
    names = [shown(_name_of(row)) for row in rows]
    kinds = [row.target.kind for row in rows] if width >= _WIDE else []
    widths = [max(len(column.name), *(len(line[at].plain) for line in cells)) for at, column in enumerate(numbers)]
    kind_width = max(map(len, kinds), default=-_GAP)
    left = width - sum(widths) - kind_width - _GAP * (len(numbers) + 3)
    name_width = max(5, min(max(map(len, names)), max(12, left * 2 // 5)))
    state_width = min(max(len(state.plain) for state in states), max(0, left - name_width - _LEAST_SPARK))
    spark_width = max(0, min(most_spark, _MOST_SPARK, left - name_width - state_width))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("place", width=name_width, no_wrap=True, overflow="ellipsis")
    if kinds:
        table.add_column("", width=kind_width, no_wrap=True, style="dim")
    for at, column in enumerate(numbers):
        table.add_column(column.name, width=widths[at], justify="right", no_wrap=True)
        if at == 0:
            table.add_column("", width=spark_width, no_wrap=True, overflow="crop")
    table.add_column("", width=state_width, no_wrap=True, overflow="ellipsis")
    for at, (row, name, (ready, *others), state) in enumerate(zip(rows, names, cells, states, strict=True)):
        table.add_row(
            _cut(name, ""),
            *kinds[at : at + 1],
            ready,
            _cut(sparkline(row.history, spark_width), "cyan"),
            *others,
            state,
        )
    return table


def _name_of(row: Row) -> str:
    place = row.target.place
    return place.name if place.group is None else f"{place.name}/{place.group}"


@dataclass(frozen=True, slots=True)
class _Number:
    """A column of numbers.

    Attributes:
        name: its heading.
        least: the width of a terminal that has it.
        text: what it shows of a row.
        style: of that.
    """

    name: str
    least: int
    text: Callable[[Row], str]
    style: Callable[[Row], str]

    def cell(self, row: Row) -> Text:
        return _cut("" if row.error else self.text(row), self.style(row))


_NUMBERS = (
    _Number("ready", 0, lambda row: count(row.ready), lambda row: "bold" if row.ready else "dim"),
    _Number("in/s", 0, lambda row: rate(row.published_per_second), lambda row: ""),
    _Number("acked/s", 0, lambda row: rate(row.acked_per_second), lambda row: "green" if row.acked_per_second else ""),
    _Number("in flight", 90, lambda row: count(row.in_flight), lambda row: "" if row.in_flight else "dim"),
    _Number("delayed", 110, lambda row: count(row.delayed), lambda row: "" if row.delayed else "dim"),
    _Number("dead", 0, lambda row: count(row.dead), lambda row: "bold red" if row.dead else "dim"),
    _Number(
        "oldest",
        70,
        lambda row: duration(row.oldest_seconds),
        lambda row: "yellow" if (row.oldest_seconds or 0) > _AGE_LATE_SECONDS else "",
    ),
)


def _state_of(row: Row) -> Text:
    if row.error:
        return _cut("error", "red")
    return _cut(row.state, "yellow" if "paused" in row.state or "open" in row.state else "dim")


def rate(per_second: float | None) -> str:
    """Return a rate, `-` when it is not known yet."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"
