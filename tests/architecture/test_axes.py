"""What `make test` leaves out: combinations, never a behaviour."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.project import ROOT

# Longer than its test: the whole suite is collected twice.
SECONDS = 600
MARKED = re.compile(r"^@pytest\.mark\.full(?:  #.*)?\n(?:[@ )\]].*\n)*def (test_\w+)", re.MULTILINE)


def functions(*arguments: str) -> set[str]:
    """Return the test functions that pytest selects, as `file::name`."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *arguments, "tests"]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.partition("[")[0] for line in reported.splitlines() if line.startswith("tests/")}


def marked_full() -> set[str]:
    """Return those whose own source says that they run with `make test-all` only."""
    found = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        source, name = file.read_text(), str(file.relative_to(ROOT))
        found |= {f"{name}::{test}" for test in MARKED.findall(source)}
        if re.search(r"^pytestmark = .*\bfull\b", source, re.MULTILINE):
            found |= {f"{name}::{test}" for test in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    return found


@pytest.mark.full
@pytest.mark.timeout(2 * SECONDS)
def test_every_test_has_a_case_that_make_test_runs_or_is_marked_itself() -> None:
    everything, usual = functions("-m", "full or not full"), functions()

    assert len(usual) > 1000
    assert usual < everything
    assert everything - usual == marked_full()
