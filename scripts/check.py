"""Run the checks of `make check` side by side and print what failed.

Usage: check.py [NAME ...]     all checks, or those named
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS: dict[str, list[str]] = {
    "types": [str(BIN / "mypy")],
    "layers": [str(BIN / "lint-imports"), "--no-logo"],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "lua": [sys.executable, "scripts/check_lua.py"],
    "sync": [sys.executable, "scripts/sync.py", "--check"],
    "options": [sys.executable, "scripts/options.py", "--check"],
    "docs": [sys.executable, "scripts/snippets.py", "--check"],
    "docker": [sys.executable, "scripts/check_docker.py"],
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one check ended."""

    name: str
    passed: bool
    seconds: float
    output: str


def run(name: str) -> Outcome:
    """Run one check and keep what it prints."""
    start = time.monotonic()
    done = subprocess.run(
        CHECKS[name], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return Outcome(name, done.returncode == 0, time.monotonic() - start, done.stdout)


def main(names: Sequence[str]) -> int:
    """Run the named checks, or all; 0 when every one passed."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no check is named {', '.join(unknown)}; there are {', '.join(CHECKS)}")
        return 2
    start = time.monotonic()
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(run, names or CHECKS):
            print(f"{'ok    ' if outcome.passed else 'FAILED'}  {outcome.name:8} {outcome.seconds:5.1f} s", flush=True)
            if not outcome.passed:
                failed.append(outcome.name)
                print(outcome.output.rstrip(), end="\n\n", flush=True)
    print(f"{'failed: ' + ', '.join(failed) if failed else 'all passed'} in {time.monotonic() - start:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
