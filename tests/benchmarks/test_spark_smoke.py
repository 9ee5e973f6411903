"""The Spark part of the benchmark runs and reports every bar; no test judges what it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import run

BARS = {
    ("Spark drain, no-op / single client", 1.2),
    ("Spark drain / single client", 1),
    ("Spark drain of a group / of a queue", 0.6),
    ("drain in two processes / Spark drain", 0.8),
    ("drain: Redis calls, large / small leases", 1),
    ("drain: the same while heartbeats go", 1.25),
    ("drain: time per message at 5,000 / 1,000", 1.25),
    ("micro-batch overhead, empty queue", 50),
    ("DataFrame writer, direct, a key column / publish_many, keys, 200 B", 0.6),
    ("DataFrame writer, direct, automatic keys / publish_many, no keys, 200 B", 0.6),
    ("publish, drain to Parquet, ack: 20,000 x 200 B, payload column", 7),
    ("publish, drain to Parquet, ack: 20,000 x 200 B, typed columns", 7),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.full
def test_a_quick_run_reports_every_bar_of_spark(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "spark", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"]) for bar in report["bars"]} == BARS
    calls = report["figures"]["Redis calls of a drain"]
    assert {row["leases"] for row in calls.values()} == {4}
    quick_small, quick_large, slow_small, slow_large = (row["calls"] for row in calls.values())
    # A claim and an ack per lease and a few calls per task, whatever the leases hold; heartbeats where there is time.
    assert 8 < quick_small == quick_large <= 8 + 2 * 3
    assert min(slow_small, slow_large) > quick_small
    assert report["figures"]["A million messages, from publish to Parquet"]["typed columns"]["messages"] == 20_000
    assert report["figures"]["The same, as the first job of a session"]["payload column"]["messages"] == 20_000
