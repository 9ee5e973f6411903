"""What commands print: JSON lines for programs, and aligned text for people, with colours on a terminal only."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from sluicegate.cli.text import shown, without_secrets

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "Bar",
    "Cell",
    "Column",
    "Output",
    "Style",
    "colours",
    "make_console",
    "plain",
    "print_error",
    "styled",
    "to_json",
]

Style: TypeAlias = str
"""Words out of bold, dim, red, green, yellow, blue, magenta, cyan, with spaces between them."""

_CODES = {
    "bold": 1,
    "dim": 2,
    "italic": 3,
    "underline": 4,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
}
_UNBOUNDED = 100_000  # columns of a file or a pipe, where nothing is cut


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        right: whether its cells are numbers.
        style: of its cells.
        flexible: whether its cells are cut when the terminal is narrow; the others keep their width.
    """

    name: str
    right: bool = False
    style: Style = ""
    flexible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a style of its own; a plain str has that of its column."""

    text: str
    style: Style = ""


class Output:
    """Prints what a command found.

    Args:
        as_json: one JSON object per line on stdout, and nothing for people.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    # ------------------------------------------------------------------ for programs

    def record(self, values: Any) -> None:
        """Print one JSON object on a line of its own: a mapping or a dataclass."""
        sys.stdout.write(to_json(values) + "\n")

    def show(self, values: Any, facts: Iterable[tuple[str, str | Cell]] = (), *, title: str = "") -> None:
        """Print one thing: as JSON, or as facts for people."""
        if self.as_json:
            self.record(values)
        else:
            self.facts(facts, title=title)

    # ------------------------------------------------------------------ for people

    def line(self, text: str = "", style: Style = "") -> None:
        """Print a line for people; nothing with `--json`."""
        if not self.as_json:
            sys.stdout.write(styled(shown(text), style, sys.stdout) + "\n")

    def facts(self, facts: Iterable[tuple[str, str | Cell]], *, title: str = "") -> None:
        """Print names and values, aligned, under a title; nothing with `--json`."""
        if self.as_json:
            return
        rows = [(name, value if isinstance(value, Cell) else Cell(value)) for name, value in facts]
        width = max((len(name) for name, _ in rows), default=0)
        if title:
            sys.stdout.write(styled(shown(title), "bold", sys.stdout) + "\n")
        for name, cell in rows:
            label = styled(name.ljust(width), "dim", sys.stdout)
            sys.stdout.write(f"  {label}  {styled(shown(cell.text), cell.style, sys.stdout)}".rstrip() + "\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, empty: str = "") -> None:
        """Print a table, or the text `empty` when it has no rows; nothing with `--json`.

        On a terminal its flexible columns are cut to the width, and where even that does not fit, each row becomes a
        paragraph. In a file or a pipe nothing is cut.
        """
        if self.as_json:
            return
        if not rows:
            self.note(empty)
            return
        from sluicegate.cli.tables import lines_of, widths_of

        cells = [[Cell(shown(cell.text), cell.style) for cell in _cells(columns, row)] for row in rows]
        is_terminal = sys.stdout.isatty()
        widths = widths_of(columns, cells, shutil.get_terminal_size().columns if is_terminal else None)
        if widths is None:
            for row in cells:
                facts = [(column.name, cell) for column, cell in zip(columns[1:], row[1:], strict=True)]
                facts = [(name, cell) for name, cell in facts if cell.text not in ("", "-")]
                self.facts(facts, title=row[0].text)
            return
        header = [Cell(column.name, "bold") for column in columns]
        for line in lines_of(columns, widths, [header, *cells], lambda text, style: styled(text, style, sys.stdout)):
            sys.stdout.write(f"{line}\n")

    def note(self, text: str) -> None:
        """Print a remark to stderr, for people and with `--json` too."""
        if text:
            sys.stderr.write(styled(shown(without_secrets(text)), "dim", sys.stderr) + "\n")

    def warn(self, text: str) -> None:
        """Print a warning to stderr."""
        sys.stderr.write(f"{styled('warning:', 'yellow bold', sys.stderr)} {shown(without_secrets(text))}\n")

    @contextmanager
    def progress(self, label: str, total: int | None = None, *, unit: str = "messages") -> Iterator[Bar]:
        """Show a bar on stderr while the block works, on a terminal only.

        Args:
            label: what is done.
            total: how many there are, None if that is not known.
            unit: what is counted.
        """
        bar = Bar(label, total, unit, visible=sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
        try:
            yield bar
        finally:
            bar.close()


def _cells(columns: Sequence[Column], row: Sequence[str | Cell]) -> list[Cell]:
    return [
        cell if isinstance(cell, Cell) else Cell(cell, column.style) for column, cell in zip(columns, row, strict=True)
    ]


class Bar:
    """A bar, or nothing where stderr is no terminal."""

    def __init__(self, label: str, total: int | None, unit: str, *, visible: bool) -> None:
        self._progress: Progress | None = None
        self._unit = unit
        if not visible:
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[counts]}", markup=False),
            TimeElapsedColumn() if total is None else TimeRemainingColumn(),
            console=make_console(sys.stderr),
            refresh_per_second=8,
            transient=True,
        )
        self._task = self._progress.add_task(label, total=total, counts="")
        self._progress.start()

    def update(self, done: int, note: str = "", *, total: int | None = None, share: float | None = None) -> None:
        """Show that so many are done.

        Args:
            done: how many.
            note: what to show behind their number.
            total: how many there are, once that is known.
            share: which part of the work is done, from 0 to 1, where the total is not known.
        """
        if self._progress is None:
            return
        counts = f"{done:,} {self._unit}{f', {note}' if note else ''}"
        completed, whole = (done, total) if share is None else (round(1000 * share), 1000)
        self._progress.update(self._task, completed=completed, counts=counts, total=whole)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def print_error(text: str, kind: str, *, as_json: bool, hint: str = "") -> None:
    """Print an error to stderr: in a line for people, or as JSON.

    Args:
        text: what is wrong; credentials in it are hidden.
        kind: the class of the error.
        as_json: whether to print JSON.
        hint: where to read on.
    """
    text = without_secrets(text)
    if as_json:
        sys.stderr.write(f"{to_json({'error': {'type': kind, 'message': text, 'hint': hint or None}})}\n")
        return
    lines = "\n       ".join(shown(line) for line in text.splitlines())
    sys.stderr.write(f"{styled('error:', 'red bold', sys.stderr)} {lines}\n")
    if hint:
        sys.stderr.write(styled(hint, "dim", sys.stderr) + "\n")


def make_console(file: TextIO) -> Console:
    """Return a console of rich that writes to a stream with the colours that the environment allows."""
    from rich.console import Console

    is_terminal = file.isatty()
    return Console(
        file=file,
        force_terminal=colours(file),
        no_color=not colours(file),
        width=shutil.get_terminal_size().columns if is_terminal else _UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
    )


def colours(file: TextIO) -> bool:
    """Return whether a stream takes colours: NO_COLOR and FORCE_COLOR decide, else whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return file.isatty() and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Style, file: TextIO) -> str:
    """Return text in a style where the stream takes colours."""
    if not style or not text or not colours(file):
        return text
    return f"\x1b[{';'.join(str(_CODES[word]) for word in style.split())}m{text}\x1b[0m"


def to_json(values: Any) -> str:
    """Return a value as one line of JSON."""
    prepared = plain(values)
    text = json.dumps(prepared, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(prepared, separators=(",", ":"))
    return text


def plain(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses as objects, times as ISO 8601 in UTC, bytes and errors as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Exception):
        return {"type": type(value).__name__, "message": without_secrets(str(value))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value) if one.name[0] != "_"}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return value
