"""The documentation links to existing files and tests, and its programs run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.embedded import stop_server
from tests.support.project import ROOT
from tests.support.snippets import PAGES, blocks

# Blocks that are no file are run elsewhere, where their servers and sessions are.
OTHERS = [file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))]
OTHER_PAGES = [
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")),
    ROOT / "packages" / "README.md",
]
SNIPPETS = [(page, *block) for page in PAGES for block in blocks(page) if block[1] == "python"]


@pytest.mark.parametrize(("page", "name", "language", "code"), SNIPPETS, ids=lambda value: getattr(value, "name", None))
def test_every_python_block_is_a_file_that_is_run_or_named_for_a_test(
    page: Path, name: str | None, language: str, code: str
) -> None:
    assert name is not None, f"a {language} block of {page.name} has no name, so that no test can run it:\n{code}"
    if any(call in text for text in OTHERS for call in (f'snippet("{name}")', f'run("{name}")')):
        compile(code, name, "exec")
    else:
        assert code == (ROOT / name).read_text(), f"{page.name} differs from {name}; run `make format`"


def run(program: str, folder: Path) -> str:
    """Run a program of the documentation, with its server in `build/<name>`, and return its output."""
    script = ROOT / program
    try:
        done = subprocess.run(
            [sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=60, check=True
        )
    finally:
        stop_server(folder / "build" / script.stem)
    return done.stdout


def test_quickstart_runs_and_says_what_it_did(tmp_path: Path) -> None:
    printed = run("example_dags/quickstart.py", tmp_path)
    assert "published 900, refused 100 duplicates" in printed
    assert "leased and acked 900 orders" in printed


def test_the_asyncio_example_buries_what_fails_and_redrives_it(tmp_path: Path) -> None:
    printed = run("examples/asyncio/redrive.py", tmp_path).splitlines()
    assert [line for line in printed if not line.startswith(" ")] == [
        "buried: no tea in stock",
        "shipped ink",
        "shipped tea",
    ]
    assert [line.strip() for line in printed if "publish" not in line and line.startswith(" ")] == [
        "claim success 1",
        "bury success 1",
        "promote success 1",
        "claim success 1",
        "ack success 1",
        "redrive success 1",
        "claim success 1",
        "ack success 1",
    ]


def test_the_batch_example_waits_for_all_of_its_messages(tmp_path: Path) -> None:
    assert run("examples/batch.py", tmp_path).splitlines() == [
        "1499 of 1500 done, 1 dead, complete: True",
        "complete after a redrive: False",
        "1500 done, complete: True",
    ]


PICTURES = "https://raw.githubusercontent.com/sluicegate/sluicegate/main/"
REPOSITORY = re.compile(r"https://github\.com/sluicegate/sluicegate/(blob|tree)/main/")


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if target.startswith(PICTURES):
            assert (ROOT / target.removeprefix(PICTURES)).is_file(), f"{page.name} shows {target}"
        elif found := REPOSITORY.match(target):
            path = ROOT / target.removeprefix(found[0])
            assert path.is_dir() if found[1] == "tree" else path.is_file(), f"{page.name} links to {target}"
        elif not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_readme_is_short_and_begins_with_the_picture_and_the_installation() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 150
    assert [language for _, language, _ in blocks(ROOT / "README.md")] == ["text", "bash", "python"]
    picture, install = (code for _, _, code in blocks(ROOT / "README.md")[:2])
    assert max(map(len, picture.splitlines())) <= 88
    assert "pip install" in install
    rows = re.findall(r"^\| (\w+) \|.*\]\(.*\]\(.*\]\(.*$", readme, re.MULTILINE)
    assert {"Airflow", "Dagster", "Spark"} <= set(rows)


def test_guarantees_name_tests_that_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"\[`(\w+)`\]\((\.\./tests/[\w/]+\.py)\)", text)
    assert len(named) >= 20
    for test, file in named:
        source = (ROOT / "docs" / file).resolve().read_text()
        assert f"def {test}(" in source, f"{file} has no test {test}"
