"""Measure this library beside redis-message-queue, on one server in one run, and write build/bench/peers.json.

Rounds alternate between the libraries; what is reported are medians of rounds. Without Python 3.12 or a package index,
the rows of the others read "not measured", with the reason. Exits 0 whatever it finds; 2 when a library failed; with
`--strict` 1 when a bar is missed.

Usage: python -m benchmarks.peers.run [--quick] [--rounds N] [--count N] [--strict] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import median
from benchmarks.peers.environments import PEERS, ROOT, environment, interpreter
from benchmarks.report import Bar, last_line, print_bars
from benchmarks.run import NOT_MEASURED
from tests.support.servers import RedisServer, programs

__all__ = ["main"]

OURS = "sluicegate"
NO_PYTHON = "not measured: needs Python 3.12"
_FAILED = "failed: "  # and then the error
_WORKLOAD = Path(__file__).with_name("workload.py")
_SMALL_BYTES, _LARGE_BYTES = 1_000, 1_000_000
_IN_FLIGHT = 1_000
_BATCHES = 20_000

Figures = dict[str, float]


class Library:
    """One library's process, and what it answered in every round."""

    def __init__(self, label: str, python: Path, module: str, url: str) -> None:
        self.label = label
        self.rounds: list[Figures] = []
        self.wakes: list[float] = []
        self._process = subprocess.Popen(
            [python, _WORKLOAD, module, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.versions: dict[str, str] = self.ask("versions", 0)

    def ask(self, name: str, count: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, count, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{self.label} ended during {name}"
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def run(self, options: argparse.Namespace) -> None:
        """Measure one round of every library."""
        figures = dict(self.ask("singles", options.count))
        if self.label == OURS:
            loop, batches = self.ask("loop", options.count), self.ask("batches", options.batches)
            figures.update({f"{name}, loop": value for name, value in loop.items()})
            figures.update({f"{name}, batches of 1,000": value for name, value in batches.items()})
        figures.update(self.ask("in flight", options.in_flight))
        for size in (_SMALL_BYTES, _LARGE_BYTES):
            figures[f"heartbeat bytes, {size:,} B"] = self.ask("heartbeat", size)["bytes"]
        self.rounds.append(figures)
        self.wakes += self.ask("wakes", options.wakes)

    def figures(self) -> Figures:
        """Medians over the rounds; of wake-ups, the median and the 95th percentile of all."""
        found = {name: median(figures[name] for figures in self.rounds) for name in self.rounds[0]}
        ordered = sorted(self.wakes)
        found["idle wake-up p50 ms"] = median(ordered)
        found["idle wake-up p95 ms"] = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return found


def main(arguments: Sequence[str]) -> int:
    """Measure, print and write the report."""
    options = _parse(arguments)
    console = Console()
    report: dict[str, Any] = {"settings": vars(options) | {"cpus": os.cpu_count(), "output": str(options.output)}}
    with ExitStack() as stack:
        libraries, missing = _libraries(stack, console)
        for number in range(options.rounds):
            console.print(f"round {number + 1} of {options.rounds} …")
            for library in libraries if number % 2 else libraries[::-1]:
                if library.label not in missing:
                    _round(library, options, missing)
        measured = [library for library in libraries if library.label not in missing]
        report["figures"] = {library.label: library.figures() for library in measured}
        report["versions"] = {library.label: library.versions for library in libraries}
    failed = [label for label, why in missing.items() if why.startswith(_FAILED)]
    report["not measured"] = missing
    report["bars"] = [bar.to_dict() for bar in bars(report["figures"])] if OURS not in missing else []
    report["ok"] = not failed and all(bar["ok"] for bar in report["bars"])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    _print(console, report["figures"], missing)
    print_bars(console, report["bars"])
    console.print(f"report: {os.path.relpath(options.output)}")
    return NOT_MEASURED if failed else int(options.strict and not report["ok"])


def _round(library: Library, options: argparse.Namespace, missing: dict[str, str]) -> None:
    """Measure one round of a library; one that fails is not measured again, the others are."""
    try:
        library.run(options)
    except Exception as error:
        traceback.print_exception(error)
        missing[library.label] = f"{_FAILED}{type(error).__name__}: {last_line(str(error))}"


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Return what we promise beside each of the others, and what we promise whatever they do."""
    ours = figures[OURS]
    found = [
        _bar("idle wake-up p95", ours["idle wake-up p95 ms"], 10, False, "ms", "one consumer that waits"),
        *(_bar(f"heartbeat, {size:,} B", ours[f"heartbeat bytes, {size:,} B"], 300, False, "bytes", "sent to Redis")
          for size in (_SMALL_BYTES, _LARGE_BYTES)),
    ]  # fmt: skip
    for label, theirs in figures.items():
        if label == OURS:
            continue
        cpu, batched = "Redis CPU µs per claim+ack", "Redis CPU µs per claim+ack, batches of 1,000"
        found += [
            _bar(f"deduplicated publish / {label}", ours["publish/s"] / theirs["publish/s"], 2, True, "x",
                 f"{ours['publish/s']:,.0f} and {theirs['publish/s']:,.0f} per second"),
            _bar(f"claim+ack / {label}", ours["claim+ack/s"] / theirs["claim+ack/s"], 2, True, "x",
                 f"{ours['claim+ack/s']:,.0f} and {theirs['claim+ack/s']:,.0f} per second"),
            _bar(f"claim+ack, our loop / {label}", ours["claim+ack/s, loop"] / theirs["claim+ack/s"], 4, True, "x",
                 f"{ours['claim+ack/s, loop']:,.0f} and {theirs['claim+ack/s']:,.0f} per second"),
            _bar(f"{label} / ours: Redis CPU, loop", theirs[cpu] / ours[f"{cpu}, loop"], 3, True, "x",
                 f"{theirs[cpu]:.0f} and {ours[f'{cpu}, loop']:.0f} µs per claim+ack"),
            _bar(f"{label} / ours: Redis CPU, single", theirs[cpu] / ours[cpu], 2, True, "x",
                 f"{theirs[cpu]:.0f} and {ours[cpu]:.0f} µs per claim+ack"),
            _bar(f"{label} / ours: Redis CPU, batches", theirs[cpu] / ours[batched], 20, True, "x",
                 f"{theirs[cpu]:.0f} and {ours[batched]:.2f} µs per claim+ack, theirs one by one"),
        ]  # fmt: skip
    return found


def _bar(name: str, measured: float, limit: float, at_least: bool, unit: str, detail: str) -> Bar:
    return Bar(name, "fast", measured, limit, at_least, unit, detail)


def _libraries(stack: ExitStack, console: Console) -> tuple[list[Library], dict[str, str]]:
    """Return a process for each library that can run here, and why the others cannot."""
    server = RedisServer(programs()[0], port=_free_port()).start()
    stack.callback(server.remove)
    found = [Library(OURS, Path(sys.executable), OURS, server.url)]
    stack.callback(found[0].close)
    python, missing = interpreter(), {}
    for peer in PEERS:
        if python is None:
            missing[peer.label] = NO_PYTHON
            continue
        console.print(f"preparing {peer.label} …")
        try:
            program = environment(peer, python)
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:]
            missing[peer.label] = f"not measured: could not be installed ({''.join(last)})"
            continue
        found.append(Library(peer.label, program, peer.module, server.url))
        stack.callback(found[-1].close)
    return found, missing


def _print(console: Console, figures: dict[str, Figures], missing: dict[str, str]) -> None:
    """Print a table: one column per library, one row per figure."""
    table = Table("", *figures, *missing, title="Beside other libraries, medians")
    for name in dict.fromkeys(name for found in figures.values() for name in found):
        row = (f"{found[name]:,.2f}" if name in found else "" for found in figures.values())
        table.add_row(name, *row, *missing.values())
    console.print(table)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-peers", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds")
    parser.add_argument("--count", type=int, default=1_000, help="single messages per round")
    parser.add_argument("--wakes", type=int, default=20, help="wake-ups per round")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "peers.json")
    options = parser.parse_args(arguments)
    options.batches, options.in_flight = _BATCHES, _IN_FLIGHT
    if options.quick:
        options.rounds, options.count, options.wakes, options.batches, options.in_flight = 1, 50, 3, 1_000, 50
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
