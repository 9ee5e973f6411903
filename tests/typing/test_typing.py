"""What a checker of types says to those who use the public names: right uses pass, wrong ones are errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USES = Path(__file__).with_name("uses.py")


def test_mypy_accepts_right_uses_and_refuses_wrong_ones() -> None:
    marks = [re.search(r"# error: ([a-z-]+)$", line) for line in USES.read_text().splitlines()]
    expected = {number: {mark[1]} for number, mark in enumerate(marks, 1) if mark is not None}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--show-error-codes", USES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[int, set[str]] = {}
    for number, code in re.findall(r"uses\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE):
        found.setdefault(int(number), set()).add(code)
    assert done.stderr == ""
    assert found == expected, done.stdout
    assert len(expected) > 20
