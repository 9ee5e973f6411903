"""The rows of the report and how they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["Bar", "Figures", "last_line", "print_bars", "print_figures"]

Figures = dict[str, dict[str, float]]
_MAX_LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise and what was measured.

    Attributes:
        name: what is compared.
        mode: `fast` with orjson and hiredis, `plain` without.
        measured: the median.
        limit: what it is held against.
        at_least: whether the limit is the least or the most allowed.
        unit: of both numbers.
        detail: how it came about.
    """

    name: str
    mode: Literal["fast", "plain"]
    measured: float
    limit: float
    at_least: bool
    unit: str
    detail: str

    @property
    def ok(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def print_bars(console: Console, bars: list[dict[str, Any]], failed: Sequence[dict[str, str]] = ()) -> None:
    """Print a table of all bars, and of what could not be measured."""
    table = Table("bar", "mode", "measured", "limit", "ok", "how", title="Bars")
    for bar in bars:
        sign = "≥" if bar["at_least"] else "≤"
        mark = "[green]yes[/]" if bar["ok"] else "[bold red]NO[/]"
        measured, limit = f"{bar['measured']:,.2f} {bar['unit']}", f"{sign} {bar['limit']:,g}"
        table.add_row(bar["name"], bar["mode"], measured, limit, mark, bar["detail"])
    for one in failed:
        name, why = f"{one['part']}: {one['step']}", f"{one['error']}: {one['line']}"
        table.add_row(escape(name), "", "not measured", "", "[bold red]FAILED[/]", escape(why), style="red")
    console.print(table)


def print_figures(console: Console, title: str, figures: Figures) -> None:
    """Print a table of figures: one row per subject, one column per figure."""
    columns = list(dict.fromkeys(name for row in figures.values() for name in row))
    table = Table("", *columns, title=title)
    for subject, row in figures.items():
        table.add_row(subject, *(_number(row[name]) if name in row else "" for name in columns))
    console.print(table)


def last_line(text: str) -> str:
    """Return what an error says last, of bounded length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MAX_LINE_LENGTH] if lines else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
