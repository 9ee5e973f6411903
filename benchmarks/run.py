"""Measure what the project promises about speed and size, and write build/bench/report.json.

Each part has a process of its own; the report is written after each. What could not be measured is a red row in the
table and an item of `failed` in the report; the other parts still run.

A benchmark, not a test: it exits 0 whatever it finds; 2 when something could not be measured; with `--strict` 1 when a
bar is missed.

Usage: python -m benchmarks.run [--quick] [--rounds N] [--count N] [--only PART ...] [--strict] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.part import write
from benchmarks.report import print_bars, print_figures

__all__ = ["NOT_MEASURED", "PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
NOT_MEASURED = 2  # exit code
Report = dict[str, Any]
# The steps of each part, as `part` runs them. Strings, because the worker must decide what may be imported.
PARTS = {
    "fast": "benchmarks.worker:fast",
    "plain": "benchmarks.worker:plain",
    "memory": "benchmarks.footprint:steps",
    "steadiness": "benchmarks.steadiness:steps",
    "asyncio": "benchmarks.flavours:steps",
    "limits": "benchmarks.limits:steps",
    "scripts": "benchmarks.script_times:steps",
    "waiting": "benchmarks.waiting:steps",
    "scrape": "benchmarks.scrape:steps",
    "page": "benchmarks.page:steps",
    "jobs": "benchmarks.jobs:steps",
    "streams": "benchmarks.streams:steps",
    "moves": "benchmarks.migrating:steps",
    "cli": "benchmarks.command_line:steps",
    "airflow": "benchmarks.airflow_publish:steps",
    "dagster": "benchmarks.dagster_sensors:steps",
    "dagster-latency": "benchmarks.dagster_latency:steps",
    "dagster-drain": "benchmarks.dagster_drain:steps",
    "columns": "benchmarks.spark_columns:steps",
    "spark": "benchmarks.spark_run:steps",
}


def main(arguments: Sequence[str]) -> int:
    """Run the parts asked for, print them and write the report."""
    options = _parse(arguments)
    console = Console()
    settings = vars(options) | {"cpus": os.cpu_count(), "output": str(options.output)}
    report: Report = {
        "settings": settings, "bars": [], "figures": {}, "versions": {}, "failed": [], "seconds": {}, "steps": {},
    }  # fmt: skip
    report["left"] = [name for name in PARTS if name in options.only]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    while report["left"]:
        name = report["left"][0]
        console.print(f"measuring {name} … ({time.monotonic() - began:.0f} s since the start)")
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sg-bench-", ignore_cleanup_errors=True) as folder:
            _add(report, name, _measure(PARTS[name], options, Path(folder)))
        report["seconds"][name] = round(time.monotonic() - start, 1)
        del report["left"][0]
        report["ok"] = not report["failed"] and all(bar["ok"] for bar in report["bars"])
        write(options.output, report)
    for title, figures in report["figures"].items():
        print_figures(console, title, figures)
    print_bars(console, report["bars"], report["failed"])
    total = sum(report["seconds"].values())
    console.print(f"{total:.0f} s; report: {os.path.relpath(options.output)}")
    return NOT_MEASURED if report["failed"] else int(options.strict and not report["ok"])


def _measure(target: str, options: argparse.Namespace, folder: Path) -> Report:
    """Run a part in a new interpreter and return its results; if it dies or hangs, those found by then."""
    output = folder / "result.json"
    settings = json.dumps(vars(options) | {"output": ""})
    command = [sys.executable, "-m", "benchmarks.part", target, settings, str(output)]
    # A session of its own, to be ended with all the servers in it; their folders go with this one.
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"TMPDIR": str(folder)}, start_new_session=True)
    error = ""
    try:
        code = process.wait(options.part_seconds)
        error = f"its process ended with {code}" if code else ""
    except subprocess.TimeoutExpired:
        error = f"no end within {options.part_seconds:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found: Report = json.loads(output.read_text()) if output.exists() else {"failed": []}
    if error:
        step = f"after {list(found.get('seconds', {}))[-1]}" if found.get("seconds") else "start"
        found["failed"].append({"step": step, "error": "PartEnded", "line": error})
    return found


def _add(report: Report, name: str, found: Report) -> None:
    report["bars"] += found.get("bars", [])
    report["figures"] |= found.get("figures", {})
    report["versions"] |= found.get("versions", {})
    report["failed"] += [{"part": name} | one for one in found["failed"]]
    report["steps"][name] = found.get("seconds", {})


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, after one to warm up")
    parser.add_argument("--count", type=int, default=20_000, help="messages per round")
    parser.add_argument("--memory", type=int, nargs="+", default=[100_000, 140_000], help="messages in memory")
    parser.add_argument("--sizes", type=int, nargs=2, default=[1_000, 1_000_000], help="small and large queue")
    parser.add_argument("--flights", type=int, default=0, help="flights to drain with Spark, 0 for all")
    parser.add_argument("--spark-rounds", type=int, default=3, help="interleaved rounds of the Spark drain")
    parser.add_argument("--drains", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="sizes of drains")
    parser.add_argument("--leases", type=int, nargs=2, default=[100, 10_000], help="sizes of leases that Spark drains")
    parser.add_argument("--handler-seconds", type=float, default=2.5, help="a slow handler's work on each of them")
    parser.add_argument("--written", type=int, default=100_000, help="rows of a DataFrame to publish")
    parser.add_argument("--idle", type=float, default=5, help="seconds of an idle streaming query")
    parser.add_argument("--micro-batches", type=int, default=20, help="micro-batches of one message")
    parser.add_argument("--million", type=int, default=1_000_000, help="messages from publish to Parquet")
    parser.add_argument("--drain-rounds", type=int, default=2, help="rounds of those")
    parser.add_argument("--keys", type=int, nargs="+", default=[24, 12], help="bytes of deduplication keys in memory")
    parser.add_argument("--still", type=float, default=1, help="seconds that memory must stand still to be read")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="to settle among")
    parser.add_argument("--expired", type=int, default=50_000, help="messages to reap")
    parser.add_argument("--held", type=int, default=10_000, help="messages in leases of their own")
    parser.add_argument("--limit-rounds", type=int, default=3, help="rounds of settling and of reaping")
    parser.add_argument("--wakes", type=int, default=40, help="wake-ups of a waiting consumer")
    parser.add_argument("--windows", type=int, default=1, help="ten-second windows of an idle consumer")
    parser.add_argument("--scrapes", type=int, default=30, help="scrapes of 200 queues")
    parser.add_argument("--page-messages", type=int, default=1_000_000, help="messages in the 200 queues of a page")
    parser.add_argument("--page-requests", type=int, default=20, help="requests for each of the page's answers")
    parser.add_argument("--past-runs", type=int, default=1_500, help="runs that a gate has requested before")
    parser.add_argument("--ticks", type=int, default=15, help="evaluations of each sensor")
    parser.add_argument("--gate-messages", type=int, default=5, help="messages for which a gate of Dagster opens")
    parser.add_argument("--part-seconds", type=float, default=600, help="after which a part is ended as failed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "report.json")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.count, options.memory, options.sizes = 1, 1_000, [2_000], [1_000, 2_000]
        options.flights, options.spark_rounds, options.still = 20_000, 1, 0.1
        options.in_flight, options.expired, options.held, options.limit_rounds = [100, 200], 2_000, 200, 1
        options.wakes, options.windows, options.scrapes = 3, 1, 3
        options.page_messages, options.page_requests = 40_000, 3
        options.drains, options.leases, options.handler_seconds = [1_000, 5_000], [10, 100], 1.2
        options.million, options.drain_rounds, options.idle, options.micro_batches = 20_000, 1, 0.5, 2
        options.written, options.past_runs, options.ticks, options.gate_messages = 5_000, 100, 3, 1
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the process of the part ends, too
    sys.exit(main(sys.argv[1:]))
