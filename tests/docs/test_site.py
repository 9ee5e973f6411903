"""The documentation's site has every page, every public name and every diagram, and loads nothing from elsewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from mkdocs.config import load_config
from mkdocs.structure.files import get_files

from scripts import check_site, docs_site, draw
from tests.support.project import ROOT

DOCS = ROOT / "docs"
REFERENCE = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
DIRECTIVES = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)
# Types, which have no docstring of their own to show.
ALIASES = {"Json", "Payload"}


def navigation(part: Any) -> list[str]:
    """Return the pages of a part of the navigation."""
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in navigation(each)]


def test_every_page_has_its_place_in_the_navigation() -> None:
    nav = navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(nav) == sorted([*pages, *docs_site.KEPT_ELSEWHERE.values()])


@pytest.mark.parametrize(
    "module",
    [
        "sluicegate",
        "sluicegate.doctor",
        "sluicegate.health",
        "sluicegate.jobs",
        "sluicegate.metrics",
        "sluicegate.migrating",
        "sluicegate.spark",
        "sluicegate.streams",
        "sluicegate.tracing",
        "sluicegate.web",
        "sluicegate.worker",
        "airflow_provider_sluicegate.operators.publish",
        "airflow_provider_sluicegate.sensors.redis_queue",
        "dagster_sluicegate",
    ],
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    shown = {name.rpartition(".")[2] for name in DIRECTIVES}
    inside = {name for each in DIRECTIVES for name in members(each)}
    public = set(members(module)) - ALIASES
    assert public
    assert {name for name in public if not name.startswith("__")} - shown - inside == set()


@cache
def members(dotted: str) -> list[str]:
    """Return the public names of a module without importing it; none for a class or function."""
    for room in ("src", "airflow_plugin", "dagster_integration"):
        path = ROOT / room / Path(*dotted.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            for node in ast.parse(file.read_text()).body if file.is_file() else ():
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                    return list(ast.literal_eval(node.value))
    return []


def test_every_diagram_has_a_picture_of_its_present_source() -> None:
    diagrams = draw.diagrams()
    assert diagrams
    for picture, source in diagrams.items():
        assert picture.read_text().endswith(draw.mark(source)), f"{picture} is out of date; run `make diagrams`"


def rewritten(page: str, markdown: str) -> str:
    """Return a page's text as the site shows it."""
    config = load_config(str(ROOT / "mkdocs.yml"), strict=False)
    config.plugins._current_plugin = "hooks"  # as while mkdocs calls a hook
    files = docs_site.on_files(get_files(config), config)
    file = files.get_file_from_path(page)
    assert file is not None
    return docs_site.on_page_markdown(markdown, page=SimpleNamespace(file=file), config=config, files=files)


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        ("index.md", "docs/airflow.md#publish", "airflow.md#publish"),
        ("index.md", "CHANGELOG.md", "changelog.md"),
        ("airflow.md", "tutorials/airflow.md", "tutorials/airflow.md"),
        ("tutorials/airflow.md", "../airflow.md#drain", "../airflow.md#drain"),
        ("upgrading.md", "../CHANGELOG.md", "changelog.md"),
        ("how-to/redrive.md", "../../SECURITY.md", "../security.md"),
        ("guarantees.md", "../tests/conftest.py", "https://github.com/sluicegate/sluicegate/blob/main/tests/conftest.py"),
        ("airflow.md", "../example_dags/airflow", "https://github.com/sluicegate/sluicegate/tree/main/example_dags/airflow"),
        ("airflow.md", "#publish", "#publish"),
        ("airflow.md", "https://redis.io/", "https://redis.io/"),
        ("airflow.md", "nowhere.md", "nowhere.md"),
    ],
)  # fmt: skip
def test_a_link_of_the_repository_leads_to_the_page_or_to_the_platform(page: str, link: str, shown: str) -> None:
    assert rewritten(page, f"see [it]({link}).") == f"see [it]({shown})."


def test_pictures_of_the_readme_are_loaded_from_the_site() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), strict=False)
    config.plugins._current_plugin = "hooks"
    home = docs_site.on_files(get_files(config), config).get_file_from_path("index.md")
    assert home is not None
    shown = rewritten("index.md", home.content_string)
    assert "](images/page-queue-dark.png)" in shown
    assert "raw.githubusercontent.com" not in shown


def test_links_inside_code_stay_and_diagrams_become_pictures() -> None:
    code = "```text\n[it](../tests/conftest.py)\n```\n"
    assert rewritten("airflow.md", code) == code
    shown = rewritten("state-machine.md", "above\n\n```mermaid\nstateDiagram-v2\n```\n\nbelow")
    assert shown == "above\n\n![state-machine as a diagram](images/state-machine.svg)\n\nbelow"


BASE = "https://sluicegate.github.io/sluicegate/"


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="other/#here">', None),
        ('<a href="other/#there">', "index.html links to other/#there, and that page has no such anchor"),
        ('<a href="missing/">', "index.html links to missing/, which is not there"),
        ('<a href="https://redis.io/">', None),
        ('<img src="a.svg">', None),
        ('<img src="b.svg">', "index.html loads b.svg, which is not there"),
        ('<script src="https://example.com/x.js">', "index.html loads https://example.com/x.js from another server"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "loads //fonts.example/x.css from another server"),
        ('<link rel="canonical" href="https://example.com/">', None),
    ],
)
def test_the_check_of_the_site_finds_what_leads_nowhere(tmp_path: Path, html: str, problem: str | None) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="here">')
    (tmp_path / "a.svg").touch()
    (tmp_path / "index.html").write_text(html)
    found = check_site.problems(tmp_path, BASE)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


@pytest.mark.full
def test_the_site_is_built_without_a_warning_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert check_site.problems(tmp_path, BASE) == []
    text = (tmp_path / "troubleshooting" / "index.html").read_text()
    assert 'id="leaselosterror"' in text
    queue = (tmp_path / "reference" / "queue" / "index.html").read_text()
    assert "publish_many" in queue
    assert (tmp_path / "search" / "search_index.json").exists()
