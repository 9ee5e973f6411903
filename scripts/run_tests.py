"""Run the tests in three processes at a time and print one table of the rooms, which are the folders of `tests`.

While Spark waits for its workers, another room computes. Each process has its own servers, folders and Airflow home.

Usage: python -m scripts.run_tests [--all] [PYTEST ARGUMENT ...]
    --all    with what `make test` leaves out: every server program, flavour and topology, long faults of Spark, and,
             without further arguments, the versions of redis-py, PySpark, Airflow and Dagster
Arguments go to pytest. Paths among them select what runs; where one process can run all of it, it is plain pytest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from scripts.matrix import ROWS

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LOGS = ROOT / "build" / "test"
AT_ONCE = 3
# Rooms that share a process, the longest first; all other rooms are the last.
TOGETHER = (
    ("spark",),
    ("airflow",),
    ("demo", "topologies", "embedded"),
    ("dagster", "docs", "examples"),
    ("faults",),
    ("conformance",),
    ("draining", "jobs", "streams", "testing", "worker"),
    ("cli", "doctor", "health", "metrics", "migrating", "survey", "tracing", "web"),
)
ALL = ("-m", "full or not full")
NOTHING_SELECTED = 5  # pytest's exit code
REPORT = "SLUICEGATE_TEST_REPORT"  # names the file in which `tests.support.room_report` says what happens
SHOWN_EVERY_SECONDS = 60.0


@dataclass
class Tally:
    """What the tests of a room came to."""

    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, seconds: float) -> None:
        self.outcomes[outcome] += 1
        self.seconds += seconds

    def merge(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.seconds += other.seconds

    def __str__(self) -> str:
        others = ", ".join(
            f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()) if outcome != "passed"
        )
        return f"{self.outcomes['passed']:>6} passed  {self.seconds:6.0f} s  {others}".rstrip()


@dataclass
class Run:
    """One process, and what it has reported.

    Attributes:
        name: of the first room in it, or of what else it runs.
        command: what runs it.
    """

    name: str
    command: list[str]
    selected: int = 0
    rooms: dict[str, Tally] = field(default_factory=dict)
    not_run: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    seconds: float = 0.0
    code: int | None = None

    def start(self) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self._report = LOGS / f"{self.name}.jsonl"
        self._report.write_text("")
        self._read = 0
        self._started = time.monotonic()
        # A session of its own: Ctrl-C reaches this program only, which then ends both processes.
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**os.environ, REPORT: str(self._report)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    @property
    def passed(self) -> bool:
        return self.code in (0, NOTHING_SELECTED)

    @property
    def count(self) -> int:
        return sum(tally.outcomes.total() for tally in self.rooms.values())

    @property
    def failed(self) -> int:
        return sum(tally.outcomes["failed"] + tally.outcomes["error"] for tally in self.rooms.values())

    def poll(self) -> bool:
        """Read what was reported since the last call; returns whether the process has ended."""
        code = self.process.poll()
        self.seconds = time.monotonic() - self._started
        with self._report.open("rb") as report:
            report.seek(self._read)
            for line in report:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    self._note(json.loads(line))
        self.code = code
        return code is not None

    def end(self, number: int) -> None:
        """Send a signal to the process and to all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _note(self, event: dict[str, Any]) -> None:
        if "selected" in event:
            self.selected += event["selected"]
        elif "not_run" in event:
            self.not_run.append(event["not_run"])
        else:
            test: str = event["test"]
            room = self.name if self.name in MATRIX else test.removeprefix("tests/").partition("/")[0]
            self.rooms.setdefault(room, Tally()).add(event["outcome"], event["seconds"])
            self.slowest = sorted([*self.slowest, (event["seconds"], test)], reverse=True)[:10]


MATRIX = {row.name for row in ROWS}


class Screen:
    """What a person sees: a line per process that has ended, one that moves on a terminal, and the table."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._moves = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def running(self, running: Sequence[Run], waiting: int) -> None:
        if not self._moves and time.monotonic() - self._shown < SHOWN_EVERY_SECONDS:
            return
        self._shown = time.monotonic()
        parts = [f"{run.name} {run.count}/{run.selected or '…'}{', FAILURES' if run.failed else ''}" for run in running]
        line = f"{self.seconds:4.0f} s  {', '.join(parts)}{f', {waiting} more to start' if waiting else ''}"
        if self._moves:
            self._clear()
        print(line, end="" if self._moves else "\n", flush=True)

    def ended(self, run: Run) -> None:
        """Show that a process has ended, and its output when it failed."""
        self._clear()
        if not run.passed:
            print(run.log.read_text(errors="replace"), flush=True)
        state = "ok" if run.passed else f"FAILED ({run.code})"
        print(f"{self.seconds:4.0f} s  {state}: {', '.join(run.rooms) or run.name}, {run.count} tests", flush=True)

    def table(self, runs: Sequence[Run]) -> None:
        self._clear()
        slowest = sorted((each for run in runs for each in run.slowest), reverse=True)[:10]
        print("\nslowest tests", *(f"  {seconds:6.1f} s  {test}" for seconds, test in slowest), sep="\n")
        print("\nrooms")
        rooms: dict[str, Tally] = {}
        for run in runs:
            for name, tally in run.rooms.items():
                rooms.setdefault(name, Tally()).merge(tally)
        for name, tally in sorted(rooms.items(), key=lambda each: -each[1].seconds):
            print(f"  {name:<14}{tally}")
        print(*(f"\nnot run here: {what}" for what in sorted({what for run in runs for what in run.not_run})), sep="")
        red = [f"{run.name} ({os.path.relpath(run.log)})" for run in runs if not run.passed]
        count = sum(run.count for run in runs)
        verdict = f"FAILED: {', '.join(red)}" if red else "all passed"
        print(f"{verdict}: {count} tests in {self.seconds:.0f} s", flush=True)

    def _clear(self) -> None:
        if self._moves:
            print("\r\x1b[K", end="")


def execute(runs: Sequence[Run], at_once: int = AT_ONCE) -> int:
    """Run the processes; 0 when every one passed and any test ran. A signal ends them all."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    screen, waiting, running, ended = Screen(), list(runs), list[Run](), list[Run]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            for run in [run for run in running if run.poll()]:
                running.remove(run)
                ended.append(run)
                screen.ended(run)
            screen.running(running, len(waiting))
            time.sleep(0.2)
    except KeyboardInterrupt:
        _end(running)
        screen.table([*ended, *running])
        print("interrupted", flush=True)
        return 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    screen.table(ended)
    if all(run.code == NOTHING_SELECTED for run in ended):
        return NOTHING_SELECTED
    return int(not all(run.passed for run in ended))


def _end(running: Sequence[Run]) -> None:
    """End processes as Ctrl-C would, so that they remove what they made; what does not end in time is killed."""
    for number, seconds in ((signal.SIGINT, 30.0), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + seconds
        for run in running:
            run.end(number)
        for run in running:
            with suppress(subprocess.TimeoutExpired):
                run.code = run.process.wait(timeout=max(0.0, deadline - time.monotonic()))


def select(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return what pytest gets for each process, by the name of its first room, the longest process first."""
    paths = [argument for argument in arguments if _room_of(argument)]
    options = [argument for argument in arguments if argument not in paths]
    if not paths or TESTS.name in map(_room_of, paths):
        paths = [f"tests/{folder.name}" for folder in sorted(TESTS.iterdir()) if any(folder.rglob("test_*.py"))]
    groups: dict[tuple[str, ...], list[str]] = {group: [] for group in (*TOGETHER, ())}
    for path in paths:
        groups[next((group for group in TOGETHER if _room_of(path) in group), ())].append(path)
    return {_room_of(group[0]): [*options, *group] for group in groups.values() if group}


def _room_of(argument: str) -> str:
    """Return the room that a path or a test id lies in, `tests` for all of them, nothing for what is no path."""
    path = (ROOT / argument.partition("::")[0]).resolve()
    if argument.startswith("-") or not path.exists() or not path.is_relative_to(TESTS):
        return ""
    return path.relative_to(ROOT).parts[1] if path != TESTS else TESTS.name


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments select."""
    everything = "--all" in arguments
    given = [argument for argument in arguments if argument != "--all"]
    pytest = [sys.executable, "-m", "pytest", *(ALL if everything else ())]
    selected = select(given)
    if len(selected) == 1:
        return subprocess.run([*pytest, *selected.popitem()[1]], cwd=ROOT, check=False).returncode
    # Two processes must not write into one cache.
    quiet = {name: ["-q", "--color=no", "-o", f"cache_dir=.pytest_cache/{name}"] for name in selected}
    runs = [Run(name, [*pytest, *quiet[name], *each]) for name, each in selected.items()]
    if everything and not given:
        matrix = [sys.executable, "-m", "scripts.matrix"]
        runs += [Run(row.name, [*matrix, row.name]) for row in ROWS]
    return execute(runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
