"""Measure what the project promises about speed and size, and write build/bench/report.json.

A benchmark, not a test: it exits 0 whatever it finds, unless it could not measure; with `--strict` 1 when a bar is
missed.

Usage: python -m tests.benchmarks.run [--quick] [--rounds N] [--count N] [--only PART ...] [--strict] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.benchmarks import flavours, footprint, limits, steadiness, waiting
from tests.benchmarks.report import print_bars, print_figures

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
Report = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Run the parts asked for, print them and write the report."""
    options = _parse(arguments)
    console = Console()
    report: Report = {"settings": vars(options) | {"cpus": os.cpu_count()}, "bars": [], "figures": {}, "seconds": {}}
    for name, part in _PARTS.items():
        if name in options.only:
            console.print(f"measuring {name} …")
            start = time.monotonic()
            part(options, report)
            report["seconds"][name] = round(time.monotonic() - start, 1)
    report["ok"] = all(bar["ok"] for bar in report["bars"])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    report["settings"]["output"] = str(options.output)
    options.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    for title, figures in report["figures"].items():
        print_figures(console, title, figures)
    print_bars(console, report["bars"])
    console.print(f"report: {os.path.relpath(options.output)}")
    return 0 if report["ok"] or not options.strict else 1


def _rates(mode: str) -> Callable[[argparse.Namespace, Report], None]:
    def measure(options: argparse.Namespace, report: Report) -> None:
        found = _in_process("tests.benchmarks.worker", mode, options.rounds, options.count)
        report["bars"] += found["bars"]
        for place, figures in found["rates"].items():
            report["figures"][f"Rates, {mode}, {place}, batches of 1,000 but for single"] = figures
        report["figures"][f"Cost per message, {mode}"] = found["anatomy"]
        report.setdefault("versions", {})[mode] = found["versions"]

    return measure


def _memory(options: argparse.Namespace, report: Report) -> None:
    sizes = {
        f"{count:,} with keys of {key_bytes}": footprint.run(count, key_bytes, still_seconds=options.still)
        for count in options.memory
        for key_bytes in options.keys
    }
    report["figures"]["Memory"] = sizes
    report["bars"] += [bar.to_dict() for bar in footprint.bars(list(sizes.values()))]


def _steadiness(options: argparse.Namespace, report: Report) -> None:
    figures = steadiness.run(tuple(options.sizes), rounds=options.rounds)
    report["figures"]["Depth and heartbeat"] = figures
    report["bars"] += [bar.to_dict() for bar in steadiness.bars(figures)]


def _limits(options: argparse.Namespace, report: Report) -> None:
    figures = limits.run(
        flights=tuple(options.in_flight),
        expired=options.expired,
        held=options.held,
        still_seconds=options.still,
        rounds=options.limit_rounds,
    )
    report["figures"] |= figures
    report["bars"] += [bar.to_dict() for bar in limits.bars(figures)]


def _waiting(options: argparse.Namespace, report: Report) -> None:
    figures = waiting.run(wakes=options.wakes, windows=options.windows)
    report["figures"]["Waiting"] = figures
    report["bars"] += [bar.to_dict() for bar in waiting.bars(figures)]


def _flavours(options: argparse.Namespace, report: Report) -> None:
    report["figures"]["asyncio beside sync, one connection each"] = flavours.run(
        rounds=options.rounds, count=options.count
    )


def _spark(options: argparse.Namespace, report: Report) -> None:
    settings = {
        "drain": {"rounds": options.spark_rounds, "limit": options.flights or None},
        "load": {
            "sizes": options.drains,
            "lease_sizes": options.leases,
            "held_seconds": options.handler_seconds,
            "rounds": options.drain_rounds,
        },
        "stream": {"idle_seconds": options.idle, "batches": options.micro_batches},
        "writer": {"count": options.written, "rounds": options.drain_rounds},
        "million": {"count": options.million, "rounds": options.drain_rounds},
    }
    found = _in_process("tests.benchmarks.spark_run", json.dumps(settings))
    report["bars"] += found["bars"]
    report["figures"] |= found["figures"]
    columns = _in_process("tests.benchmarks.spark_columns", options.rounds)
    report["bars"] += columns["bars"]
    report["figures"]["JSON into typed columns"] = columns["figures"]


def _columns(options: argparse.Namespace, report: Report) -> None:
    found = _in_process("tests.benchmarks.spark_columns", options.rounds)
    report["bars"] += found["bars"]
    report["figures"]["JSON payloads into typed columns"] = found["figures"]


_PARTS: dict[str, Callable[[argparse.Namespace, Report], None]] = {
    "fast": _rates("fast"),
    "plain": _rates("plain"),
    "memory": _memory,
    "steadiness": _steadiness,
    "asyncio": _flavours,
    "limits": _limits,
    "waiting": _waiting,
    "columns": _columns,
    "spark": _spark,
}


def _in_process(module: str, *arguments: object) -> Any:
    """What a module writes into its last argument, run by a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "result.json")
        command = [sys.executable, "-m", module, *map(str, arguments), str(output)]
        subprocess.run(command, cwd=ROOT, check=True)
        return json.loads(output.read_text())


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds, after one to warm up")
    parser.add_argument("--count", type=int, default=20_000, help="messages per round")
    parser.add_argument("--memory", type=int, nargs="+", default=[100_000, 140_000], help="messages in memory")
    parser.add_argument("--sizes", type=int, nargs=2, default=[1_000, 1_000_000], help="small and large queue")
    parser.add_argument("--flights", type=int, default=0, help="flights to drain with Spark, 0 for all")
    parser.add_argument("--spark-rounds", type=int, default=5, help="interleaved rounds of the Spark drain")
    parser.add_argument("--drains", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="sizes of drains")
    parser.add_argument("--leases", type=int, nargs=2, default=[100, 10_000], help="sizes of leases that Spark drains")
    parser.add_argument("--handler-seconds", type=float, default=2.5, help="a slow handler's work on each of them")
    parser.add_argument("--written", type=int, default=200_000, help="rows of a DataFrame to publish")
    parser.add_argument("--idle", type=float, default=5, help="seconds of an idle streaming query")
    parser.add_argument("--micro-batches", type=int, default=20, help="micro-batches of one message")
    parser.add_argument("--million", type=int, default=1_000_000, help="messages from publish to Parquet")
    parser.add_argument("--drain-rounds", type=int, default=3, help="rounds of those")
    parser.add_argument("--keys", type=int, nargs="+", default=[24, 12], help="bytes of deduplication keys in memory")
    parser.add_argument("--still", type=float, default=2, help="seconds that memory must stand still to be read")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="to settle among")
    parser.add_argument("--expired", type=int, default=50_000, help="messages to reap")
    parser.add_argument("--held", type=int, default=10_000, help="messages in leases of their own")
    parser.add_argument("--limit-rounds", type=int, default=3, help="rounds of settling and of reaping")
    parser.add_argument("--wakes", type=int, default=60, help="wake-ups of a waiting consumer")
    parser.add_argument("--windows", type=int, default=2, help="ten-second windows of an idle consumer")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", nargs="+", choices=list(_PARTS), default=list(_PARTS), help="parts to run")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "report.json")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.count, options.memory, options.sizes = 1, 1_000, [2_000], [1_000, 2_000]
        options.flights, options.spark_rounds, options.still = 20_000, 1, 0.1
        options.in_flight, options.expired, options.held, options.limit_rounds = [100, 200], 2_000, 200, 1
        options.wakes, options.windows = 3, 1
        options.drains, options.leases, options.handler_seconds = [1_000, 5_000], [10, 100], 1.2
        options.million, options.drain_rounds, options.idle, options.micro_batches = 20_000, 1, 0.5, 2
        options.written = 5_000
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
