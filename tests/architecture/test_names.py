"""Every path and every dotted name that the documentation mentions exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import get_args

import pytest

from sluicegate.core.ledger import Verb
from sluicegate.tracing import attributes
from tests.support.project import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TOP = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
# Made by programs of the documentation when they run.
MADE = {"build"}
PATH = re.compile(rf"(?<![\w./:-])(?:{'|'.join(name for name in TOP if name not in MADE)})/[\w./-]*\w")
CODE = re.compile(r"`([^`\n]+)`")
SPAN_ATTRIBUTES = {
    *(value for value in vars(attributes).values() if isinstance(value, str)),
    *(f"sluicegate.{verb}" for verb in get_args(Verb)),
}
DOTTED = re.compile(r"(?<![/\w.])(?:sluicegate|airflow_provider_sluicegate|dagster_sluicegate)(?:\.\w+)+")


def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if found:
            value = importlib.import_module(name) if parts[length:] else None
            for attribute in parts[length:]:
                if not hasattr(value, attribute):
                    return False
                value = getattr(value, attribute)
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    named = {path.rstrip("/") for code in CODE.findall(page.read_text()) for path in PATH.findall(code)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_dotted_names_exist(page: Path) -> None:
    named = {
        name for name in DOTTED.findall(page.read_text()) if not name.endswith((".py", ".toml", ".zip", ".parquet"))
    }
    assert [name for name in sorted(named - SPAN_ATTRIBUTES) if not resolves(name)] == []


def test_the_modules_that_contributing_calls_written_twice_exist_in_both_flavours() -> None:
    paragraphs = (ROOT / "CONTRIBUTING.md").read_text().split("\n\n")
    (paragraph,) = [text for text in paragraphs if "is written twice" in text]
    listed = [name.split("/")[-1] for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", paragraph) if name != "core"]
    assert listed
    for name in listed:
        found = {"asyncio" in path.parts for path in (ROOT / "src/sluicegate").rglob(f"{name}.py")}
        assert found == {True, False}, f"{name} is not in both flavours"
