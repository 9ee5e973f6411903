"""Show that the quick tests notice faults: apply each seeded fault to a copy of the project and run its tests.

Usage: python -m tests.mutants.run [--only TEXT] [--workers N] [--list]

Each fault stands in a TOML file of this folder: the file to change, the text to replace, what replaces it, and the test
files of `make test` that must fail. The run fails when a fault survives, when the tests fail without a fault, or when
a fault no longer fits the source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from tests.mutants.catalog import ROOT, Mutant, problems, read_all

IMPORTED = ("src", "airflow_plugin", "dagster_integration")
TEST_SECONDS = 60
PROCESS_SECONDS = 420


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said about one fault."""

    mutant: Mutant
    verdict: str  # "caught", "SURVIVED" or "BROKEN"
    failed_test: str
    seconds: float
    output: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen faults; 0 when each is caught."""
    parser = argparse.ArgumentParser(prog="mutants", description="Show that the quick tests catch seeded faults.")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose name or file holds this text")
    parser.add_argument("--workers", type=int, default=2, help="copies that are tested side by side (default: 2)")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    mutants = [m for m in read_all() if options.only in m.name or options.only in m.file]
    if wrong := problems(mutants):
        console.print("\n".join(wrong), markup=False)
        return 2
    if options.list:
        for mutant in mutants:
            console.print(f"{mutant.file}: {mutant.name}", markup=False)
        return 0
    if not mutants:
        console.print(f"no fault holds {options.only!r}", markup=False)
        return 2
    with _copies(options.workers) as copies:
        if not _sound(console, copies, mutants):
            return 2
        outcomes = _try_all(console, copies, mutants)
    _report(console, outcomes)
    return int(any(outcome.verdict != "caught" for outcome in outcomes))


def _sound(console: Console, copies: SimpleQueue[Path], mutants: Sequence[Mutant]) -> bool:
    """Return whether the tests pass without a fault: only then does a failure mean that a fault was caught."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    console.print(f"{len(mutants)} faults; first their {len(tests)} test selections without a fault …")
    copy = copies.get()
    begun = time.monotonic()
    code, output = _run_tests(copy, tests, stop_at_first=False)
    copies.put(copy)
    console.print(f"they take {time.monotonic() - begun:.0f} s and {'pass' if code == 0 else 'FAIL'}")
    if code != 0:
        console.print(output[-4000:], markup=False)
    return code == 0


def _try_all(console: Console, copies: SimpleQueue[Path], mutants: Sequence[Mutant]) -> list[Outcome]:
    def attempt(mutant: Mutant) -> Outcome:
        copy = copies.get()
        try:
            return _try(copy, mutant)
        finally:
            copies.put(copy)

    outcomes = []
    with ThreadPoolExecutor(copies.qsize()) as pool:
        for number, outcome in enumerate(pool.map(attempt, mutants), 1):
            where = f" by {outcome.failed_test}" if outcome.failed_test else ""
            console.print(
                f"{number:3}/{len(mutants)} {outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.mutant.name}{where}",
                markup=False,
                soft_wrap=True,
            )
            outcomes.append(outcome)
    return outcomes


def _try(copy: Path, mutant: Mutant) -> Outcome:
    """Apply one fault, run its tests, take it back."""
    path = copy / mutant.file
    sound = path.read_text(encoding="utf-8")
    begun = time.monotonic()
    path.write_text(mutant.applied_to(sound), encoding="utf-8")
    try:
        code, output = _run_tests(copy, mutant.tests, stop_at_first=True)
    finally:
        path.write_text(sound, encoding="utf-8")
    verdict = {0: "SURVIVED", 1: "caught"}.get(code, "BROKEN")  # other codes: the tests could not be run
    failed = next((line.split()[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))), "")
    return Outcome(mutant, verdict, failed, time.monotonic() - begun, output)


def _run_tests(copy: Path, tests: Sequence[str], *, stop_at_first: bool) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", "--durations-min=9999"]
    command += ["--no-header", f"--timeout={TEST_SECONDS}", *(["-x"] if stop_at_first else []), *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(copy / folder) for folder in IMPORTED),
        "PYTHONDONTWRITEBYTECODE": "1",  # a fault and its repair may fall into one second, and have one length
    }
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PROCESS_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 1, f"{output}\nFAILED (no end within {PROCESS_SECONDS} s)"
    return process.returncode, output


@contextmanager
def _copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the project as it stands in the working tree, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(count):
            copy = Path(folder) / str(number)
            for name in filter(None, listed.split("\0")):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
            copies.put(copy)
        yield copies


def _report(console: Console, outcomes: Sequence[Outcome]) -> None:
    table = Table(title="Seeded faults", title_justify="left")
    for column in ("file", "faults", "caught", "survived", "broken"):
        table.add_column(column, justify="left" if column == "file" else "right")
    for file in sorted({outcome.mutant.file for outcome in outcomes}):
        verdicts = [outcome.verdict for outcome in outcomes if outcome.mutant.file == file]
        table.add_row(file, str(len(verdicts)), *(_number(verdicts, name) for name in ("caught", "SURVIVED", "BROKEN")))
    caught = sum(outcome.verdict == "caught" for outcome in outcomes)
    console.print(table)
    console.print(f"{caught} of {len(outcomes)} faults caught")
    for outcome in outcomes:
        if outcome.verdict != "caught":
            console.print(f"{outcome.verdict}: {outcome.mutant.file}: {outcome.mutant.name}", markup=False)
            console.print(outcome.output[-1500:] if outcome.verdict == "BROKEN" else "", markup=False)


def _number(verdicts: Sequence[str], name: str) -> str:
    return str(verdicts.count(name) or "")


if __name__ == "__main__":
    sys.exit(main())
