"""The seeded faults, as the TOML files of this folder list them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: a text of one file, what stands in its place, and the tests that must notice.

    Args:
        name: the rule that the fault breaks, in words.
        file: path from the root of the project.
        old: text that occurs once in the file.
        new: what replaces it.
        tests: paths or node ids for pytest, run with the selection of `make test`.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """Return the source with the fault."""
        return source.replace(self.old, self.new)


def read_all() -> list[Mutant]:
    """Return all faults, file by file in the order in which they are listed."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for file in tomllib.loads(path.read_text(encoding="utf-8"))["file"]:
            for fault in file["fault"]:
                tests = tuple(fault.get("tests", file["tests"]))
                found.append(Mutant(fault["name"], file["path"], fault["old"], fault["new"], tests))
    return found


def problems(mutants: Iterable[Mutant]) -> list[str]:
    """Return what keeps faults from being applied; empty when each fits the source."""
    mutants = list(mutants)
    wrong = [
        f"{name!r} is the name of {count} faults"
        for name, count in Counter(m.name for m in mutants).items()
        if count > 1
    ]
    for mutant in mutants:
        path = ROOT / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.is_file() else -1
        if count < 0:
            wrong.append(f"{mutant.file} does not exist; the fault {mutant.name!r} changes it")
        elif count != 1:
            wrong.append(f"{mutant.file} holds the text of {mutant.name!r} {count} times, not once; adapt it")
        if mutant.old == mutant.new:
            wrong.append(f"{mutant.file}: {mutant.name!r} changes nothing")
        missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
        wrong += [f"{mutant.file}: {mutant.name!r} names {test}, which does not exist" for test in missing]
        if not mutant.tests:
            wrong.append(f"{mutant.file}: {mutant.name!r} names no tests")
    return wrong
