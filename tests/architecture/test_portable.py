"""Nothing in the project knows the machine that it was written on, or where packages come from."""

from __future__ import annotations

import re

from tests.support.project import ROOT, files

MACHINE_PATH = re.compile(rb"(?<![\w.}])/(?:work|root|home/\w+|Users/\w+)/")
REGISTRY = re.compile(rb"\b(?:pypi|files\.pythonhosted|registry\.npmjs|deb\.debian|repo1?\.maven)\.(?:org|com)\b")


def lines_with(pattern: re.Pattern[bytes]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRY) == []


def test_the_search_sees_what_it_looks_for() -> None:
    folder = b"/".join([b"", b"root", b"x"])

    assert MACHINE_PATH.search(b"see " + folder)
    assert REGISTRY.search(b"from " + b".".join([b"pypi", b"org"]))
    assert len(files()) > 30
