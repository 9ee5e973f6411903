"""Compare the speed of two commits on this machine: each row in turn on both, old new new old, several rounds.

Each side is a process of its own with its own server of the same program; only what `src` holds differs. A ratio of 1
means as fast, more means that the new one is faster. Wall time is noisy on a shared machine: the processor time of the
client and of Redis tell whether a low ratio is the code's.

Exits 0 whatever it finds, with `--strict` 1 when a row misses the bar.

Usage: python -m benchmarks.compare OLD [NEW] [--rounds N] [--scale X] [--only TEXT ...] [--strict]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.compare_rows import FLAVOURS, ROWS
from benchmarks.measure import median
from benchmarks.part import write
from tests.support.servers import RedisServer, programs

__all__ = ["BAR", "main"]

ROOT = Path(__file__).resolve().parents[1]
BAR = 0.95  # of the median ratio of each row
_TIMES = ("wall", "client CPU", "Redis CPU")
Sample = dict[str, float]


class Side:
    """One commit's process and server."""

    def __init__(self, source: Path, scale: float, stack: ExitStack) -> None:
        server = RedisServer(programs()[0]).start()
        stack.callback(server.remove)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.compare_rows", server.url, str(scale)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(source)},
        )
        stack.callback(self._end)
        found = Path(self._answer())
        assert found.is_relative_to(source), f"{found} was imported, not {source}"

    def ask(self, row: str) -> Sample:
        assert self._process.stdin is not None
        print(row, file=self._process.stdin, flush=True)
        sample: Sample = self._answer()
        return sample

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "one side ended; what it said stands above"
        return json.loads(line)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


def main(arguments: Sequence[str]) -> int:
    """Compare, print and write the report."""
    options = _parse(arguments)
    console = Console()
    wanted = [f"{flavour}: {row}" for row in ROWS for flavour in FLAVOURS]
    rows = [row for row in wanted if not options.only or any(text in row for text in options.only)]
    samples: dict[str, list[tuple[Sample, Sample]]] = {row: [] for row in rows}
    with ExitStack() as stack:
        old, new = (Side(_source(commit), options.scale, stack) for commit in (options.old, options.new))
        for number in range(options.rounds + 1):
            console.print(f"round {number} of {options.rounds} …" if number else "warming up …")
            for row in rows:
                first, second = (old, new) if number % 2 else (new, old)
                taken = [first.ask(row), second.ask(row), second.ask(row), first.ask(row)]
                outer, inner = _sum(taken[0], taken[3]), _sum(taken[1], taken[2])
                if number:
                    samples[row].append((outer, inner) if first is old else (inner, outer))
    figures = {row: _figures(pairs) for row, pairs in samples.items()}
    report = {
        "settings": vars(options) | {"output": str(options.output), "cpus": os.cpu_count()},
        "bar": BAR,
        "rows": figures,
        "ok": all(row["wall ratio"] >= BAR for row in figures.values()),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write(options.output, report)
    _print(console, options, figures)
    console.print(f"report: {os.path.relpath(options.output)}")
    return int(options.strict and not report["ok"])


def _source(commit: str | None) -> Path:
    """Return the `src` folder of a commit, unpacked under build; of the working tree without one."""
    if commit is None:
        return ROOT / "src"
    git = ["git", "-C", str(ROOT)]
    sha = subprocess.run(
        [*git, "rev-parse", "--verify", f"{commit}^{{commit}}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = ROOT / "build" / "compare" / sha
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        packed = subprocess.run([*git, "archive", sha, "src"], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(folder)
    return folder / "src"


def _sum(one: Sample, other: Sample) -> Sample:
    return {name: one[name] + other[name] for name in one}


def _figures(pairs: list[tuple[Sample, Sample]]) -> dict[str, float]:
    """Medians over the rounds: how many times as fast the new side is, and what one message or call took."""
    found: dict[str, float] = {}
    for name in _TIMES:
        ratios = sorted(old[name] / (new[name] or 1e-6) for old, new in pairs)
        found |= {f"{name} ratio": median(ratios), f"{name} lowest": ratios[0], f"{name} highest": ratios[-1]}
        for side, at in (("old", 0), ("new", 1)):
            found[f"{name} µs, {side}"] = median(1e6 * pair[at][name] / pair[at]["count"] for pair in pairs)
    return found


def _print(console: Console, options: argparse.Namespace, figures: dict[str, dict[str, float]]) -> None:
    title = f"{options.new or 'the working tree'} / {options.old}: speed ratio, medians of {options.rounds} rounds"
    table = Table("", *_TIMES, "µs old", "µs new", title=title)
    for row, found in figures.items():
        ratios = [f"{found[f'{name} ratio']:.2f}" for name in _TIMES]
        ratios[0] += f" ({found['wall lowest']:.2f} to {found['wall highest']:.2f})"
        if found["wall ratio"] < BAR:
            ratios[0] = f"[bold red]{ratios[0]}[/]"
        table.add_row(row, *ratios, *(f"{found[f'wall µs, {side}']:,.1f}" for side in ("old", "new")))
    console.print(table)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-compare", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", help="another; the working tree without one")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of old, new, new, old; after one to warm up")
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages and calls of each measurement")
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name holds one of these texts")
    parser.add_argument("--strict", action="store_true", help=f"exit 1 when a median ratio is below {BAR}")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "compare.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
