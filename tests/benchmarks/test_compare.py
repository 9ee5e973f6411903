"""Two commits can be compared; how fast they are is nobody's test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.compare_rows import ROWS


@pytest.mark.full
def test_every_row_is_measured_on_both_sides(tmp_path: Path) -> None:
    output = tmp_path / "compare.json"

    assert compare.main(["HEAD", "--rounds", "1", "--scale", "0.02", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert set(report["rows"]) == {f"{flavour}: {row}" for row in ROWS for flavour in ("sync", "asyncio")}
    for row in report["rows"].values():
        assert row["wall ratio"] > 0
        assert row["wall µs, old"] > 0
        assert row["Redis CPU µs, new"] > 0


@pytest.mark.parametrize(("old", "ok"), [(2.0, True), (1.9, True), (1.89, False)])
def test_a_row_holds_when_its_median_ratio_reaches_the_bar(old: float, ok: bool) -> None:
    sample = {"client CPU": 1.0, "Redis CPU": 1.0, "count": 1.0}
    slower = ({"wall": 1.0, **sample}, {"wall": 9.0, **sample})

    found = compare._figures([slower, *[({"wall": old, **sample}, {"wall": 2.0, **sample})] * 2])

    assert (found["wall ratio"], found["wall lowest"]) == (old / 2, 1 / 9)
    assert (found["wall ratio"] >= compare.BAR) is ok
