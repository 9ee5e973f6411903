"""What is shown, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from example_dags.demo.progress import Progress
from example_dags.demo.screen import LiveView, PlainView, bar, make_view, render
from example_dags.demo.watch import Sample


@pytest.fixture
def progress() -> Progress:
    """Half-way through the drain."""
    progress = Progress(total=1000, again=100, min_ready=900)
    for name in ("prepare", "start", "publish_year", "publish_month_again", "gate"):
        progress.steps[name].state, progress.steps[name].started, progress.steps[name].ended = "done", 10.0, 12.5
    progress.steps["drain"].state, progress.steps["drain"].started = "running", 12.5
    progress.sample = Sample(
        at=20.0, ready=500, in_flight=40, leases=4, published=1000, refused=100, claimed=500, acked=460
    )
    progress.drained = {0: 230, 1: 110, 2: 60, 3: 80}
    return progress


@pytest.mark.parametrize("width", [1, 10, 57])
@pytest.mark.parametrize("count", [0, 1, 499, 500, 999, 1000, 2000])
def test_a_bar_is_always_as_wide_as_its_place(count: int, width: int) -> None:
    for ascii_only in (False, True):
        drawn = bar(count, 1000, width, "red", mark=900, ascii_only=ascii_only)
        assert cell_len(drawn.plain) == width


def test_a_bar_fills_with_its_count_and_carries_its_mark() -> None:
    assert bar(500, 1000, 10, "red").plain == "█████·····"
    assert bar(1, 8, 10, "red").plain.startswith("█▎·")
    assert bar(500, 1000, 10, "red", mark=900).plain == "█████····┃"
    assert bar(500, 1000, 10, "red", mark=900, ascii_only=True).plain == "#####....|"


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_live_view_shows_every_step_and_every_count_at_any_width(progress: Progress, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    console.print(render(progress, console, "*"))
    shown = console.export_text()

    assert all(step.title[:20] in shown for step in progress.steps.values())
    for count in ("1,000", "100", "500", "480", "230", "110", "60", "80"):
        assert count in shown
    assert max(cell_len(line) for line in shown.splitlines()) <= width


def test_a_terminal_gets_the_live_view_and_a_file_plain_lines(progress: Progress) -> None:
    assert isinstance(make_view(Console(file=io.StringIO(), force_terminal=True, width=80), progress), LiveView)
    assert isinstance(make_view(Console(file=io.StringIO()), progress), PlainView)


def test_plain_lines_tell_each_change_once_and_without_control_characters(progress: Progress) -> None:
    out = io.StringIO()
    with PlainView(Console(file=out, width=40), progress) as view:
        view.update()
        view.update()
        progress.steps["drain"].state, progress.steps["drain"].ended = "done", 20.0
        progress.steps["drain"].detail = "1,000 in Parquet files"
        progress.events.append("Worker 7 killed")
        view.update()
        view.update()
    lines = [line[10:] for line in out.getvalue().splitlines()]

    assert lines.count("Drain with Spark into Parquet, ack per lease ...") == 1
    assert lines.count("Drain with Spark into Parquet, ack per lease: done after 7.5 s  1,000 in Parquet files") == 1
    assert lines.count("Worker 7 killed") == 1
    assert "\x1b" not in out.getvalue()
