"""The benchmark runs and reports every bar; what it measures is nobody's test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run
from benchmarks.peers import run as peers
from benchmarks.peers.environments import PEERS

BARS = {
    ("publish_many / bare SET NX PX + LPUSH", "fast", 4.5),
    ("publish_table / bare SET NX PX + LPUSH", "fast", 6),
    ("claim + JSON + ack / bare EVALSHA", "fast", 0.6),
    ("publish_many / bare SET NX PX + LPUSH", "plain", 2),
    ("claim + JSON + ack / bare EVALSHA", "plain", 0.6),
    ("memory in flight / pending", "fast", 1.3),
    ("memory per pending message and marker", "fast", 390),
    ("depth: Redis time, large / small", "fast", 1.25),
    ("depth: round trips", "fast", 1),
    ("depth: sent", "fast", 300),
    ("heartbeat: Redis time, large / small", "fast", 1.25),
    ("heartbeat: round trips", "fast", 1),
    ("heartbeat: sent", "fast", 300),
}
LIMITS = {
    ("ack of one: Redis time at 200 / 100 in flight", 1.25),
    ("ack of 1,000: Redis time at 200 / 100 in flight", 1.25),
    ("reaping 2,000 in leases of 1,000", 10),
    ("reaping 2,000 in leases of 10", 10),
    ("heartbeat of 10 of 1,000 B", 300),
    ("heartbeat of 10,000 of 1,000 B", 300),
    ("heartbeat of 100 of 1,000,000 B", 300),
    ("heartbeats: largest - smallest", 8),
    ("lease of one message", 700),
    ("idle wake-up p95", 10),
    ("idle consumer", 2),
    ("scrape of 200 queues", 200),
    ("scrape's commands", 250),
    ("answer of the page", 100),
    ("sample of the page", 250),
    ("events of the page", 150),
}


@pytest.mark.full
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


@pytest.mark.slow
@pytest.mark.full
def test_a_quick_run_reports_the_limits_the_waiting_and_both_flavours(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert (
        run.main(["--quick", "--only", "asyncio", "limits", "waiting", "scrape", "page", "--output", str(output)]) == 0
    )

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"]) for bar in report["bars"]} == LIMITS
    rates = report["figures"]["asyncio beside sync, one connection each"]
    assert rates["messages/s, sync"].keys() < rates["messages/s, asyncio"].keys()
    assert all(rate > 0 for row in rates.values() for rate in row.values())


@pytest.mark.full
def test_a_quick_run_reports_the_longest_call_of_each_script(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "scripts", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"], bar["unit"]) for bar in report["bars"]} == {
        ("longest script, 1,000 of 1 kB", 10, "ms"),
        ("longest script, the largest calls", 50, "ms"),
    }
    times = report["figures"]["Scripts, longest call"]
    assert {"claim", "settle", "publish", "cancel", "peek", "redrive", "reap", "publish_to_stream"} < times.keys()
    assert all(took > 0 for row in times.values() for took in row.values())


@pytest.mark.full
def test_a_quick_run_reports_jobs_beside_the_design_of_the_redis_documentation(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "jobs", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    ways = ("one at a time", "in batches of 10", "in batches of 1,000")
    assert [(bar["name"], bar["limit"]) for bar in report["bars"]] == [
        (f"jobs {way} / the document's design", 0.5 if way == "one at a time" else 2) for way in ways
    ]
    rates = report["figures"]["Jobs, one client"]
    assert set(rates) == {*ways, "the document's design"}
    assert all(rate > 0 for row in rates.values() for rate in row.values())


@pytest.mark.full
def test_a_quick_run_reports_the_bars_of_streams(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "streams", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"]) for bar in report["bars"]} == {
        ("streams: publish_many", 80_000),
        ("streams: claim+json+ack", 100_000),
        ("streams: publish_many / bare XADD", 0.6),
        ("streams: claim+json+ack / bare XREADGROUP+XACK", 0.6),
    }
    assert all(figure > 0 for row in report["figures"]["Streams"].values() for figure in row.values())


@pytest.mark.full
def test_a_quick_run_reports_the_bars_of_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "cli", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"], bar["unit"]) for bar in report["bars"]} == {
        ("sluicegate --help", 0.3, "s"),
        ("sluicegate depth beyond import redis", 0.25, "s"),
        ("publish from JSON lines / publish_many", 0.6, "x"),
    }
    assert all(bar["measured"] > 0 for bar in report["bars"])


@pytest.mark.full
def test_a_quick_run_reports_the_bars_of_dagsters_drain_asset(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "dagster-drain", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"]) for bar in report["bars"]} == {
        ("Dagster asset, per_batch / drain", 0.8),
        ("Dagster asset, after_yield / drain that holds its batches", 0.8),
    }
    assert all(bar["ok"] == _holds(bar) for bar in report["bars"])


@pytest.mark.full
def test_a_quick_run_reports_the_bars_of_the_airflow_operator(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "airflow", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert {(bar["name"], bar["limit"]) for bar in report["bars"]} == {
        ("Airflow operator / publish_many", 0.8),
        ("Airflow operator, file / publish_many of its lines", 0.8),
    }
    assert all(rates["messages/s"] > 0 for rates in report["figures"]["Airflow publish operator"].values())


@pytest.mark.slow
@pytest.mark.full
def test_a_quick_run_reports_how_soon_dagster_requests_starts_and_drains(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "dagster-latency", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    (bar,) = report["bars"]
    assert (bar["name"], bar["limit"], bar["unit"]) == ("message to run request", 10, "s")
    figures = report["figures"]["Dagster, from a message to its run"]
    stages = [figures[f"message to run {stage}"]["s, most"] for stage in ("requested", "started", "drained")]
    assert stages == sorted(stages)
    assert stages[0] > 0


@pytest.mark.full
def test_a_quick_run_reports_the_bar_of_the_typed_columns(tmp_path: Path) -> None:
    output = tmp_path / "report.json"

    assert run.main(["--quick", "--only", "columns", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    (bar,) = report["bars"]
    assert (bar["name"], bar["limit"], bar["unit"]) == ("JSON into Arrow columns / json.loads per row", 2, "x")
    rates = report["figures"]["JSON payloads into typed columns"]
    assert set(rates) == {"Columns.table", "json.loads per row", "orjson.loads per row", "message columns alone"}
    assert all(rate > 0 for row in rates.values() for rate in row.values())


@pytest.mark.slow
@pytest.mark.full
def test_without_another_python_the_other_libraries_are_not_measured_and_the_run_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "interpreter", lambda: None)
    output = tmp_path / "peers.json"

    assert peers.main(["--quick", "--output", str(output)]) == 0

    report = json.loads(output.read_text())
    assert set(report["figures"]) == {peers.OURS}
    assert report["not measured"] == {peer.label: "not measured: needs Python 3.12" for peer in PEERS}
    assert len(PEERS) == 2
    assert "not measured" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.full
def test_a_library_that_fails_is_named_with_its_error_and_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(library: peers.Library, options: object) -> None:
        raise AssertionError(f"{library.label} ended during singles")

    monkeypatch.setattr(peers, "interpreter", lambda: None)
    monkeypatch.setattr(peers.Library, "run", fails)
    output = tmp_path / "peers.json"

    assert peers.main(["--quick", "--output", str(output)]) == run.NOT_MEASURED

    report = json.loads(output.read_text())
    assert report["not measured"][peers.OURS] == "failed: AssertionError: sluicegate ended during singles"
    assert (report["ok"], report["bars"], report["figures"]) == (False, [], {})


def test_the_bars_beside_another_library_are_ratios_to_it() -> None:
    cpu = "Redis CPU µs per claim+ack"
    ours = {
        "publish/s": 30.0, "claim+ack/s": 20.0, cpu: 50.0, f"{cpu}, batches of 1,000": 5.0,
        "claim+ack/s, loop": 90.0, f"{cpu}, loop": 44.0,
        "heartbeat bytes, 1,000 B": 1.0, "heartbeat bytes, 1,000,000 B": 1.0, "idle wake-up p95 ms": 1.0,
    }  # fmt: skip
    theirs = {"publish/s": 10.0, "claim+ack/s": 20.0, cpu: 110.0}

    bars = {bar.name: bar for bar in peers.bars({peers.OURS: ours, "other 1": theirs})}

    found = {name: (bar.measured, bar.limit, bar.ok) for name, bar in bars.items() if "other 1" in name}
    assert found == {
        "deduplicated publish / other 1": (3, 2, True),
        "claim+ack / other 1": (1, 2, False),
        "claim+ack, our loop / other 1": (4.5, 4, True),
        "other 1 / ours: Redis CPU, loop": (2.5, 3, False),
        "other 1 / ours: Redis CPU, single": (2.2, 2, True),
        "other 1 / ours: Redis CPU, batches": (22, 20, True),
    }
    assert len(bars) == 9


@pytest.mark.parametrize(("measured", "code"), [(2, 0), (1, 1)])
def test_a_missed_bar_fails_a_strict_run_only(
    measured: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PARTS", {"speed": "tests.benchmarks.failing_parts:measures"})
    arguments = ["--rounds", str(measured), "--output", str(tmp_path / "report.json")]

    assert run.main(arguments) == 0
    assert run.main([*arguments, "--strict"]) == code


def test_a_part_that_fails_or_dies_is_a_red_row_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("starts_nothing", "fails", "dies", "measures")
    monkeypatch.setattr(run, "PARTS", {name: f"tests.benchmarks.failing_parts:{name}" for name in names})
    monkeypatch.setenv("COLUMNS", "200")
    output = tmp_path / "report.json"

    code = run.main(["--output", str(output)])

    report = json.loads(output.read_text())
    assert code == run.NOT_MEASURED
    assert report["failed"] == [
        {"part": "starts_nothing", "step": "around start", "error": "OSError", "line": "for this part"},
        {"part": "fails", "step": "first", "error": "AssertionError", "line": "all leases have [red]expired[/]"},
        {"part": "dies", "step": "after speed", "error": "PartEnded", "line": "its process ended with -9"},
    ]
    assert [bar["name"] for bar in report["bars"]] == ["speed"] * 3  # what the others found by then is kept
    assert (report["ok"], report["left"], set(report["seconds"])) == (False, [], set(names))
    shown = capsys.readouterr().out
    assert "AssertionError: all leases have [red]expired[/]" in shown
    assert shown.count("FAILED") == len(report["failed"])


def test_a_part_that_does_not_end_is_ended_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PARTS", {"hangs": "tests.benchmarks.failing_parts:hangs"})
    output = tmp_path / "report.json"

    assert run.main(["--part-seconds", "0.5", "--output", str(output)]) == run.NOT_MEASURED

    (failed,) = json.loads(output.read_text())["failed"]
    assert (failed["part"], failed["error"], failed["line"]) == ("hangs", "PartEnded", "no end within 0.5 s")


def test_the_report_is_written_after_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run,
        "PARTS",
        {"one": "tests.benchmarks.failing_parts:measures", "two": "tests.benchmarks.failing_parts:measures"},
    )
    output = tmp_path / "report.json"
    measure = run._measure

    def interrupted(*arguments: Any) -> Any:
        if output.exists():
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(run, "_measure", interrupted)

    with pytest.raises(KeyboardInterrupt):
        run.main(["--output", str(output)])

    report = json.loads(output.read_text())
    assert (list(report["seconds"]), report["left"]) == (["one"], ["two"])
    assert [bar["name"] for bar in report["bars"]] == ["speed"]


def _holds(bar: dict[str, float]) -> bool:
    return bar["measured"] >= bar["limit"] if bar["at_least"] else bar["measured"] <= bar["limit"]
