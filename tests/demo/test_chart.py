"""The chart shows the data that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from example_dags.demo.chart import BAD, GATE, GONE, PARTITIONS, chart_data, draw
from example_dags.demo.crash import Crash
from example_dags.demo.expected import Expected
from example_dags.demo.progress import Progress
from example_dags.demo.watch import LeaseFile, Sample

Image = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def lease(number: int, started: float, finished: float, deliveries: int = 1) -> LeaseFile:
    return LeaseFile(
        Path(f"{number}.parquet"), number % 4, number // 4, f"run/{number}", 7, 100, started, finished, deliveries
    )


@pytest.fixture
def progress() -> Progress:
    progress = Progress(total=1600, again=100, min_ready=1400)
    names = ("publish_year", "publish_month_again", "gate", "drain", "average_delays")
    for number, name in enumerate(names):
        progress.steps[name].started, progress.steps[name].ended = 1000.0 + 10 * number, 1010.0 + 10 * number
    progress.gate_opened = 1029.5
    return progress


@pytest.fixture
def samples() -> list[Sample]:
    filling = [Sample(at=1000.0 + second, ready=160 * second, published=160 * second) for second in range(10)]
    draining = [
        Sample(at=1030.0 + second, ready=1600 - 160 * second, in_flight=150, published=1600) for second in range(9)
    ]
    return [
        *filling,
        Sample(at=1010.0, ready=1600, published=1600),
        *draining,
        Sample(at=1040.0, published=1600, acked=1600),
    ]


def drawn(path: Path) -> Image:
    chart: Image = imread(path)
    return chart


def pixels(chart: Image, color: str) -> int:
    """Return how many pixels have exactly this color."""
    wanted = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)])
    return int((np.rint(chart[:, :, :3] * 255).astype(int) == wanted).all(axis=2).sum())


def test_the_picture_shows_the_gate_the_leases_and_the_delays(
    progress: Progress, samples: list[Sample], expected: Expected, tmp_path: Path
) -> None:
    leases = [lease(number, 1030.0 + number / 2, 1030.4 + number / 2) for number in range(16)]
    draw(chart_data(progress, samples, leases, expected.delays, None), tmp_path / "gate.png")
    chart = drawn(tmp_path / "gate.png")

    assert chart.shape[1] > 1500
    assert pixels(chart, GATE) > 200
    assert all(pixels(chart, color) > 500 for color in PARTITIONS)
    assert pixels(chart, BAD) == 0


def test_a_crash_is_marked(progress: Progress, samples: list[Sample], expected: Expected, tmp_path: Path) -> None:
    leases = [lease(number, 1030.0 + number / 2, 1030.4 + number / 2) for number in range(15)]
    dead = lease(15, 1032.0, 1032.5)
    heir = lease(15, 1036.0, 1036.5, deliveries=2)
    draw(chart_data(progress, samples, [*leases, heir], expected.delays, Crash(1032.6, 7, dead)), tmp_path / "gate.png")

    chart = drawn(tmp_path / "gate.png")

    assert pixels(chart, BAD) > 500
    assert pixels(chart, GONE) > 100, "the lease as its dead holder had it"


def test_the_headline_has_the_counts(progress: Progress, samples: list[Sample], expected: Expected) -> None:
    shown = chart_data(progress, samples, [lease(0, 1030.0, 1031.0)], expected.delays, None)

    assert shown.headline.startswith(
        "1,600 messages published, 0 duplicates refused, 1 leases drained, 1,600 messages acked"
    )
    assert shown.gate_opened == 1029.5
