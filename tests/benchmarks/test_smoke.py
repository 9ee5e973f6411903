"""The benchmark runs and reports every bar; what it measures is nobody's test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import run
from tests.benchmarks.report import Bar

BARS = {
    ("publish_many / bare SET NX PX + LPUSH", "fast", 2),
    ("claim + JSON + ack / bare EVALSHA", "fast", 0.6),
    ("publish_many / bare SET NX PX + LPUSH", "plain", 2),
    ("claim + JSON + ack / bare EVALSHA", "plain", 0.6),
    ("memory in flight / pending", "fast", 1.3),
    ("memory per pending message and marker", "fast", 450),
    ("depth: Redis time, large / small", "fast", 1.25),
    ("depth: round trips", "fast", 1),
    ("depth: sent", "fast", 300),
    ("heartbeat: Redis time, large / small", "fast", 1.25),
    ("heartbeat: round trips", "fast", 1),
    ("heartbeat: sent", "fast", 300),
}


def test_a_quick_run_reports_every_bar_that_needs_no_spark(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    code = run.main(["--quick", "--only", "fast", "plain", "memory", "steadiness", "--output", str(output)])

    report = json.loads(output.read_text())
    assert code == 0
    assert {(bar["name"], bar["mode"], bar["limit"]) for bar in report["bars"]} == BARS
    assert all(bar["ok"] == _holds(bar) for bar in report["bars"])
    assert report["ok"] == all(bar["ok"] for bar in report["bars"])
    assert {"orjson", "hiredis"} <= report["versions"]["fast"].keys()
    assert not {"orjson", "hiredis"} & report["versions"]["plain"].keys()


@pytest.mark.parametrize(("measured", "code"), [(2.0, 0), (1.9, 1)])
def test_a_missed_bar_fails_a_strict_run_only(
    measured: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = Bar("speed", "fast", measured, limit=2, at_least=True, unit="x", detail="")
    monkeypatch.setitem(run._PARTS, "memory", lambda options, report: report["bars"].append(bar.to_dict()))
    arguments = ["--only", "memory", "--output", str(tmp_path / "report.json")]

    assert run.main(arguments) == 0
    assert run.main([*arguments, "--strict"]) == code


def _holds(bar: dict[str, float]) -> bool:
    return bar["measured"] >= bar["limit"] if bar["at_least"] else bar["measured"] <= bar["limit"]
