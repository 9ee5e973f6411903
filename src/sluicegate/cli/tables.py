"""The layout of a table: how wide its columns are, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from sluicegate.cli.output import Cell, Column

__all__ = ["lines_of", "widths_of"]

_GAP = 2
_LEAST = 10  # characters of a flexible column that still say something


def widths_of(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], most: int | None) -> list[int] | None:
    """Return the width of each column; None when the table does not fit.

    Args:
        columns: the flexible ones share what the others leave.
        rows: their cells.
        most: the width of the terminal; None for no bound.
    """
    natural = [
        max([cell_len(column.name), *(cell_len(row[number].text) for row in rows)])
        for number, column in enumerate(columns)
    ]
    gaps = _GAP * (len(columns) - 1)
    if most is None or sum(natural) + gaps <= most:
        return natural
    left = most - gaps - sum(width for column, width in zip(columns, natural, strict=True) if not column.flexible)
    # The narrow ones first: what they do not need is there for the others.
    waiting = sorted((width, number) for number, width in enumerate(natural) if columns[number].flexible)
    for position, (width, number) in enumerate(waiting):
        share = left // (len(waiting) - position)
        if share < min(width, _LEAST):
            return None
        natural[number] = min(width, share)
        left -= natural[number]
    return natural if waiting else None


def lines_of(
    columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[Cell]], styled: Callable[[str, str], str]
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        columns: of the table.
        widths: of the columns.
        rows: the header and the rows.
        styled: puts a text into a style.
    """
    for row in rows:
        parts = []
        for column, width, cell in zip(columns, widths, row, strict=True):
            text = cell.text if cell_len(cell.text) <= width else f"{set_cell_size(cell.text, max(0, width - 1))}…"
            padding = " " * (width - cell_len(text))
            shown = styled(text, cell.style)
            parts.append(f"{padding}{shown}" if column.right else f"{shown}{padding}")
        yield (" " * _GAP).join(parts).rstrip()
